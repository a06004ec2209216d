//! Managed memory; and the end of any memory that something was handed out for.

use core::ffi::c_uint;

use cuda_sys::{CuResult, DevicePtr, DevicePtrV1};
use protocol::BlockerKind;
use shim_core::blockers::{Entry, Taken};
use shim_core::calls::CallId;
use shim_core::gate;

use super::{gone, owner, settle, table, wide};
use crate::driver::real;

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemAllocManaged(dptr: *mut DevicePtr, bytesize: usize, flags: c_uint) -> CuResult {
    let _pass = gate::enter(CallId::cuMemAllocManaged);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemAllocManaged(dptr, bytesize, flags) }?;
    // SAFETY: it succeeded, so the driver has written there.
    let at = unsafe { dptr.read() };
    table().set(BlockerKind::Managed, at.0, Entry::of(wide(bytesize), owner()));
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemFree_v2(dptr: DevicePtr) -> CuResult {
    let _pass = gate::enter(CallId::cuMemFree_v2);
    // SAFETY: the caller's arguments, unchanged.
    freed(dptr, || unsafe { real::cuMemFree_v2(dptr) })
}

/// Frees an allocation, and what stands for it.
pub(crate) fn freed(at: DevicePtr, free: impl FnOnce() -> CuResult) -> CuResult {
    let taken = taken_with(at.0);
    settle(taken, free())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemFree(dptr: DevicePtrV1) -> CuResult {
    let _pass = gate::enter(CallId::cuMemFree);
    let taken = taken_with(dptr.0.into());
    // SAFETY: the caller's arguments, unchanged.
    settle(taken, unsafe { real::cuMemFree(dptr) })
}

/// Memory was unmapped: what was handed out for it stands for nothing any more.
pub(crate) fn unmapped(at: DevicePtr, size: usize) {
    let range = at.0..at.0.saturating_add(wide(size));
    gone(table().take_all(|kind, key, _| kind == BlockerKind::RawHandle && range.contains(&key)));
}

/// What goes with the allocation that begins at `base`.
fn taken_with(base: u64) -> Taken {
    table().take_all(|kind, key, _| {
        use BlockerKind as K;
        let of_memory =
            matches!(kind, K::Managed | K::IpcExported | K::RawHandle | K::SharedPool | K::HostPool);
        of_memory && key == base
    })
}

/// Where the allocation around an address begins, and its size. The address itself where the driver does not say.
pub(super) fn allocation_of(at: DevicePtr) -> (u64, u64) {
    let (mut base, mut size) = (DevicePtr(0), 0_usize);
    // SAFETY: both are writable.
    match unsafe { real::cuMemGetAddressRange_v2(&raw mut base, &raw mut size, at) } {
        Ok(()) => (base.0, wide(size)),
        Err(_) => (at.0, 0),
    }
}
