//! Making memory, and counting its handles.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::c_void;

use cuda_sys::{
    AllocationProp, AllocationType, CuError, CuResult, GranularityFlags, HandleType, LocationType, MemHandle,
    MemLocation,
};

use super::{Object, named, place};
use crate::args;
use crate::config::config;
use crate::driver::{Driver, driver};
use crate::memory::GRANULE;
use crate::memory::physical::{Physical, Place};
use crate::trace::violation;

/// Where the memory is to be, and its properties as they read back: memory of the host is on a node, and of the handle types
/// the known one is left.
fn check_prop(driver: &Driver, mut prop: AllocationProp) -> CuResult<(Place, AllocationProp)> {
    let types = prop.requested_handle_types.0;
    // The handles of Windows.
    let foreign = types & 6 != 0;
    if prop.kind != AllocationType::PINNED || foreign {
        return Err(CuError::INVALID_VALUE);
    }
    let place = place(driver, prop.location)?;
    // The device reports fabric handles as supported, but the machine has no channel for them (as measured), unless it is
    // told to have one.
    if types & HandleType::FABRIC.0 != 0 && !config().fabric {
        return Err(CuError::NOT_PERMITTED);
    }
    if prop.location.kind == LocationType::HOST {
        if types & HandleType::POSIX_FD.0 != 0 {
            return Err(CuError::INVALID_VALUE);
        }
        prop.location = MemLocation { kind: LocationType::HOST_NUMA, id: 0 };
    }
    prop.requested_handle_types = HandleType(types & (HandleType::POSIX_FD.0 | HandleType::FABRIC.0));
    Ok((place, prop))
}

/// What the size has to be a multiple of: it depends on the properties.
fn granularity_of(prop: &AllocationProp) -> usize {
    if prop.requested_handle_types == HandleType::NONE { GRANULE } else { config().granularity }
}

pub(crate) unsafe fn cuMemGetAllocationGranularity(
    granularity: *mut usize,
    prop: *const AllocationProp,
    option: GranularityFlags,
) -> CuResult {
    driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(granularity) }?;
    // SAFETY: the caller's promise.
    let prop = unsafe { args::read(prop) }?;
    if option.0 > GranularityFlags::RECOMMENDED.0 {
        return Err(CuError::INVALID_VALUE);
    }
    place.write(granularity_of(&prop));
    Ok(())
}

/// Needs no context: the device is in the properties (CASES 01).
pub(crate) unsafe fn cuMemCreate(
    handle: *mut MemHandle,
    size: usize,
    prop: *const AllocationProp,
    flags: u64,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let result = unsafe { args::out(handle) }?;
    // SAFETY: the caller's promise.
    let (place, prop) = check_prop(driver, unsafe { args::read(prop) }?)?;
    // The stand-in itself has nothing smaller than its own granule.
    let granularity = granularity_of(&prop).max(GRANULE);
    if size == 0 || !size.is_multiple_of(granularity) || flags != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let exportable = prop.requested_handle_types != HandleType::NONE;
    let memory = Physical::create(driver, size, place, Some(prop), exportable)?;
    result.write(Object::create(driver, memory));
    Ok(())
}

/// A handle that a mapping alone keeps cannot be released.
pub(crate) unsafe fn cuMemRelease(handle: MemHandle) -> CuResult {
    let driver = driver()?;
    let (object, memory) = named(driver, handle, "cuMemRelease")?;
    drop(memory);
    let counted = object.count(driver, |state| {
        let counted = state.handles > 0;
        state.handles = state.handles.saturating_sub(1);
        counted
    });
    if counted {
        return Ok(());
    }
    violation(format_args!("cuMemRelease: {handle:?} was released before"));
    Err(CuError::INVALID_VALUE)
}

/// For memory of `cuMemAlloc` it is INVALID_VALUE (docs/DRIVER-VERSIONS.md, `malloc`). Any address inside the mapping will do.
pub(crate) unsafe fn cuMemRetainAllocationHandle(handle: *mut MemHandle, addr: *mut c_void) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let result = unsafe { args::out(handle) }?;
    let space = crate::read(&driver.memory.space);
    let (_, mapping) = space.mapping(addr.addr()).ok_or(CuError::INVALID_VALUE)?;
    let object = mapping.object;
    object.count(driver, |state| state.handles += 1);
    result.write(object.handle());
    Ok(())
}

pub(crate) unsafe fn cuMemGetAllocationPropertiesFromHandle(
    prop: *mut AllocationProp,
    handle: MemHandle,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let result = unsafe { args::out(prop) }?;
    let (_, memory) = named(driver, handle, "cuMemGetAllocationPropertiesFromHandle")?;
    if memory.team.is_some() {
        // A multicast object is no allocation.
        return Err(CuError::INVALID_VALUE);
    }
    result.write(memory.prop.ok_or(CuError::INVALID_VALUE)?);
    Ok(())
}
