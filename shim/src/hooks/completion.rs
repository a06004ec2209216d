//! Questions whether work is done, and the streams and events that they are about.

use core::ffi::{c_int, c_uint};

use cuda_sys::{Context, CuResult, Event, GreenContext, IpcEventHandle, Stream};
use shim_core::calls::CallId;
use shim_core::gate;

use crate::answers;
use crate::driver::real;

macro_rules! questions {
    ($(fn $name:ident($($arg:ident: $type:ty)?) = $answer:expr;)+) => {$(
        /// # Safety
        /// As the driver's function of this name.
        pub(crate) unsafe fn $name($($arg: $type)?) -> CuResult {
            // SAFETY: the caller's arguments, unchanged.
            answers::ask(CallId::$name, || $answer, || unsafe { real::$name($($arg)?) })
        }
    )+};
}

questions! {
    fn cuCtxSynchronize() = answers::context(answers::current());
    fn cuCtxSynchronize_v2(ctx: Context) = answers::context(ctx);
    fn cuEventQuery(h_event: Event) = answers::event(h_event);
    fn cuEventSynchronize(h_event: Event) = answers::event(h_event);
    fn cuStreamQuery(h_stream: Stream) = answers::stream(h_stream);
    fn cuStreamQuery_ptsz(h_stream: Stream) = answers::stream(h_stream);
    fn cuStreamSynchronize(h_stream: Stream) = answers::stream(h_stream);
    fn cuStreamSynchronize_ptsz(h_stream: Stream) = answers::stream(h_stream);
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CuResult {
    // The driver decides what a null pointer is worth.
    let kept = || if free.is_null() || total.is_null() { None } else { answers::memory() };
    let write = |memory: answers::Memory| {
        // SAFETY: not null, and the driver's contract makes it writable.
        unsafe { free.write(memory.free) };
        // SAFETY: as above.
        unsafe { total.write(memory.total) };
    };
    // SAFETY: the caller's arguments, unchanged.
    answers::ask_for(CallId::cuMemGetInfo_v2, kept, write, || unsafe { real::cuMemGetInfo_v2(free, total) })
}

macro_rules! times {
    ($($name:ident)+) => {$(
        /// # Safety
        /// As the driver's function of this name.
        pub(crate) unsafe fn $name(p_milliseconds: *mut f32, h_start: Event, h_end: Event) -> CuResult {
            // The driver decides what a null pointer is worth.
            let kept = || if p_milliseconds.is_null() { None } else { answers::between(h_start, h_end) };
            // SAFETY: not null, and the driver's contract makes it writable.
            let write = |milliseconds| unsafe { p_milliseconds.write(milliseconds) };
            answers::ask_for(CallId::$name, kept, write, || {
                // SAFETY: the caller's arguments, unchanged.
                unsafe { real::$name(p_milliseconds, h_start, h_end) }
            })
        }
    )+};
}

times! { cuEventElapsedTime cuEventElapsedTime_v2 }

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuStreamCreate(ph_stream: *mut Stream, flags: c_uint) -> CuResult {
    let _pass = gate::enter(CallId::cuStreamCreate);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuStreamCreate(ph_stream, flags) }?;
    // SAFETY: it succeeded, so the driver has written there.
    answers::stream_made(unsafe { ph_stream.read() });
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuStreamCreateWithPriority(
    ph_stream: *mut Stream,
    flags: c_uint,
    priority: c_int,
) -> CuResult {
    let _pass = gate::enter(CallId::cuStreamCreateWithPriority);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuStreamCreateWithPriority(ph_stream, flags, priority) }?;
    // SAFETY: it succeeded, so the driver has written there.
    answers::stream_made(unsafe { ph_stream.read() });
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuGreenCtxStreamCreate(
    ph_stream: *mut Stream,
    green_ctx: GreenContext,
    flags: c_uint,
    priority: c_int,
) -> CuResult {
    let _pass = gate::enter(CallId::cuGreenCtxStreamCreate);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuGreenCtxStreamCreate(ph_stream, green_ctx, flags, priority) }?;
    // SAFETY: it succeeded, so the driver has written there.
    answers::stream_made(unsafe { ph_stream.read() });
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuEventCreate(ph_event: *mut Event, flags: c_uint) -> CuResult {
    let _pass = gate::enter(CallId::cuEventCreate);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuEventCreate(ph_event, flags) }?;
    // SAFETY: it succeeded, so the driver has written there.
    answers::event_made(unsafe { ph_event.read() });
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuIpcGetEventHandle(p_handle: *mut IpcEventHandle, event: Event) -> CuResult {
    let _pass = gate::enter(CallId::cuIpcGetEventHandle);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuIpcGetEventHandle(p_handle, event) }?;
    answers::event_shared(event);
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuIpcOpenEventHandle(ph_event: *mut Event, handle: IpcEventHandle) -> CuResult {
    let _pass = gate::enter(CallId::cuIpcOpenEventHandle);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuIpcOpenEventHandle(ph_event, handle) }?;
    // SAFETY: it succeeded, so the driver has written there.
    answers::event_opened(unsafe { ph_event.read() });
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuEventDestroy(h_event: Event) -> CuResult {
    let _pass = gate::enter(CallId::cuEventDestroy);
    let made = answers::event_gone(h_event);
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { real::cuEventDestroy(h_event) };
    if result.is_err() {
        answers::event_stays(h_event, made);
    }
    result
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuEventDestroy_v2(h_event: Event) -> CuResult {
    let _pass = gate::enter(CallId::cuEventDestroy_v2);
    let made = answers::event_gone(h_event);
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { real::cuEventDestroy_v2(h_event) };
    if result.is_err() {
        answers::event_stays(h_event, made);
    }
    result
}
