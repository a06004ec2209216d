//! Managed memory: the state of it, so that a checkpoint finds it. The bytes are plain memory of the host.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::c_uint;

use cuda_sys::{CuError, CuResult, DevicePtr};

use super::space::Area;
use super::{exhausted, host};
use crate::args;
use crate::context::current;
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
    let at = host::map_pages(bytesize).map_err(exhausted)?;
    let area = Area::Managed { size: bytesize, context, id: driver.memory.new_id() };
    crate::write(&driver.memory.space).insert(at, area);
    place.write(DevicePtr(args::wide(at)));
    Ok(())
}

pub(super) fn free(driver: &Driver, at: usize) -> CuResult {
    let mut space = crate::write(&driver.memory.space);
    let Some(Area::Managed { size, .. }) = space.at(at) else { return Err(CuError::INVALID_VALUE) };
    let size = *size;
    space.remove(at);
    host::unmap_pages(at, size);
    Ok(())
}
