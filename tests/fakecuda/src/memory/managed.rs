//! Managed memory: the state of it, so that a checkpoint finds it. The bytes are plain memory of the host.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::c_uint;

use cuda_sys::{CuError, CuResult, DevicePtr};

use super::space::Area;
use super::{exhausted, host};
use crate::args;
use crate::context::{Ctx, current};
use crate::driver::{Driver, driver};

pub(crate) unsafe fn cuMemAllocManaged(dptr: *mut DevicePtr, bytesize: usize, flags: c_uint) -> CuResult {
    let driver = driver()?;
    let context = current()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(dptr) }?;
    // Attached to all streams, or to the host.
    if bytesize == 0 || !matches!(flags, 1 | 2) {
        return Err(CuError::INVALID_VALUE);
    }
    place.write(DevicePtr(args::wide(allocate(driver, context, bytesize)?)));
    Ok(())
}

pub(super) fn allocate(driver: &Driver, context: &'static Ctx, size: usize) -> CuResult<usize> {
    let at = host::map_pages(size).map_err(exhausted)?;
    let area = Area::Managed { size, context, id: driver.memory.new_id() };
    crate::write(&driver.memory.space).insert(at, area);
    Ok(at)
}

pub(super) fn free(driver: &Driver, at: usize) -> CuResult {
    let mut space = crate::write(&driver.memory.space);
    let Some(Area::Managed { size, .. }) = space.at(at) else { return Err(CuError::INVALID_VALUE) };
    let size = *size;
    space.remove(at);
    host::unmap_pages(at, size);
    Ok(())
}

/// The header: the end of a context cleans up all that goes with it.
pub(super) fn free_all_of(driver: &Driver, context: &'static Ctx) {
    let starts = crate::read(&driver.memory.space).managed_of(context);
    for at in starts {
        // Who frees it at the same time has freed it.
        let _ = free(driver, at);
    }
}
