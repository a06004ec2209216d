//! What native allocation and freeing do besides: they are refused while certain captures are under way, and a free
//! waits for the GPU.

use cuda_sys::{Context, CuError, CuResult, DevicePtr, Event};

use crate::captures;
use crate::driver::real;

/// Whether the driver lets this thread allocate at this moment. Asked by a call that it treats alike in every mode of
/// capture and from every thread (580.159.04): a query of an event. Where it refuses, it has invalidated the capture, as
/// it would have for an allocation.
pub(super) fn permitted() -> CuResult {
    if captures::active() == 0 {
        return Ok(());
    }
    let mut event = Event::NULL;
    // SAFETY: `event` is writable.
    unsafe { real::cuEventCreate(&raw mut event, 0) }?;
    // SAFETY: created above.
    let answer = unsafe { real::cuEventQuery(event) };
    // SAFETY: created above, and nobody else knows it.
    if let Err(error) = unsafe { real::cuEventDestroy_v2(event) } {
        log!("cuEventDestroy of an event of our own: {error}");
    }
    answer
}

/// Waits until the context has no work. During a capture a synchronisation would invalidate it, whatever its mode, but a
/// free of the driver's own memory waits without.
pub(super) fn idle(context: Context) -> CuResult {
    if captures::active() > 0 {
        permitted()?;
        let mut probe = DevicePtr(0);
        // SAFETY: `probe` is writable.
        unsafe { real::cuMemAlloc_v2(&raw mut probe, 1) }?;
        // SAFETY: allocated above.
        return unsafe { real::cuMemFree_v2(probe) };
    }
    // SAFETY: the context that the memory was made in; if it is gone the driver says so.
    unsafe { real::cuCtxPushCurrent_v2(context) }?;
    // SAFETY: no arguments.
    let synchronized = unsafe { real::cuCtxSynchronize() };
    let mut popped = Context::NULL;
    // SAFETY: `popped` is writable; it is the context pushed above.
    let back = unsafe { real::cuCtxPopCurrent_v2(&raw mut popped) };
    match synchronized.and(back) {
        // A context that is being torn down has no work left.
        Err(CuError::CONTEXT_IS_DESTROYED | CuError::DEINITIALIZED) => Ok(()),
        result => result,
    }
}
