//! What other APIs and devices share with us: graphics resources, external memory and semaphores, descriptors of address
//! ranges. They pin the physical pages, so that mapping new memory at the old address repairs nothing.

use core::ffi::{c_uint, c_void};
use core::slice;

use cuda_sys::{CuResult, DevicePtr, ExternalMemory, ExternalSemaphore, GraphicsResource, Stream};
use protocol::BlockerKind;
use shim_core::blockers::Entry;
use shim_core::calls::CallId;
use shim_core::gate;

use super::memory::allocation_of;
use super::{address, owner, settle, table};
use crate::captures;
use crate::driver::real;

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuGraphicsMapResources(
    count: c_uint,
    resources: *mut GraphicsResource,
    h_stream: Stream,
) -> CuResult {
    let call = CallId::cuGraphicsMapResources;
    let _pass = gate::enter_on(call, || captures::capturing(call, h_stream));
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuGraphicsMapResources(count, resources, h_stream) }?;
    // SAFETY: it succeeded, so the driver has read as many.
    unsafe { graphics_mapped(count, resources) };
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuGraphicsMapResources_ptsz(
    count: c_uint,
    resources: *mut GraphicsResource,
    h_stream: Stream,
) -> CuResult {
    let call = CallId::cuGraphicsMapResources_ptsz;
    let _pass = gate::enter_on(call, || captures::capturing(call, h_stream));
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuGraphicsMapResources_ptsz(count, resources, h_stream) }?;
    // SAFETY: it succeeded, so the driver has read as many.
    unsafe { graphics_mapped(count, resources) };
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuGraphicsUnmapResources(
    count: c_uint,
    resources: *mut GraphicsResource,
    h_stream: Stream,
) -> CuResult {
    let call = CallId::cuGraphicsUnmapResources;
    let _pass = gate::enter_on(call, || captures::capturing(call, h_stream));
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuGraphicsUnmapResources(count, resources, h_stream) }?;
    // SAFETY: it succeeded, so the driver has read as many.
    unsafe { graphics_unmapped(count, resources) };
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuGraphicsUnmapResources_ptsz(
    count: c_uint,
    resources: *mut GraphicsResource,
    h_stream: Stream,
) -> CuResult {
    let call = CallId::cuGraphicsUnmapResources_ptsz;
    let _pass = gate::enter_on(call, || captures::capturing(call, h_stream));
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuGraphicsUnmapResources_ptsz(count, resources, h_stream) }?;
    // SAFETY: it succeeded, so the driver has read as many.
    unsafe { graphics_unmapped(count, resources) };
    Ok(())
}

/// # Safety
/// As many resources are there.
unsafe fn graphics_mapped(count: c_uint, resources: *const GraphicsResource) {
    // SAFETY: as the caller says.
    for resource in unsafe { list(count, resources) } {
        table().set(BlockerKind::Graphics, address(resource.0), Entry::of(0, owner()));
    }
}

/// A resource stays where it is while it is unmapped, and nobody else can take its name: it may go out afterwards.
///
/// # Safety
/// As many resources are there.
unsafe fn graphics_unmapped(count: c_uint, resources: *const GraphicsResource) {
    // SAFETY: as the caller says.
    for resource in unsafe { list(count, resources) } {
        super::gone(table().take(BlockerKind::Graphics, address(resource.0)));
    }
}

/// # Safety
/// As many items are there, unless the pointer is null.
unsafe fn list<'a, T>(count: c_uint, items: *const T) -> &'a [T] {
    match usize::try_from(count) {
        // SAFETY: not null, and as many as the caller says.
        Ok(count) if !items.is_null() => unsafe { slice::from_raw_parts(items, count) },
        _ => &[],
    }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuImportExternalMemory(
    ext_mem_out: *mut ExternalMemory,
    mem_handle_desc: *const c_void,
) -> CuResult {
    let _pass = gate::enter(CallId::cuImportExternalMemory);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuImportExternalMemory(ext_mem_out, mem_handle_desc) }?;
    // SAFETY: it succeeded, so the driver has written there.
    external("external memory", unsafe { ext_mem_out.read() }.0);
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuDestroyExternalMemory(ext_mem: ExternalMemory) -> CuResult {
    let _pass = gate::enter(CallId::cuDestroyExternalMemory);
    let taken = table().take(BlockerKind::ExternalMemory, address(ext_mem.0));
    // SAFETY: the caller's arguments, unchanged.
    settle(taken, unsafe { real::cuDestroyExternalMemory(ext_mem) })
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuImportExternalSemaphore(
    ext_sem_out: *mut ExternalSemaphore,
    sem_handle_desc: *const c_void,
) -> CuResult {
    let _pass = gate::enter(CallId::cuImportExternalSemaphore);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuImportExternalSemaphore(ext_sem_out, sem_handle_desc) }?;
    // SAFETY: it succeeded, so the driver has written there.
    external("external semaphore", unsafe { ext_sem_out.read() }.0);
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuDestroyExternalSemaphore(ext_sem: ExternalSemaphore) -> CuResult {
    let _pass = gate::enter(CallId::cuDestroyExternalSemaphore);
    let taken = table().take(BlockerKind::ExternalMemory, address(ext_sem.0));
    // SAFETY: the caller's arguments, unchanged.
    settle(taken, unsafe { real::cuDestroyExternalSemaphore(ext_sem) })
}

fn external(what: &str, object: *const c_void) {
    let entry = Entry { count: 1, bytes: 0, owner: owner(), name: format!("{what} {object:p}") };
    table().set(BlockerKind::ExternalMemory, address(object), entry);
}

/// A descriptor of an address range, for NICs. It counts as long as the memory does: whoever has registered it keeps
/// the pages, whether or not the descriptor is still open.
///
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
    unsafe { real::cuMemGetHandleForAddressRange(handle, dptr, size, handle_type, flags) }?;
    let (base, bytes) = allocation_of(dptr);
    let name = format!("descriptor of memory at {base:#x}");
    table().set(BlockerKind::RawHandle, base, Entry { count: 1, bytes, owner: owner(), name });
    Ok(())
}
