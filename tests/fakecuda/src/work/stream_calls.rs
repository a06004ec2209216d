//! `cuStream*`: making, asking, waiting; host functions and callbacks.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use cuda_sys::{Context, CuError, CuResult, Device, HostFn, Stream as Handle, StreamCallback};

use super::capture;
use super::op::{Op, UserData};
use super::stream::{Kind, Stream, named};
use crate::args;
use crate::context::current;
use crate::driver::driver;

pub(crate) unsafe fn cuStreamCreateWithPriority(
    ph_stream: *mut Handle,
    flags: c_uint,
    priority: c_int,
) -> CuResult {
    let driver = driver()?;
    let context = current()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(ph_stream) }?;
    if flags > 1 {
        return Err(CuError::INVALID_VALUE);
    }
    context.take_stream_memory(driver)?;
    let stream = Stream::create(driver, context, Kind::Created, flags, priority.clamp(-5, 0));
    context.add_stream(stream);
    place.write(stream.handle());
    Ok(())
}

pub(crate) unsafe fn cuStreamCreate(ph_stream: *mut Handle, flags: c_uint) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { cuStreamCreateWithPriority(ph_stream, flags, 0) }
}

/// Returns at once; what was submitted still runs.
pub(crate) unsafe fn cuStreamDestroy_v2(h_stream: Handle) -> CuResult {
    let driver = driver()?;
    // The default streams cannot be destroyed.
    if h_stream.0.addr() <= 2 {
        return Err(CuError::INVALID_HANDLE);
    }
    let stream = named(h_stream)?;
    capture::not_capturing(stream)?;
    stream.end(driver);
    Ok(())
}

pub(crate) unsafe fn cuStreamQuery(h_stream: Handle) -> CuResult {
    let stream = named(h_stream)?;
    capture::not_capturing(stream)?;
    capture::unsafe_call(driver()?)?;
    if stream.is_idle() { stream.context().check() } else { Err(CuError::NOT_READY) }
}

pub(crate) unsafe fn cuStreamSynchronize(h_stream: Handle) -> CuResult {
    let stream = named(h_stream)?;
    capture::not_capturing(stream)?;
    capture::unsafe_call(driver()?)?;
    stream.tail().wait();
    stream.context().check()
}

pub(crate) unsafe fn cuStreamGetFlags(h_stream: Handle, flags: *mut c_uint) -> CuResult {
    let stream = named(h_stream)?;
    // SAFETY: the caller's promise.
    unsafe { args::out(flags) }?.write(stream.flags.load(Ordering::Relaxed));
    Ok(())
}

pub(crate) unsafe fn cuStreamGetPriority(h_stream: Handle, priority: *mut c_int) -> CuResult {
    let stream = named(h_stream)?;
    // SAFETY: the caller's promise.
    unsafe { args::out(priority) }?.write(stream.priority.load(Ordering::Relaxed));
    Ok(())
}

pub(crate) unsafe fn cuStreamGetId(h_stream: Handle, stream_id: *mut u64) -> CuResult {
    let stream = named(h_stream)?;
    // SAFETY: the caller's promise.
    unsafe { args::out(stream_id) }?.write(stream.id.load(Ordering::Relaxed));
    Ok(())
}

pub(crate) unsafe fn cuStreamGetCtx(h_stream: Handle, pctx: *mut Context) -> CuResult {
    let stream = named(h_stream)?;
    // SAFETY: the caller's promise.
    unsafe { args::out(pctx) }?.write(stream.context().handle());
    Ok(())
}

pub(crate) unsafe fn cuStreamGetDevice(h_stream: Handle, device: *mut Device) -> CuResult {
    let stream = named(h_stream)?;
    let ordinal = c_int::try_from(stream.context().ordinal()).unwrap_or(0);
    // SAFETY: the caller's promise.
    unsafe { args::out(device) }?.write(Device(ordinal));
    Ok(())
}

/// The function runs on the stream's thread.
pub(crate) unsafe fn cuLaunchHostFunc(h_stream: Handle, func: HostFn, user_data: *mut c_void) -> CuResult {
    let stream = named(h_stream)?;
    if func.is_none() {
        return Err(CuError::INVALID_VALUE);
    }
    super::submit(stream, Op::Host(func, UserData(user_data)), Vec::new()).map(|_| ())
}

/// Unlike a host function it is told of errors, and cannot be captured.
pub(crate) unsafe fn cuStreamAddCallback(
    h_stream: Handle,
    callback: StreamCallback,
    user_data: *mut c_void,
    flags: c_uint,
) -> CuResult {
    let stream = named(h_stream)?;
    if callback.is_none() || flags != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    capture::not_capturing(stream)?;
    super::submit(stream, Op::Callback(callback, h_stream, UserData(user_data)), Vec::new()).map(|_| ())
}
