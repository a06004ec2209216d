//! Multicast objects, taken apart and put together again: each step is marked after its driver call.

use cuda_sys::{CuResult, Device, MemHandle, MulticastObjectProp};
use shim_core::world::{Backing, Binding, Key, Multicast, Object, View};

use super::trouble::{Trouble, Why};
use super::views::{drop_backing, unmap};
use crate::driver::real;
use crate::transfer::{TransferError, certain};
use crate::world::world;

/// Drops an object: its mappings, what is bound to it, and the handle. Counts the mappings.
pub(super) fn drop_object(object: &Object, views: &[View]) -> Result<u64, Trouble> {
    let mappings = unmap(views)?;
    let Backing::Live(real) = object.backing else { return Ok(mappings) };
    for binding in world().part(object.key).bindings.iter().filter(|binding| binding.live) {
        certain::unbind(real, Device(binding.device), narrow(binding.at), narrow(binding.len))
            .map_err(|error| Trouble::with(&object.what, error.into()))?;
        world().rebound(object.key, binding, false);
    }
    drop_backing(object.key).map_err(|why| Trouble::with(&object.what, why))?;
    Ok(mappings)
}

/// Makes an object of this process's own again.
pub(super) fn create(object: &Object, team: Multicast) -> Result<MemHandle, Why> {
    let Multicast { devices, handle_types, flags } = team;
    let prop =
        MulticastObjectProp { num_devices: devices, size: narrow(object.what.size), handle_types, flags };
    let mut made = MemHandle::NONE;
    // SAFETY: `made` is writable; the properties are those it was made with before.
    unsafe { real::cuMulticastCreate(&raw mut made, &raw const prop) }
        .map_err(TransferError::driver("cuMulticastCreate"))?;
    world().created(object.key, made);
    world().filled(object.key);
    Ok(made)
}

/// Adds the devices that the driver does not know of.
pub(super) fn join(object: &Object, real: MemHandle) -> Result<(), Trouble> {
    for joined in world().part(object.key).joined.iter().filter(|joined| !joined.live) {
        // SAFETY: a handle of the object.
        unsafe { real::cuMulticastAddDevice(real, Device(joined.device)) }
            .map_err(|error| trouble(object, "cuMulticastAddDevice", error))?;
        world().rejoined(object.key, joined.device);
    }
    Ok(())
}

/// Binds what is not bound. Every device has been added, so it waits for nobody.
pub(super) fn bind(object: &Object, real: MemHandle) -> Result<(), Trouble> {
    for binding in world().part(object.key).bindings.iter().filter(|binding| !binding.live) {
        let memory = memory(binding.memory).map_err(|why| Trouble::with(&object.what, why))?;
        if let Err(error) = bind_one(real, memory, binding) {
            // After an error there is nothing, so that it can be tried again.
            let (at, len) = (narrow(binding.at), narrow(binding.len));
            if let Err(error) = certain::unbind(real, Device(binding.device), at, len) {
                log!("after a failed bind: {error}");
            }
            return Err(trouble(object, "cuMulticastBindMem", error));
        }
        world().rebound(object.key, binding, true);
    }
    Ok(())
}

fn memory(key: Key) -> Result<MemHandle, Why> {
    world().real(key).ok_or(Why::NotBack)
}

/// Binds by the form of the call that the program used: a driver before 13.1 has only the first.
fn bind_one(real: MemHandle, memory: MemHandle, binding: &Binding) -> CuResult {
    let (at, from, len) = (narrow(binding.at), narrow(binding.from), narrow(binding.len));
    if binding.named {
        let device = Device(binding.device);
        // SAFETY: handles of the object and of memory; nothing is bound there since we unbound it.
        return unsafe { real::cuMulticastBindMem_v2(real, device, at, memory, from, len, binding.flags) };
    }
    // SAFETY: as above.
    unsafe { real::cuMulticastBindMem(real, at, memory, from, len, binding.flags) }
}

fn trouble(object: &Object, call: &'static str, error: cuda_sys::CuError) -> Trouble {
    Trouble::with(&object.what, TransferError::Driver { call, error }.into())
}

fn narrow(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
