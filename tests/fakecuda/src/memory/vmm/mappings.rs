//! Mapping memory at addresses, and who may touch it there.
//!
//! As measured: only a whole allocation can be mapped, any number of times; access is per whole mapping and location, and is gone
//! with the mapping. None of this waits for work.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::collections::BTreeMap;

use cuda_sys::{AccessDesc, AccessFlags, CuError, CuResult, DevicePtr, LocationType, MemHandle, MemLocation};

use super::{bit, named};
use crate::args;
use crate::driver::{Driver, driver};
use crate::memory::GRANULE;
use crate::memory::multicast;
use crate::memory::physical::Place;
use crate::memory::space::{Access, Area, HOST, Mapping, Space, hide_from_host, show_to_host};
use crate::trace::violation;
use crate::work::note_pending;

pub(crate) unsafe fn cuMemMap(
    ptr: DevicePtr,
    size: usize,
    offset: usize,
    handle: MemHandle,
    flags: u64,
) -> CuResult {
    let driver = driver()?;
    let (object, memory) = named(driver, handle, "cuMemMap")?;
    if size == 0 || flags != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let at = args::size(ptr.0);
    if offset != 0 || size != memory.size {
        return Err(CuError::NOT_SUPPORTED);
    }
    if !at.is_multiple_of(GRANULE) {
        return Err(CuError::INVALID_VALUE);
    }
    multicast::wait_for_members(driver, &memory);
    let id = driver.memory.new_id();
    let mut space = crate::write(&driver.memory.space);
    let Some((start, Area::Reserved { size: reserved, maps })) = space.find_mut(at) else {
        violation(format_args!("cuMemMap: {at:#x} is not reserved"));
        return Err(CuError::INVALID_VALUE);
    };
    if at - start + size > *reserved {
        return Err(CuError::INVALID_VALUE);
    }
    let before = maps.range(..at + size).next_back();
    if before.is_some_and(|(&other, mapping)| other + mapping.size > at) {
        violation(format_args!("cuMemMap: something is mapped in {at:#x}+{size:#x}"));
        return Err(CuError::INVALID_VALUE);
    }
    object.count(driver, |state| state.maps += 1);
    maps.insert(at, Mapping { size, id, object, memory, access: Access::default() });
    Ok(())
}

/// The starts of the mappings in a range, which must not cut any.
fn inside(maps: &BTreeMap<usize, Mapping>, at: usize, end: usize) -> Option<Vec<usize>> {
    let cut_at_start =
        maps.range(..at).next_back().is_some_and(|(&start, mapping)| start + mapping.size > at);
    let cut_at_end =
        maps.range(..end).next_back().is_some_and(|(&start, mapping)| start + mapping.size > end);
    (!cut_at_start && !cut_at_end).then(|| maps.range(at..end).map(|(&start, _)| start).collect())
}

/// Takes all mappings out of a range of a reservation; where nothing is mapped there is nothing to do.
/// Unmapping what pending work uses is a violation, and the work will fault.
pub(crate) unsafe fn cuMemUnmap(ptr: DevicePtr, size: usize) -> CuResult {
    let driver = driver()?;
    let at = args::size(ptr.0);
    let mut space = crate::write(&driver.memory.space);
    let Some((start, Area::Reserved { size: reserved, maps })) = space.find_mut(at) else {
        violation(format_args!("cuMemUnmap: {at:#x} is not reserved"));
        return Err(CuError::INVALID_VALUE);
    };
    if size == 0 || at - start + size > *reserved {
        return Err(CuError::INVALID_VALUE);
    }
    let Some(starts) = inside(maps, at, at + size) else {
        violation(format_args!("cuMemUnmap: {at:#x}+{size:#x} cuts a mapping"));
        return Err(CuError::INVALID_VALUE);
    };
    let removed: Vec<(usize, Mapping)> =
        starts.into_iter().filter_map(|start| maps.remove(&start).map(|mapping| (start, mapping))).collect();
    for (start, mapping) in &removed {
        note_pending(driver, "cuMemUnmap", *start, mapping.size);
        if mapping.access.read & HOST != 0 {
            hide_from_host(*start, mapping.size)?;
        }
    }
    drop(space);
    for (_, Mapping { object, memory, .. }) in removed {
        drop(memory);
        object.count(driver, |state| state.maps = state.maps.saturating_sub(1));
    }
    Ok(())
}

