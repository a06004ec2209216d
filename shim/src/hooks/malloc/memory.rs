//! Allocate and free.

use core::ffi::c_uint;

use cuda_sys::{Context, CuError, CuResult, Device, DevicePtr, Stream};
use shim_core::blocks::{Found, Owner, SLAB, SMALL};
use shim_core::calls::CallId;
use shim_core::gate;
use shim_core::tally::Kind;

use super::super::refuse;
use super::{native, waiting};
use crate::blocks::{Backed, backed, blocks, give_back};
use crate::captures;
use crate::driver::real;
use crate::world;

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemAlloc_v2(dptr: *mut DevicePtr, bytesize: usize) -> CuResult {
    let _pass = gate::enter(CallId::cuMemAlloc_v2);
    let place = if dptr.is_null() || bytesize == 0 { None } else { here() };
    let Some((backed, owner)) = place else {
        // SAFETY: the caller's arguments, unchanged: the driver says what they are worth.
        unsafe { real::cuMemAlloc_v2(dptr, bytesize) }?;
        // SAFETY: it succeeded, so the driver has written there.
        unsafe { native::given(Kind::Malloc, dptr, bytesize) };
        return Ok(());
    };
    let base = allocate(backed, owner, bytesize)?;
    // SAFETY: not null, and the driver's contract makes it writable.
    unsafe { dptr.write(DevicePtr(base)) };
    Ok(())
}

/// The pitch is what the driver gives on every device we have measured: rows begin at multiples of 512 bytes.
const PITCH: usize = 512;

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemAllocPitch_v2(
    dptr: *mut DevicePtr,
    p_pitch: *mut usize,
    width_in_bytes: usize,
    height: usize,
    element_size_bytes: c_uint,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemAllocPitch_v2);
    let pitch = width_in_bytes.checked_next_multiple_of(PITCH);
    let size = pitch.and_then(|pitch| pitch.checked_mul(height)).filter(|size| *size > 0);
    let plain = !dptr.is_null() && !p_pitch.is_null() && matches!(element_size_bytes, 4 | 8 | 16);
    let (Some(pitch), Some(size), true, Some((backed, owner))) = (pitch, size, plain, here()) else {
        // SAFETY: the caller's arguments, unchanged: the driver says what they are worth.
        unsafe { real::cuMemAllocPitch_v2(dptr, p_pitch, width_in_bytes, height, element_size_bytes) }?;
        // SAFETY: it succeeded, so the driver has written there.
        let pitch = unsafe { p_pitch.read() };
        // SAFETY: as above.
        unsafe { native::given(Kind::Malloc, dptr, pitch.saturating_mul(height)) };
        return Ok(());
    };
    let base = allocate(backed, owner, size)?;
    // SAFETY: not null, and the driver's contract makes it writable.
    unsafe { dptr.write(DevicePtr(base)) };
    // SAFETY: as above.
    unsafe { p_pitch.write(pitch) };
    Ok(())
}

/// Whose memory it will be, and on which device. `None` where the driver has to answer: no current context, or a
/// device on which memory of ours cannot stand in.
fn here() -> Option<(Backed, Owner)> {
    let mut context = Context::NULL;
    // SAFETY: `context` is writable.
    unsafe { real::cuCtxGetCurrent(&raw mut context) }.ok()?;
    if context.is_null() {
        return None;
    }
    let mut device = Device(-1);
    // SAFETY: `device` is writable.
    unsafe { real::cuCtxGetDevice(&raw mut device) }.ok()?;
    Some((backed(device)?, Owner { context, device }))
}

fn allocate(backed: Backed, owner: Owner, size: usize) -> CuResult<u64> {
    waiting::permitted()?;
    world::sweep();
    let size = u64::try_from(size).map_err(|_| CuError::OUT_OF_MEMORY)?;
    if size > SMALL {
        let len = size.checked_next_multiple_of(SLAB).ok_or(CuError::OUT_OF_MEMORY)?;
        let span = backed.make(len)?;
        blocks().add_large(span, size, owner);
        return Ok(span.base);
    }
    loop {
        if let Some(base) = blocks().place(size, owner.context) {
            return Ok(base);
        }
        let span = backed.make(SLAB)?;
        blocks().add_slab(span, owner, size);
    }
}

/// Frees, once all work has ended that might use the memory: the driver's own function waits for it as well, and a place
/// in a slab that is used again under a running kernel is silent corruption.
///
/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemFree_v2(dptr: DevicePtr) -> CuResult {
    let _pass = gate::enter(CallId::cuMemFree_v2);
    match blocks().find(dptr.0) {
        // SAFETY: the caller's argument, unchanged: no memory of ours.
        Found::Foreign => native::taken(dptr.0, || unsafe { refuse::cuMemFree_v2(dptr) }),
        Found::Gap => Err(CuError::INVALID_VALUE),
        Found::Block(block) => free_behind(dptr, || waiting::idle(block.owner.context)),
    }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemFreeAsync(dptr: DevicePtr, h_stream: Stream) -> CuResult {
    let call = CallId::cuMemFreeAsync;
    let _pass = gate::enter_on(call, || captures::capturing(call, h_stream));
    match blocks().find(dptr.0) {
        Found::Foreign => native::taken(dptr.0, || {
            // SAFETY: the caller's arguments, unchanged: no memory of ours.
            refuse::freed(dptr, || unsafe { real::cuMemFreeAsync(dptr, h_stream) })
        }),
        Found::Gap => Err(CuError::INVALID_VALUE),
        Found::Block(_) => free_behind(dptr, || {
            // SAFETY: the caller's stream.
            unsafe { real::cuStreamSynchronize(h_stream) }
        }),
    }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemFreeAsync_ptsz(dptr: DevicePtr, h_stream: Stream) -> CuResult {
    let call = CallId::cuMemFreeAsync_ptsz;
    let _pass = gate::enter_on(call, || captures::capturing(call, h_stream));
    match blocks().find(dptr.0) {
        Found::Foreign => native::taken(dptr.0, || {
            // SAFETY: the caller's arguments, unchanged: no memory of ours.
            refuse::freed(dptr, || unsafe { real::cuMemFreeAsync_ptsz(dptr, h_stream) })
        }),
        Found::Gap => Err(CuError::INVALID_VALUE),
        Found::Block(_) => free_behind(dptr, || {
            // SAFETY: the caller's stream.
            unsafe { real::cuStreamSynchronize_ptsz(h_stream) }
        }),
    }
}

/// Frees a block that nothing uses behind what a stream has been given so far. The driver does it when the stream gets
/// there; here the caller waits until it does.
fn free_behind(dptr: DevicePtr, wait: impl FnOnce() -> CuResult) -> CuResult {
    let taken = blocks().take(dptr.0).ok_or(CuError::INVALID_VALUE)?;
    if let Err(error) = wait() {
        blocks().put_back(taken);
        return Err(error);
    }
    if let Some(span) = blocks().end(taken) {
        give_back(span);
    }
    Ok(())
}
