//! Memory and its handles: create, release, retain, properties.

use core::ffi::c_void;

use cuda_sys::{AllocationProp, CuError, CuResult, HandleType, LocationType, MemHandle, MemLocation};
use protocol::{AllocationId, Secret};
use shim_core::blocks::Found;
use shim_core::calls::CallId;
use shim_core::gate;
use shim_core::world::{Description, NotHere, Origin, Release};

use super::super::fabric;
use crate::blocks::blocks;
use crate::driver::real;
use crate::world::{self, real_handle, world};

/// Creates memory, and hands the program a virtual handle that outlives the real one.
///
/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemCreate(
    handle: *mut MemHandle,
    size: usize,
    prop: *const AllocationProp,
    flags: u64,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemCreate);
    world::sweep();
    if handle.is_null() || prop.is_null() {
        // SAFETY: the caller's arguments, unchanged: the driver decides what a null pointer is worth.
        return unsafe { real::cuMemCreate(handle, size, prop, flags) };
    }
    // SAFETY: not null, and the driver's contract makes it readable.
    fabric::permitted(unsafe { prop.read() }.requested_handle_types)?;
    let (id, secret) = name()?;
    let mut made = MemHandle::NONE;
    // SAFETY: `made` is writable; the rest is the caller's, unchanged.
    let mut result = unsafe { real::cuMemCreate(&raw mut made, size, prop, flags) };
    if result == Err(CuError::OUT_OF_MEMORY) && world::sweep_all() {
        // Native descriptors free the memory the moment they are closed.
        // SAFETY: as above.
        result = unsafe { real::cuMemCreate(&raw mut made, size, prop, flags) };
    }
    result?;
    // SAFETY: the driver has read it as well.
    let mut prop = unsafe { prop.read() };
    prop.location = settled(prop.location, made);
    let size = u64::try_from(size).unwrap_or(u64::MAX);
    let what = Description { id, secret, size, prop, origin: Origin::Created, multicast: None };
    let made = world().adopt(made, what);
    // SAFETY: not null, and the driver's contract makes it writable.
    unsafe { handle.write(made) };
    Ok(())
}

/// A new name and secret. Taken before the driver is asked, so that nothing has to be undone.
pub(crate) fn name() -> CuResult<(AllocationId, Secret)> {
    let (mut id, mut secret) = (AllocationId([0; 16]), Secret([0; 16]));
    match (getrandom::fill(&mut id.0), getrandom::fill(&mut secret.0)) {
        (Ok(()), Ok(())) => Ok((id, secret)),
        _ => Err(CuError::OPERATING_SYSTEM),
    }
}

/// The location for making the memory again. "The node of this thread" has to be the same node, whichever thread makes
/// it.
fn settled(asked: MemLocation, made: MemHandle) -> MemLocation {
    if asked.kind != LocationType::HOST_NUMA_CURRENT {
        return asked;
    }
    let mut told = AllocationProp::default();
    // SAFETY: `told` is writable, the handle is new.
    match unsafe { real::cuMemGetAllocationPropertiesFromHandle(&raw mut told, made) } {
        Ok(()) if told.location.kind == LocationType::HOST_NUMA => told.location,
        _ => MemLocation { kind: LocationType::HOST_NUMA, id: current_node() },
    }
}

fn current_node() -> i32 {
    let (mut cpu, mut node) = (0_u32, 0_u32);
    let unused = core::ptr::null_mut::<c_void>();
    // SAFETY: two writable numbers; the third argument has not been used since Linux 2.6.24.
    unsafe { libc::syscall(libc::SYS_getcpu, &raw mut cpu, &raw mut node, unused) };
    node.cast_signed()
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemRelease(handle: MemHandle) -> CuResult {
    let _pass = gate::enter(CallId::cuMemRelease);
    world::sweep();
    let leaving = match world().release(handle) {
        Ok(Release::Counted) => return Ok(()),
        Ok(Release::Last(leaving)) => leaving,
        // SAFETY: the caller's arguments, unchanged: no handle of ours.
        Err(NotHere::NotOurs) => return unsafe { real::cuMemRelease(handle) },
        Err(_) => return Err(CuError::INVALID_VALUE),
    };
    if let Some(real) = leaving.real() {
        // SAFETY: the one real handle of an allocation, which nobody can find any more.
        if let Err(error) = unsafe { real::cuMemRelease(real) } {
            world().unrelease(handle, leaving);
            return Err(error);
        }
    }
    world::forget(leaving);
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemRetainAllocationHandle(handle: *mut MemHandle, addr: *mut c_void) -> CuResult {
    let _pass = gate::enter(CallId::cuMemRetainAllocationHandle);
    let address = u64::try_from(addr.addr()).unwrap_or_default();
    if blocks().find(address) != Found::Foreign {
        // Native memory of `cuMemAlloc` has no handle.
        return Err(CuError::INVALID_VALUE);
    }
    // Not while the result has nowhere to go: nobody could give the reference back.
    let held = if handle.is_null() { None } else { world().retain(address) };
    match held {
        Some(held) => {
            // SAFETY: not null, and the driver's contract makes it writable.
            unsafe { handle.write(held) };
            Ok(())
        }
        // Memory of another kind, or nothing at all.
        None => {
            // SAFETY: the caller's arguments, unchanged.
            unsafe { real::cuMemRetainAllocationHandle(handle, addr) }
        }
    }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemGetAllocationPropertiesFromHandle(
    prop: *mut AllocationProp,
    handle: MemHandle,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemGetAllocationPropertiesFromHandle);
    let found = real_handle(handle)?;
    // SAFETY: the caller's argument, and the handle that the driver knows.
    unsafe { real::cuMemGetAllocationPropertiesFromHandle(prop, found.handle()) }?;
    if found.pin().is_some_and(shim_core::world::Pin::is_imported) {
        // Behind it may be memory of our own making, but an imported handle never shows how it may be exported.
        // SAFETY: the driver has just written to it, and it is the caller's alone.
        unsafe { &mut *prop }.requested_handle_types = HandleType::NONE;
    }
    Ok(())
}