/// The access that descriptors ask for, by the bit of the location. A location twice in one call is refused, and so is one
/// that does not exist.
fn grants(driver: &Driver, wanted: &[AccessDesc]) -> CuResult<Vec<(u32, AccessFlags)>> {
    let mut grants: Vec<(u32, AccessFlags)> = Vec::new();
    for desc in wanted {
        let known = [AccessFlags::NONE, AccessFlags::READ, AccessFlags::READ_WRITE].contains(&desc.flags);
        let bit = bit(driver, desc.location).map_err(|_| CuError::INVALID_VALUE)?;
        if !known || grants.iter().any(|(other, _)| *other == bit) {
            return Err(CuError::INVALID_VALUE);
        }
        grants.push((bit, desc.flags));
    }
    Ok(grants)
}

/// The starts of the mappings that make up a range without a gap.
fn throughout(space: &Space, at: usize, size: usize) -> CuResult<Vec<usize>> {
    let end = at.checked_add(size).ok_or(CuError::INVALID_VALUE)?;
    let Some((_, Area::Reserved { maps, .. })) = space.find(at) else { return Err(CuError::INVALID_VALUE) };
    let mut next = at;
    let mut starts = Vec::new();
    while next < end {
        let mapping = maps.get(&next).ok_or(CuError::INVALID_VALUE)?;
        starts.push(next);
        next += mapping.size;
    }
    if next == end { Ok(starts) } else { Err(CuError::INVALID_VALUE) }
}

/// A grant comes on top of what other locations have; NONE takes it away again. All is looked at before any of it is changed.
pub(crate) unsafe fn cuMemSetAccess(
    ptr: DevicePtr,
    size: usize,
    desc: *const AccessDesc,
    count: usize,
) -> CuResult {
    let driver = driver()?;
    let at = args::size(ptr.0);
    // SAFETY: the caller's promise.
    let wanted = unsafe { args::list(desc, count) }?;
    if size == 0 || count == 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let grants = grants(driver, wanted)?;
    let to_host = grants.iter().find(|(bit, _)| *bit == HOST).map(|(_, flags)| *flags);
    let mut space = crate::write(&driver.memory.space);
    let starts = throughout(&space, at, size)?;
    let on_device = |start: &usize| {
        space.mapping(*start).is_some_and(|(_, mapping)| matches!(mapping.memory.place, Place::Device(_)))
    };
    if to_host.is_some() && starts.iter().any(on_device) {
        return Err(CuError::NOT_SUPPORTED);
    }
    for start in starts {
        let Some((_, Area::Reserved { maps, .. })) = space.find_mut(start) else { continue };
        let Some(mapping) = maps.get_mut(&start) else { continue };
        for &(bit, flags) in &grants {
            let access = &mut mapping.access;
            access.read = if flags.0 & 1 != 0 { access.read | bit } else { access.read & !bit };
            access.write = if flags.0 & 2 != 0 { access.write | bit } else { access.write & !bit };
        }
        match to_host {
            None => {}
            Some(AccessFlags::NONE) => hide_from_host(start, mapping.size)?,
            Some(flags) => {
                show_to_host(start, mapping.size, &mapping.memory, flags == AccessFlags::READ_WRITE)?;
            }
        }
    }
    Ok(())
}

/// A mapping that was never granted to the location has NONE; so has native memory, as measured.
pub(crate) unsafe fn cuMemGetAccess(
    flags: *mut u64,
    location: *const MemLocation,
    ptr: DevicePtr,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let result = unsafe { args::out(flags) }?;
    // SAFETY: the caller's promise.
    let location = unsafe { args::read(location) }?;
    let bit = bit(driver, location).map_err(|error| {
        // An unknown kind of location is answered like an unknown device.
        if location.kind == LocationType::HOST_NUMA { error } else { CuError::INVALID_DEVICE }
    })?;
    let address = args::size(ptr.0);
    let space = crate::read(&driver.memory.space);
    let access = match space.mapping(address) {
        Some((_, mapping)) => mapping.access,
        None if matches!(space.find(address), Some((_, Area::Native(_)))) => Access::default(),
        None => return Err(CuError::INVALID_VALUE),
    };
    let flags = match (access.read & bit != 0, access.write & bit != 0) {
        (_, true) => AccessFlags::READ_WRITE,
        (true, false) => AccessFlags::READ,
        (false, false) => AccessFlags::NONE,
    };
    result.write(flags.0.into());
    Ok(())
}
