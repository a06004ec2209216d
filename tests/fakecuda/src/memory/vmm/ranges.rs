//! Reservations of addresses.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::collections::BTreeMap;

use cuda_sys::{CuError, CuResult, DevicePtr};

use crate::args;
use crate::driver::driver;
use crate::memory::GRANULE;
use crate::memory::space::Area;
use crate::trace::violation;

/// A wish for an address is granted where that is free, and ignored elsewhere; an unaligned wish is refused.
pub(crate) unsafe fn cuMemAddressReserve(
    ptr: *mut DevicePtr,
    size: usize,
    alignment: usize,
    addr: DevicePtr,
    flags: u64,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let result = unsafe { args::out(ptr) }?;
    let wish = args::size(addr.0);
    let odd_alignment = alignment != 0 && !alignment.is_power_of_two();
    if size == 0
        || !size.is_multiple_of(GRANULE)
        || !wish.is_multiple_of(GRANULE)
        || flags != 0
        || odd_alignment
    {
        return Err(CuError::INVALID_VALUE);
    }
    let mut space = crate::write(&driver.memory.space);
    let at = space.take(size, alignment.max(GRANULE), wish).ok_or(CuError::OUT_OF_MEMORY)?;
    space.insert(at, Area::Reserved { size, maps: BTreeMap::new() });
    result.write(DevicePtr(args::wide(at)));
    Ok(())
}

/// Only a whole reservation, and only without mappings.
pub(crate) unsafe fn cuMemAddressFree(ptr: DevicePtr, size: usize) -> CuResult {
    let driver = driver()?;
    let at = args::size(ptr.0);
    let mut space = crate::write(&driver.memory.space);
    match space.at(at) {
        Some(Area::Reserved { size: reserved, maps }) if *reserved == size && maps.is_empty() => {}
        Some(Area::Reserved { maps, .. }) if !maps.is_empty() => {
            violation(format_args!("cuMemAddressFree: {at:#x} is still mapped"));
            return Err(CuError::INVALID_VALUE);
        }
        _ => {
            violation(format_args!("cuMemAddressFree: {at:#x}+{size:#x} is no reservation"));
            return Err(CuError::INVALID_VALUE);
        }
    }
    space.remove(at);
    space.give(at, size);
    Ok(())
}
