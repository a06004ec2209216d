//! What other APIs and devices share with the driver: accepted, so that a program can hold some. Nothing is behind it, and nothing
//! of it was measured.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::IntoRawFd;

use cuda_sys::{CuError, CuResult, DevicePtr, ExternalMemory, GraphicsResource, Stream};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::args;
use crate::driver::driver;

/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`
const DMA_BUF: c_uint = 1;

/// A descriptor for memory that is there.
pub(crate) unsafe fn cuMemGetHandleForAddressRange(
    handle: *mut c_void,
    dptr: DevicePtr,
    size: usize,
    handle_type: c_uint,
    flags: u64,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise: for this type the place holds an `int`.
    let place = unsafe { args::out(handle.cast::<c_int>()) }?;
    let there = crate::read(&driver.memory.space).find(args::size(dptr.0)).is_some();
    if handle_type != DMA_BUF || size == 0 || flags != 0 || !there {
        return Err(CuError::INVALID_VALUE);
    }
    let file = memfd_create("fakecuda-dma-buf", MemfdFlags::CLOEXEC).map_err(super::exhausted)?;
    place.write(file.into_raw_fd());
    Ok(())
}

/// Sparse arrays are not there: any list is taken.
pub(crate) unsafe fn cuMemMapArrayAsync(list: *mut c_void, count: c_uint, _stream: Stream) -> CuResult {
    driver()?;
    if list.is_null() || count == 0 { Err(CuError::INVALID_VALUE) } else { Ok(()) }
}

/// The handle is a number that says nothing.
pub(crate) unsafe fn cuImportExternalMemory(
    out: *mut ExternalMemory,
    description: *const c_void,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(out) }?;
    if description.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    place.write(ExternalMemory(std::ptr::without_provenance_mut(args::size(driver.memory.new_id()))));
    Ok(())
}

pub(crate) unsafe fn cuDestroyExternalMemory(memory: ExternalMemory) -> CuResult {
    driver()?;
    if memory.0.is_null() { Err(CuError::INVALID_HANDLE) } else { Ok(()) }
}

fn resources(count: c_uint, resources: *mut GraphicsResource) -> CuResult {
    driver()?;
    if count == 0 || resources.is_null() { Err(CuError::INVALID_VALUE) } else { Ok(()) }
}

pub(crate) unsafe fn cuGraphicsMapResources(
    count: c_uint,
    list: *mut GraphicsResource,
    _stream: Stream,
) -> CuResult {
    resources(count, list)
}

pub(crate) unsafe fn cuGraphicsUnmapResources(
    count: c_uint,
    list: *mut GraphicsResource,
    _stream: Stream,
) -> CuResult {
    resources(count, list)
}
