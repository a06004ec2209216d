//! Legacy CUDA IPC of memory that is the driver's own. A process that has opened some cannot be restored, and what
//! others opened of ours cannot be opened again.

use core::ffi::c_uint;

use cuda_sys::{CuResult, DevicePtr, IpcMemHandle};
use protocol::BlockerKind;
use shim_core::blockers::Entry;
use shim_core::calls::CallId;
use shim_core::gate;

use super::memory::allocation_of;
use super::{owner, settle, table};
use crate::driver::real;

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuIpcGetMemHandle(p_handle: *mut IpcMemHandle, dptr: DevicePtr) -> CuResult {
    let _pass = gate::enter(CallId::cuIpcGetMemHandle);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuIpcGetMemHandle(p_handle, dptr) }?;
    let (base, bytes) = allocation_of(dptr);
    table().set(BlockerKind::IpcExported, base, Entry::of(bytes, owner()));
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuIpcOpenMemHandle(
    pdptr: *mut DevicePtr,
    handle: IpcMemHandle,
    flags: c_uint,
) -> CuResult {
    let _pass = gate::enter(CallId::cuIpcOpenMemHandle);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuIpcOpenMemHandle(pdptr, handle, flags) }?;
    // SAFETY: it succeeded, so the driver has written there.
    opened(unsafe { pdptr.read() });
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuIpcOpenMemHandle_v2(
    pdptr: *mut DevicePtr,
    handle: IpcMemHandle,
    flags: c_uint,
) -> CuResult {
    let _pass = gate::enter(CallId::cuIpcOpenMemHandle_v2);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuIpcOpenMemHandle_v2(pdptr, handle, flags) }?;
    // SAFETY: it succeeded, so the driver has written there.
    opened(unsafe { pdptr.read() });
    Ok(())
}

/// The driver counts opens: the same handle gives the same address, and the last close unmaps.
fn opened(at: DevicePtr) {
    let (_, bytes) = allocation_of(at);
    table().add(BlockerKind::IpcOpened, at.0, Entry::of(bytes, owner()));
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuIpcCloseMemHandle(dptr: DevicePtr) -> CuResult {
    let _pass = gate::enter(CallId::cuIpcCloseMemHandle);
    let taken = table().take(BlockerKind::IpcOpened, dptr.0);
    // SAFETY: the caller's arguments, unchanged.
    settle(taken, unsafe { real::cuIpcCloseMemHandle(dptr) })
}
