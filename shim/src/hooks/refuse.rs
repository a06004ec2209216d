//! What cannot be carried yet: passed on to the driver, counted, refused by `check`.

use core::ffi::{c_uint, c_void};

use cuda_sys::{
    CuResult, Device, DevicePtr, ExternalMemory, GraphicsResource, HandleType, IpcMemHandle, MemHandle,
    MemPool, MulticastObjectProp, Stream,
};
use shim_core::calls::CallId;
use shim_core::gate;

use crate::driver::real;

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuGraphicsMapResources(
    count: c_uint,
    resources: *mut GraphicsResource,
    h_stream: Stream,
) -> CuResult {
    let _pass = gate::enter_on(CallId::cuGraphicsMapResources, || {
        crate::captures::capturing(CallId::cuGraphicsMapResources, h_stream)
    });
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuGraphicsMapResources(count, resources, h_stream) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuGraphicsMapResources_ptsz(
    count: c_uint,
    resources: *mut GraphicsResource,
    h_stream: Stream,
) -> CuResult {
    let _pass = gate::enter_on(CallId::cuGraphicsMapResources_ptsz, || {
        crate::captures::capturing(CallId::cuGraphicsMapResources_ptsz, h_stream)
    });
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuGraphicsMapResources_ptsz(count, resources, h_stream) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuGraphicsUnmapResources(
    count: c_uint,
    resources: *mut GraphicsResource,
    h_stream: Stream,
) -> CuResult {
    let _pass = gate::enter_on(CallId::cuGraphicsUnmapResources, || {
        crate::captures::capturing(CallId::cuGraphicsUnmapResources, h_stream)
    });
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuGraphicsUnmapResources(count, resources, h_stream) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuGraphicsUnmapResources_ptsz(
    count: c_uint,
    resources: *mut GraphicsResource,
    h_stream: Stream,
) -> CuResult {
    let _pass = gate::enter_on(CallId::cuGraphicsUnmapResources_ptsz, || {
        crate::captures::capturing(CallId::cuGraphicsUnmapResources_ptsz, h_stream)
    });
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuGraphicsUnmapResources_ptsz(count, resources, h_stream) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemMapArrayAsync(
    map_info_list: *mut c_void,
    count: c_uint,
    h_stream: Stream,
) -> CuResult {
    let _pass = gate::enter_on(CallId::cuMemMapArrayAsync, || {
        crate::captures::capturing(CallId::cuMemMapArrayAsync, h_stream)
    });
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemMapArrayAsync(map_info_list, count, h_stream) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemMapArrayAsync_ptsz(
    map_info_list: *mut c_void,
    count: c_uint,
    h_stream: Stream,
) -> CuResult {
    let _pass = gate::enter_on(CallId::cuMemMapArrayAsync_ptsz, || {
        crate::captures::capturing(CallId::cuMemMapArrayAsync_ptsz, h_stream)
    });
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemMapArrayAsync_ptsz(map_info_list, count, h_stream) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuDestroyExternalMemory(ext_mem: ExternalMemory) -> CuResult {
    let _pass = gate::enter(CallId::cuDestroyExternalMemory);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuDestroyExternalMemory(ext_mem) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuImportExternalMemory(
    ext_mem_out: *mut ExternalMemory,
    mem_handle_desc: *const c_void,
) -> CuResult {
    let _pass = gate::enter(CallId::cuImportExternalMemory);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuImportExternalMemory(ext_mem_out, mem_handle_desc) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuIpcCloseMemHandle(dptr: DevicePtr) -> CuResult {
    let _pass = gate::enter(CallId::cuIpcCloseMemHandle);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuIpcCloseMemHandle(dptr) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuIpcGetMemHandle(p_handle: *mut IpcMemHandle, dptr: DevicePtr) -> CuResult {
    let _pass = gate::enter(CallId::cuIpcGetMemHandle);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuIpcGetMemHandle(p_handle, dptr) }
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
    unsafe { real::cuIpcOpenMemHandle(pdptr, handle, flags) }
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
    unsafe { real::cuIpcOpenMemHandle_v2(pdptr, handle, flags) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemAllocManaged(dptr: *mut DevicePtr, bytesize: usize, flags: c_uint) -> CuResult {
    let _pass = gate::enter(CallId::cuMemAllocManaged);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemAllocManaged(dptr, bytesize, flags) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemGetHandleForAddressRange(
    handle: *mut c_void,
    dptr: DevicePtr,
    size: usize,
    handle_type: c_uint,
    flags: u64,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemGetHandleForAddressRange);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemGetHandleForAddressRange(handle, dptr, size, handle_type, flags) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemPoolCreate(pool: *mut MemPool, pool_props: *const c_void) -> CuResult {
    let _pass = gate::enter(CallId::cuMemPoolCreate);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemPoolCreate(pool, pool_props) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemPoolDestroy(pool: MemPool) -> CuResult {
    let _pass = gate::enter(CallId::cuMemPoolDestroy);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemPoolDestroy(pool) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemPoolExportPointer(share_data_out: *mut c_void, ptr: DevicePtr) -> CuResult {
    let _pass = gate::enter(CallId::cuMemPoolExportPointer);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemPoolExportPointer(share_data_out, ptr) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemPoolExportToShareableHandle(
    handle_out: *mut c_void,
    pool: MemPool,
    handle_type: HandleType,
    flags: u64,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemPoolExportToShareableHandle);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemPoolExportToShareableHandle(handle_out, pool, handle_type, flags) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemPoolImportFromShareableHandle(
    pool_out: *mut MemPool,
    handle: *mut c_void,
    handle_type: HandleType,
    flags: u64,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemPoolImportFromShareableHandle);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemPoolImportFromShareableHandle(pool_out, handle, handle_type, flags) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemPoolImportPointer(
    ptr_out: *mut DevicePtr,
    pool: MemPool,
    share_data: *mut c_void,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemPoolImportPointer);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemPoolImportPointer(ptr_out, pool, share_data) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMulticastAddDevice(mc_handle: MemHandle, dev: Device) -> CuResult {
    let _pass = gate::enter(CallId::cuMulticastAddDevice);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMulticastAddDevice(mc_handle, dev) }
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
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMulticastBindAddr(mc_handle, mc_offset, memptr, size, flags) }
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
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMulticastBindAddr_v2(mc_handle, dev, mc_offset, memptr, size, flags) }
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
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMulticastBindMem(mc_handle, mc_offset, mem_handle, mem_offset, size, flags) }
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
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMulticastBindMem_v2(mc_handle, dev, mc_offset, mem_handle, mem_offset, size, flags) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMulticastCreate(
    mc_handle: *mut MemHandle,
    prop: *const MulticastObjectProp,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMulticastCreate);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMulticastCreate(mc_handle, prop) }
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
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMulticastUnbind(mc_handle, dev, mc_offset, size) }
}

/// Counts something that cannot be carried, with an example.
pub(crate) fn count(_kind: protocol::BlockerKind, _example: &str) {}

/// What is alive that cannot be carried.
pub(crate) fn blockers() -> Vec<protocol::Blocker> {
    Vec::new()
}
