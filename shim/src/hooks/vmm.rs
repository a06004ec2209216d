//! Virtual memory management: what the program creates, maps, shares and releases by handle.

use core::ffi::c_void;

use cuda_sys::{AccessDesc, AllocationProp, CuResult, DevicePtr, HandleType, MemHandle, MemLocation};
use shim_core::calls::CallId;
use shim_core::gate;

use crate::driver::real;

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemAddressFree(ptr: DevicePtr, size: usize) -> CuResult {
    let _pass = gate::enter(CallId::cuMemAddressFree);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemAddressFree(ptr, size) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemAddressReserve(
    ptr: *mut DevicePtr,
    size: usize,
    alignment: usize,
    addr: DevicePtr,
    flags: u64,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemAddressReserve);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemAddressReserve(ptr, size, alignment, addr, flags) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemCreate(
    handle: *mut MemHandle,
    size: usize,
    prop: *const AllocationProp,
    flags: u64,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemCreate);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemCreate(handle, size, prop, flags) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemExportToShareableHandle(
    shareable_handle: *mut c_void,
    handle: MemHandle,
    handle_type: HandleType,
    flags: u64,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemExportToShareableHandle);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemExportToShareableHandle(shareable_handle, handle, handle_type, flags) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemImportFromShareableHandle(
    handle: *mut MemHandle,
    os_handle: *mut c_void,
    sh_handle_type: HandleType,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemImportFromShareableHandle);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemImportFromShareableHandle(handle, os_handle, sh_handle_type) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemMap(
    ptr: DevicePtr,
    size: usize,
    offset: usize,
    handle: MemHandle,
    flags: u64,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemMap);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemMap(ptr, size, offset, handle, flags) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemRelease(handle: MemHandle) -> CuResult {
    let _pass = gate::enter(CallId::cuMemRelease);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemRelease(handle) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemRetainAllocationHandle(handle: *mut MemHandle, addr: *mut c_void) -> CuResult {
    let _pass = gate::enter(CallId::cuMemRetainAllocationHandle);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemRetainAllocationHandle(handle, addr) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemSetAccess(
    ptr: DevicePtr,
    size: usize,
    desc: *const AccessDesc,
    count: usize,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemSetAccess);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemSetAccess(ptr, size, desc, count) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemUnmap(ptr: DevicePtr, size: usize) -> CuResult {
    let _pass = gate::enter(CallId::cuMemUnmap);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemUnmap(ptr, size) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemGetAccess(
    flags: *mut u64,
    location: *const MemLocation,
    ptr: DevicePtr,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemGetAccess);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemGetAccess(flags, location, ptr) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemGetAllocationPropertiesFromHandle(
    prop: *mut AllocationProp,
    handle: MemHandle,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemGetAllocationPropertiesFromHandle);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemGetAllocationPropertiesFromHandle(prop, handle) }
}
