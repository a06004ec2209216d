//! `cuMem*` of virtual memory management: handles, reservations, mappings, access, sharing by descriptor.
//!
//! An allocation lives as long as a handle is counted, a mapping leads to it, or an exported descriptor is open. A handle whose
//! count is 0 is no handle any longer, though a mapping may keep the object; retaining by address makes it one again, with
//! the same value.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd};
use std::sync::{Arc, Mutex};

use cuda_sys::{
    AccessDesc, AccessFlags, AllocationProp, AllocationType, CuError, CuResult, DevicePtr, GranularityFlags,
    HandleType, LocationType, MemHandle, MemLocation,
};

use super::physical::{Origin, Physical, Place};
use super::space::{Access, Area, HOST, Mapping, Space, hide_from_host, show_to_host};
use super::{GRANULE, token};
use crate::args;
use crate::driver::{Driver, driver};
use crate::slab::address_of;
use crate::trace::violation;
use crate::work::note_pending;

/// What a handle of `cuMemCreate` names.
#[derive(Debug, Default)]
pub(crate) struct Object {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    handles: u32,
    maps: u32,
    memory: Option<Arc<Physical>>,
}

/// NUMA nodes of the host.
const NODES: c_int = 1;

/// The descriptor names memory.
const MEMORY_TOKEN: u64 = u64::from_le_bytes(*b"fakemem1");

impl Object {
    fn create(driver: &'static Driver, memory: Arc<Physical>) -> MemHandle {
        let object = driver.memory.objects.insert(|object| {
            *crate::lock(&object.state) = State { handles: 1, maps: 0, memory: Some(memory) };
        });
        object.handle()
    }

    fn handle(&'static self) -> MemHandle {
        MemHandle(args::wide(address_of(self)))
    }

    /// Changes the counts, and ends the object when both are 0.
    fn count(&'static self, driver: &'static Driver, change: impl FnOnce(&mut State)) {
        let mut state = crate::lock(&self.state);
        change(&mut state);
        if state.handles == 0 && state.maps == 0 {
            let memory = state.memory.take();
            drop(state);
            drop(memory);
            driver.memory.objects.remove(address_of(self));
            driver.memory.objects.recycle(self);
        }
    }
}

/// The object and the memory of a handle that is counted. Any other value is a violation.
fn named(driver: &Driver, handle: MemHandle, call: &str) -> CuResult<(&'static Object, Arc<Physical>)> {
    let object = driver.memory.objects.get(args::size(handle.0));
    let memory = object.and_then(|object| {
        let state = crate::lock(&object.state);
        state.memory.clone().filter(|_| state.handles > 0)
    });
    match (object, memory) {
        (Some(object), Some(memory)) => Ok((object, memory)),
        _ => {
            violation(format_args!("{call}: {handle:?} is not a handle"));
            Err(CuError::INVALID_VALUE)
        }
    }
}

/// Where a location is, for an allocation.
fn place(driver: &Driver, location: MemLocation) -> CuResult<Place> {
    match location.kind {
        LocationType::DEVICE => {
            let ordinal = usize::try_from(location.id).map_err(|_| CuError::INVALID_DEVICE)?;
            driver.physical(ordinal).map(|_| Place::Device(ordinal))
        }
        LocationType::HOST | LocationType::HOST_NUMA_CURRENT => Ok(Place::Host(0)),
        LocationType::HOST_NUMA if (0..NODES).contains(&location.id) => Ok(Place::Host(location.id)),
        _ => Err(CuError::INVALID_VALUE),
    }
}

/// The bit of a location in an [`Access`].
fn bit(driver: &Driver, location: MemLocation) -> CuResult<u32> {
    match place(driver, location)? {
        Place::Device(ordinal) => Ok(1 << ordinal),
        Place::Host(_) => Ok(HOST),
    }
}

fn check_prop(driver: &Driver, prop: &AllocationProp) -> CuResult<Place> {
    if prop.kind != AllocationType::PINNED {
        return Err(CuError::INVALID_VALUE);
    }
    if prop.requested_handle_types.0 & !(HandleType::POSIX_FD.0 | HandleType::FABRIC.0) != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    // The device reports fabric handles as supported, but the machine has no channel for them.
    if prop.requested_handle_types.0 & HandleType::FABRIC.0 != 0 {
        return Err(CuError::NOT_PERMITTED);
    }
    place(driver, prop.location)
}

