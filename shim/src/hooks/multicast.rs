//! Multicast objects: what is written through a mapping of one goes to the memory that each member has bound.
//!
//! An object is tracked as an allocation without bytes of its own ([`shim_core::world`]), so handles, descriptors and
//! mappings of one are the business of the hooks of virtual memory. Here is what only objects have: devices and bound memory.
//!
//! Binding waits in the driver until every device has been added, by whichever process. So nothing is locked across it, and
//! what it is given stays pinned.

use cuda_sys::{
    AllocationProp, CuError, CuResult, Device, DevicePtr, HandleType, LocationType, MemHandle,
    MulticastObjectProp,
};
use shim_core::calls::CallId;
use shim_core::gate;
use shim_core::world::{Binding, Description, Key, Multicast, Origin};

use super::fabric;
use super::vmm::name;
use crate::blocks::blocks;
use crate::driver::real;
use crate::world::{self, Real, let_go, real_handle, world};

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMulticastCreate(
    mc_handle: *mut MemHandle,
    prop: *const MulticastObjectProp,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMulticastCreate);
    world::sweep();
    if mc_handle.is_null() || prop.is_null() {
        // SAFETY: the caller's arguments, unchanged: the driver decides what a null pointer is worth.
        return unsafe { real::cuMulticastCreate(mc_handle, prop) };
    }
    // SAFETY: not null, and the driver's contract makes it readable.
    fabric::permitted(types(unsafe { prop.read() }.handle_types))?;
    let (id, secret) = name()?;
    let mut made = MemHandle::NONE;
    // SAFETY: `made` is writable; the rest is the caller's, unchanged.
    unsafe { real::cuMulticastCreate(&raw mut made, prop) }?;
    // SAFETY: the driver has read it as well.
    let MulticastObjectProp { num_devices, size, handle_types, flags } = unsafe { prop.read() };
    let what = Description {
        id,
        secret,
        size: wide(size),
        // It is on no device, and all that it can be asked for is how it may be exported.
        prop: AllocationProp { requested_handle_types: types(handle_types), ..AllocationProp::default() },
        origin: Origin::Created,
        multicast: Some(Multicast { devices: num_devices, handle_types, flags }),
    };
    let made = world().adopt(made, what);
    // SAFETY: not null, and the driver's contract makes it writable.
    unsafe { mc_handle.write(made) };
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMulticastAddDevice(mc_handle: MemHandle, dev: Device) -> CuResult {
    let _pass = gate::enter(CallId::cuMulticastAddDevice);
    let object = real_handle(mc_handle)?;
    // SAFETY: the caller's arguments, with the handle that the driver knows.
    unsafe { real::cuMulticastAddDevice(object.handle(), dev) }?;
    if let Some(object) = object.pin() {
        world().joined(object, dev.0);
    }
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMulticastBindMem(
    mc_handle: MemHandle,
    mc_offset: usize,
    mem_handle: MemHandle,
    mem_offset: usize,
    size: usize,
    flags: u64,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMulticastBindMem);
    let (object, memory) = (real_handle(mc_handle)?, real_handle(mem_handle)?);
    // SAFETY: the caller's arguments, with the handles that the driver knows.
    unsafe {
        real::cuMulticastBindMem(object.handle(), mc_offset, memory.handle(), mem_offset, size, flags)
    }?;
    record(&object, None, mc_offset, &memory, wide(mem_offset), size, flags);
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMulticastBindMem_v2(
    mc_handle: MemHandle,
    dev: Device,
    mc_offset: usize,
    mem_handle: MemHandle,
    mem_offset: usize,
    size: usize,
    flags: u64,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMulticastBindMem_v2);
    let (object, memory) = (real_handle(mc_handle)?, real_handle(mem_handle)?);
    // SAFETY: the caller's arguments, with the handles that the driver knows.
    unsafe {
        real::cuMulticastBindMem_v2(object.handle(), dev, mc_offset, memory.handle(), mem_offset, size, flags)
    }?;
    record(&object, Some(dev), mc_offset, &memory, wide(mem_offset), size, flags);
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMulticastBindAddr(
    mc_handle: MemHandle,
    mc_offset: usize,
    memptr: DevicePtr,
    size: usize,
    flags: u64,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMulticastBindAddr);
    let object = real_handle(mc_handle)?;
    let memory = mapped(memptr)?;
    // SAFETY: the caller's arguments, with the handle that the driver knows.
    unsafe { real::cuMulticastBindAddr(object.handle(), mc_offset, memptr, size, flags) }?;
    record_mapped(&object, None, mc_offset, memory, size, flags);
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMulticastBindAddr_v2(
    mc_handle: MemHandle,
    dev: Device,
    mc_offset: usize,
    memptr: DevicePtr,
    size: usize,
    flags: u64,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMulticastBindAddr_v2);
    let object = real_handle(mc_handle)?;
    let memory = mapped(memptr)?;
    // SAFETY: the caller's arguments, with the handle that the driver knows.
    unsafe { real::cuMulticastBindAddr_v2(object.handle(), dev, mc_offset, memptr, size, flags) }?;
    record_mapped(&object, Some(dev), mc_offset, memory, size, flags);
    Ok(())
}

/// The memory at an address, for as long as it takes to bind it. `None` for memory that is not in the tables: the driver
/// takes that of a stream as well. Memory of `cuMemAlloc` it does not take.
fn mapped(address: DevicePtr) -> CuResult<Option<(Real, u64)>> {
    if blocks().touches(address.0, 1) {
        return Err(CuError::INVALID_VALUE);
    }
    Ok(Real::at(address.0))
}

/// Records memory that the driver has bound by its address.
fn record_mapped(
    object: &Real,
    device: Option<Device>,
    at: usize,
    memory: Option<(Real, u64)>,
    len: usize,
    flags: u64,
) {
    match (memory, object.pin()) {
        (Some((memory, from)), _) => record(object, device, at, &memory, from, len, flags),
        (None, Some(object)) => world().bound_for_good(object),
        (None, None) => {}
    }
}

/// Records memory that the driver has bound.
fn record(
    object: &Real,
    device: Option<Device>,
    at: usize,
    memory: &Real,
    from: u64,
    len: usize,
    flags: u64,
) {
    let (Some(object), Some(pin)) = (object.pin(), memory.pin()) else { return };
    let own = world().describe(pin).map(|what| what.prop.location);
    let own = own.filter(|location| location.kind == LocationType::DEVICE).map_or(0, |location| location.id);
    let binding = Binding {
        device: device.map_or(own, |device| device.0),
        named: device.is_some(),
        memory: Key::default(),
        from,
        at: wide(at),
        len: wide(len),
        flags,
        live: true,
    };
    world().bound(object, pin, binding);
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMulticastUnbind(
    mc_handle: MemHandle,
    dev: Device,
    mc_offset: usize,
    size: usize,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMulticastUnbind);
    let object = real_handle(mc_handle)?;
    // SAFETY: the caller's arguments, with the handle that the driver knows.
    unsafe { real::cuMulticastUnbind(object.handle(), dev, mc_offset, size) }?;
    if let Some(object) = object.pin() {
        world().unbound(object, dev.0, wide(mc_offset), wide(size)).into_iter().for_each(let_go);
    }
    Ok(())
}

/// The set as memory has it.
fn types(set: u64) -> HandleType {
    HandleType(u32::try_from(set).unwrap_or(u32::MAX))
}

fn wide(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}
