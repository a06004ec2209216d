//! Addresses: reserve, map, unmap, access.

use core::slice;

use cuda_sys::{AccessDesc, CuError, CuResult, DevicePtr, MemHandle, MemLocation};
use shim_core::calls::CallId;
use shim_core::gate;

use super::super::refuse;
use crate::blocks::blocks;
use crate::driver::real;
use crate::world::{self, let_go, real_handle, world};

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemAddressReserve(
    ptr: *mut DevicePtr,
    size: usize,
    alignment: usize,
    addr: DevicePtr,
    flags: u64,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemAddressReserve);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemAddressReserve(ptr, size, alignment, addr, flags) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemAddressFree(ptr: DevicePtr, size: usize) -> CuResult {
    let _pass = gate::enter(CallId::cuMemAddressFree);
    refuse_blocks(ptr, size)?;
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemAddressFree(ptr, size) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemMap(
    ptr: DevicePtr,
    size: usize,
    offset: usize,
    handle: MemHandle,
    flags: u64,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemMap);
    refuse_blocks(ptr, size)?;
    world::sweep();
    let found = real_handle(handle)?;
    // SAFETY: the caller's arguments, with the handle that the driver knows.
    unsafe { real::cuMemMap(ptr, size, offset, found.handle(), flags) }?;
    if let Some(pin) = found.pin() {
        world().map(pin, ptr.0, wide(size), wide(offset)).into_iter().for_each(let_go);
    }
    Ok(())
}

/// Unmaps, and lets go of the memory whose last reference that was.
///
/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemUnmap(ptr: DevicePtr, size: usize) -> CuResult {
    let _pass = gate::enter(CallId::cuMemUnmap);
    refuse_blocks(ptr, size)?;
    world::sweep();
    let taken = world().take(ptr.0, wide(size));
    // SAFETY: the caller's arguments, unchanged.
    if let Err(error) = unsafe { real::cuMemUnmap(ptr, size) } {
        world().put_back(taken);
        return Err(error);
    }
    world().end(taken).into_iter().for_each(let_go);
    refuse::unmapped(ptr, size);
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemSetAccess(
    ptr: DevicePtr,
    size: usize,
    desc: *const AccessDesc,
    count: usize,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemSetAccess);
    refuse_blocks(ptr, size)?;
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemSetAccess(ptr, size, desc, count) }?;
    if !desc.is_null() {
        // SAFETY: the driver has read as many of them.
        let grants = unsafe { slice::from_raw_parts(desc, count) };
        world().grant(ptr.0, wide(size), grants);
    }
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemGetAccess(
    flags: *mut u64,
    location: *const MemLocation,
    ptr: DevicePtr,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemGetAccess);
    if !flags.is_null() && !location.is_null() && blocks().touches(ptr.0, 1) {
        // Native memory has no access of that kind, and the driver says so without an error (580.159.04).
        // SAFETY: not null, and the driver's contract makes it writable.
        unsafe { flags.write(0) };
        return Ok(());
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemGetAccess(flags, location, ptr) }
}

/// To the program a block is memory of `cuMemAlloc`: no reservation of its own, and no mapping.
fn refuse_blocks(ptr: DevicePtr, size: usize) -> CuResult {
    if blocks().touches(ptr.0, wide(size)) { Err(CuError::INVALID_VALUE) } else { Ok(()) }
}

fn wide(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}