pub(crate) unsafe fn cuMemGetAllocationGranularity(
    granularity: *mut usize,
    prop: *const AllocationProp,
    option: GranularityFlags,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(granularity) }?;
    // SAFETY: the caller's promise.
    let prop = unsafe { args::read(prop) }?;
    if option.0 > GranularityFlags::RECOMMENDED.0 {
        return Err(CuError::INVALID_VALUE);
    }
    check_prop(driver, &prop)?;
    place.write(GRANULE);
    Ok(())
}

/// Needs no context: the device is in the properties.
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
    let prop = unsafe { args::read(prop) }?;
    let place = check_prop(driver, &prop)?;
    if size == 0 || !size.is_multiple_of(GRANULE) || flags != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let exportable = prop.requested_handle_types != HandleType::NONE;
    let memory = Physical::create(driver, size, place, Some(prop), exportable)?;
    result.write(Object::create(driver, memory));
    Ok(())
}

pub(crate) unsafe fn cuMemRelease(handle: MemHandle) -> CuResult {
    let driver = driver()?;
    let (object, memory) = named(driver, handle, "cuMemRelease")?;
    drop(memory);
    object.count(driver, |state| state.handles = state.handles.saturating_sub(1));
    Ok(())
}

/// For memory of `cuMemAlloc` it is INVALID_VALUE (DRIVER-FACTS, cuMem).
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
    result.write(memory.prop.ok_or(CuError::INVALID_VALUE)?);
    Ok(())
}

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
    if size == 0
        || !size.is_multiple_of(GRANULE)
        || flags != 0
        || (alignment != 0 && !alignment.is_power_of_two())
    {
        return Err(CuError::INVALID_VALUE);
    }
    let mut space = crate::write(&driver.memory.space);
    let at = space.take(size, alignment.max(GRANULE), args::size(addr.0)).ok_or(CuError::OUT_OF_MEMORY)?;
    space.insert(at, Area::Reserved { size, maps: BTreeMap::new() });
    result.write(DevicePtr(args::wide(at)));
    Ok(())
}

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

pub(crate) unsafe fn cuMemMap(
    ptr: DevicePtr,
    size: usize,
    offset: usize,
    handle: MemHandle,
    flags: u64,
) -> CuResult {
    let driver = driver()?;
    let (object, memory) = named(driver, handle, "cuMemMap")?;
    let at = args::size(ptr.0);
    let whole = [at, size, offset].iter().all(|value| value.is_multiple_of(GRANULE));
    if size == 0 || !whole || flags != 0 || offset.checked_add(size).is_none_or(|end| end > memory.size) {
        return Err(CuError::INVALID_VALUE);
    }
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
    let parts = BTreeMap::from([(0, Access::default())]);
    maps.insert(at, Mapping { size, offset, object, memory, parts });
    Ok(())
}

/// The mappings that make up a range exactly, by their starts.
fn exact(maps: &BTreeMap<usize, Mapping>, at: usize, size: usize) -> Option<Vec<usize>> {
    let mut next = at;
    let mut starts = Vec::new();
    while next < at + size {
        let mapping = maps.get(&next)?;
        starts.push(next);
        next += mapping.size;
    }
    (next == at + size).then_some(starts)
}

