//! Multicast objects. Their handles are the driver's own, since nothing here makes them again; the memory bound to them
//! is named by virtual handles.
//!
//! An object lives while somebody has a handle of it or a mapping: each is an entry of its own, a mapping by its
//! address.

use cuda_sys::{CuResult, Device, DevicePtr, MemHandle, MulticastObjectProp};
use protocol::BlockerKind;
use shim_core::blockers::{Entry, Taken};
use shim_core::calls::CallId;
use shim_core::gate;

use super::{settle, table, wide};
use crate::driver::real;
use crate::world::real_handle;

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMulticastCreate(
    mc_handle: *mut MemHandle,
    prop: *const MulticastObjectProp,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMulticastCreate);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMulticastCreate(mc_handle, prop) }?;
    // SAFETY: it succeeded, so the driver has written there.
    let made = unsafe { mc_handle.read() };
    // SAFETY: the driver has read it as well.
    let size = unsafe { prop.read() }.size;
    table().add(BlockerKind::Multicast, made.0, Entry { bytes: wide(size), ..handle_entry(made) });
    Ok(())
}

fn handle_entry(handle: MemHandle) -> Entry {
    Entry { count: 1, name: format!("multicast object {:#x}", handle.0), ..Entry::default() }
}

fn is_multicast(handle: MemHandle) -> bool {
    table().any(BlockerKind::Multicast, |key, entry| key == handle.0 || entry.owner == handle.0)
}

/// A handle that is none of ours was mapped.
pub(crate) fn mapped(handle: MemHandle, at: DevicePtr, size: usize) {
    if is_multicast(handle) {
        let name = format!("mapping at {:#x} of multicast object {:#x}", at.0, handle.0);
        let entry = Entry { count: 1, bytes: wide(size), owner: handle.0, name };
        table().set(BlockerKind::Multicast, at.0, entry);
    }
}

/// A handle that is none of ours was handed out for a mapping.
pub(crate) fn retained(handle: MemHandle) {
    if is_multicast(handle) {
        table().add(BlockerKind::Multicast, handle.0, handle_entry(handle));
    }
}

/// Releases a handle that is none of ours.
///
/// # Safety
/// As `cuMemRelease`.
pub(crate) unsafe fn release(handle: MemHandle) -> CuResult {
    let taken: Taken = table().take(BlockerKind::Multicast, handle.0);
    // SAFETY: the caller's arguments, unchanged.
    settle(taken, unsafe { real::cuMemRelease(handle) })
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMulticastAddDevice(mc_handle: MemHandle, dev: Device) -> CuResult {
    let _pass = gate::enter(CallId::cuMulticastAddDevice);
    let object = real_handle(mc_handle)?;
    // SAFETY: the caller's arguments, with the handle that the driver knows.
    unsafe { real::cuMulticastAddDevice(object.handle(), dev) }
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
    unsafe { real::cuMulticastBindMem(object.handle(), mc_offset, memory.handle(), mem_offset, size, flags) }
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
    }
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
    // SAFETY: the caller's arguments, with the handle that the driver knows.
    unsafe { real::cuMulticastBindAddr(object.handle(), mc_offset, memptr, size, flags) }
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
    // SAFETY: the caller's arguments, with the handle that the driver knows.
    unsafe { real::cuMulticastBindAddr_v2(object.handle(), dev, mc_offset, memptr, size, flags) }
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
    unsafe { real::cuMulticastUnbind(object.handle(), dev, mc_offset, size) }
}