/// Does not wait for work: unmapping what pending work uses is a violation, and the work will fault.
pub(crate) unsafe fn cuMemUnmap(ptr: DevicePtr, size: usize) -> CuResult {
    let driver = driver()?;
    let at = args::size(ptr.0);
    let mut space = crate::write(&driver.memory.space);
    let Some((_, Area::Reserved { maps, .. })) = space.find_mut(at) else {
        violation(format_args!("cuMemUnmap: {at:#x} is not mapped"));
        return Err(CuError::INVALID_VALUE);
    };
    let Some(starts) = exact(maps, at, size).filter(|starts| !starts.is_empty()) else {
        violation(format_args!("cuMemUnmap: {at:#x}+{size:#x} is not made of whole mappings"));
        return Err(CuError::INVALID_VALUE);
    };
    let removed: Vec<(usize, Mapping)> =
        starts.into_iter().filter_map(|start| maps.remove(&start).map(|mapping| (start, mapping))).collect();
    for (start, mapping) in &removed {
        note_pending(driver, "cuMemUnmap", *start, mapping.size);
        if mapping.parts.values().any(|access| access.read & HOST != 0) {
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

impl Mapping {
    /// Makes part borders at both ends of a range, so that the range is made of whole parts.
    fn split(&mut self, from: usize, to: usize) {
        for border in [from, to] {
            if border < self.size
                && let Some((_, &access)) = self.parts.range(..=border).next_back()
            {
                self.parts.entry(border).or_insert(access);
            }
        }
    }

    /// Gives one location its access to a range, relative to the mapping.
    fn set(&mut self, from: usize, to: usize, bit: u32, flags: AccessFlags) {
        self.split(from, to);
        for (_, access) in self.parts.range_mut(from..to) {
            access.read = if flags.0 & 1 != 0 { access.read | bit } else { access.read & !bit };
            access.write = if flags.0 & 2 != 0 { access.write | bit } else { access.write & !bit };
        }
        let mut last = None;
        self.parts.retain(|_, access| last.replace(*access) != Some(*access));
    }
}

/// Runs `each` for every mapping in a range, with the part of the range in it; the range must be mapped throughout.
fn for_range(
    space: &mut Space,
    at: usize,
    size: usize,
    mut each: impl FnMut(usize, &mut Mapping, usize, usize) -> CuResult,
) -> CuResult {
    let end = at.checked_add(size).ok_or(CuError::INVALID_VALUE)?;
    let Some((_, Area::Reserved { maps, .. })) = space.find_mut(at) else {
        return Err(CuError::INVALID_VALUE);
    };
    let mut next = at;
    while next < end {
        let (&start, mapping) = maps.range(..=next).next_back().ok_or(CuError::INVALID_VALUE)?;
        if next - start >= mapping.size {
            return Err(CuError::INVALID_VALUE);
        }
        next = start + mapping.size;
    }
    let (&first, _) = maps.range(..=at).next_back().ok_or(CuError::INVALID_VALUE)?;
    for (&start, mapping) in maps.range_mut(first..end) {
        let (from, to) = (at.max(start) - start, end.min(start + mapping.size) - start);
        each(start, mapping, from, to)?;
    }
    Ok(())
}

/// Grants come on top of what others have; NONE takes one away again.
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
    if size == 0 || count == 0 || !at.is_multiple_of(GRANULE) || !size.is_multiple_of(GRANULE) {
        return Err(CuError::INVALID_VALUE);
    }
    let mut grants = Vec::new();
    for desc in wanted {
        if ![AccessFlags::NONE, AccessFlags::READ, AccessFlags::READ_WRITE].contains(&desc.flags) {
            return Err(CuError::INVALID_VALUE);
        }
        grants.push((bit(driver, desc.location)?, desc.flags));
    }
    let mut space = crate::write(&driver.memory.space);
    let host_only_of_host = |mapping: &Mapping| {
        matches!(mapping.memory.place, Place::Host(_)) || grants.iter().all(|(bit, _)| *bit != HOST)
    };
    // All of it is looked at before any of it is changed.
    for_range(&mut space, at, size, |_, mapping, _, _| {
        if host_only_of_host(mapping) { Ok(()) } else { Err(CuError::INVALID_VALUE) }
    })?;
    for_range(&mut space, at, size, |start, mapping, from, to| {
        for &(bit, flags) in &grants {
            mapping.set(from, to, bit, flags);
            if bit == HOST {
                show_part(start, mapping, from, to, flags)?;
            }
        }
        Ok(())
    })
}

fn show_part(start: usize, mapping: &Mapping, from: usize, to: usize, flags: AccessFlags) -> CuResult {
    if flags == AccessFlags::NONE {
        return hide_from_host(start + from, to - from);
    }
    let write = flags == AccessFlags::READ_WRITE;
    show_to_host(start + from, to - from, &mapping.memory, mapping.offset + from, write)
}

pub(crate) unsafe fn cuMemGetAccess(
    flags: *mut u64,
    location: *const MemLocation,
    ptr: DevicePtr,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let result = unsafe { args::out(flags) }?;
    // SAFETY: the caller's promise.
    let bit = bit(driver, unsafe { args::read(location) }?)?;
    let address = args::size(ptr.0);
    let space = crate::read(&driver.memory.space);
    let (start, mapping) = space.mapping(address).ok_or(CuError::INVALID_VALUE)?;
    let (_, access) = mapping.parts.range(..=address - start).next_back().ok_or(CuError::INVALID_VALUE)?;
    let flags = match (access.read & bit != 0, access.write & bit != 0) {
        (_, true) => AccessFlags::READ_WRITE,
        (true, false) => AccessFlags::READ,
        (false, false) => AccessFlags::NONE,
    };
    result.write(flags.0.into());
    Ok(())
}

/// The descriptor keeps the memory alive, whatever happens to the handle.
pub(crate) unsafe fn cuMemExportToShareableHandle(
    shareable_handle: *mut c_void,
    handle: MemHandle,
    handle_type: HandleType,
    flags: u64,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise: for a descriptor the place holds an `int`.
    let result = unsafe { args::out(shareable_handle.cast::<c_int>()) }?;
    let (_, memory) = named(driver, handle, "cuMemExportToShareableHandle")?;
    let prop = memory.prop.ok_or(CuError::INVALID_VALUE)?;
    if flags != 0 || handle_type != HandleType::POSIX_FD || prop.requested_handle_types.0 & handle_type.0 == 0
    {
        return Err(CuError::INVALID_VALUE);
    }
    let (on_device, place) = match memory.place {
        Place::Device(ordinal) => (1, args::wide(driver.physical(ordinal)?)),
        Place::Host(node) => (0, u64::from(node.unsigned_abs())),
    };
    let token = memory.share(driver, |origin, pool, held| {
        let flags = prop.alloc_flags;
        let words = [
            MEMORY_TOKEN,
            args::wide(origin.share),
            origin.id,
            args::wide(origin.offset),
            args::wide(origin.size),
            on_device,
            place,
            prop.requested_handle_types.0.into(),
            prop.location.kind.0.into(),
            u64::from(flags.compression_type) | u64::from(flags.gpu_direct_rdma_capable) << 8,
            flags.usage.into(),
            0,
        ];
        token::make(&words, &[pool.file().as_fd(), held.lock().as_fd()])
    })?;
    result.write(token.into_raw_fd());
    Ok(())
}

/// The descriptor stays the caller's. Each import is a handle of its own.
pub(crate) unsafe fn cuMemImportFromShareableHandle(
    handle: *mut MemHandle,
    os_handle: *mut c_void,
    sh_handle_type: HandleType,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let result = unsafe { args::out(handle) }?;
    let number = c_int::try_from(os_handle.addr()).map_err(|_| CuError::INVALID_VALUE)?;
    if sh_handle_type != HandleType::POSIX_FD || number < 0 {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: used for the length of this call; a number that is no open descriptor gives an error of the kernel.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    let (words, [file, lock]) = token::read(descriptor, MEMORY_TOKEN)?;
    let [_, share, id, offset, size, on_device, place, types, location, flags, usage, _] = words;
    let origin = Origin { share: args::size(share), id, offset: args::size(offset), size: args::size(size) };
    let (place, location_id) = if on_device == 1 {
        let ordinal = driver.ordinal_of(args::size(place)).ok_or(CuError::INVALID_DEVICE)?;
        (Place::Device(ordinal), c_int::try_from(ordinal).unwrap_or(0))
    } else {
        let node = c_int::try_from(place).unwrap_or(0);
        (Place::Host(node), node)
    };
    let narrow = |value: u64| u32::try_from(value).unwrap_or(0);
    let [compression_type, gpu_direct_rdma_capable, ..] = flags.to_le_bytes();
    let prop = AllocationProp {
        kind: AllocationType::PINNED,
        requested_handle_types: HandleType(narrow(types)),
        location: MemLocation { kind: LocationType(narrow(location)), id: location_id },
        win32_handle_meta_data: std::ptr::null_mut(),
        alloc_flags: cuda_sys::AllocFlags {
            compression_type,
            gpu_direct_rdma_capable,
            usage: u16::try_from(usage).unwrap_or(0),
            reserved: [0; 4],
        },
    };
    let pool = driver.memory.peer_pool(file)?;
    if !pool.contains(origin.offset, origin.size) {
        return Err(CuError::INVALID_VALUE);
    }
    let held = driver.machine.join_share(origin.share, id, lock).ok_or(CuError::INVALID_VALUE)?;
    let memory = Physical::import(driver, pool, origin, place, Some(prop), held);
    result.write(Object::create(driver, memory));
    Ok(())
}
