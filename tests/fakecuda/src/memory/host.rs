//! Page-locked memory of the host: allocated by the driver, or the program's own and registered. A device reaches it under
//! the same address.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::{c_uint, c_void};

use cuda_sys::{CuError, CuResult, DevicePtr};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::exhausted;
use super::space::Area;
use crate::args;
use crate::context::{Ctx, current};
use crate::driver::driver;
use crate::trace::violation;
use crate::work;
use crate::work::capture;

const PAGE: usize = 4096;
/// `CU_MEMHOSTREGISTER_READ_ONLY`
const READ_ONLY: c_uint = 8;

/// A range of page-locked memory.
#[derive(Debug)]
pub(crate) struct Locked {
    pub(crate) size: usize,
    pub(crate) flags: c_uint,
    pub(crate) registered: bool,
    pub(crate) context: &'static Ctx,
    pub(crate) id: u64,
}

impl Locked {
    pub(crate) fn is_read_only(&self) -> bool {
        self.registered && self.flags & READ_ONLY != 0
    }
}

/// Pages of zeros.
pub(super) fn map_pages(size: usize) -> rustix::io::Result<usize> {
    let size = size.checked_next_multiple_of(PAGE).ok_or(rustix::io::Errno::NOMEM)?;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let place = unsafe { mmap_anonymous(std::ptr::null_mut(), size, protection, flags) }?;
    Ok(place.expose_provenance())
}

/// Gives back what [`map_pages`] made.
pub(super) fn unmap_pages(at: usize, size: usize) {
    let place = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: the pages are ours, and no area leads to them any longer.
    let unmapped = unsafe { munmap(place, size.next_multiple_of(PAGE)) };
    debug_assert!(unmapped.is_ok());
}

pub(crate) unsafe fn cuMemHostAlloc(pp: *mut *mut c_void, bytesize: usize, flags: c_uint) -> CuResult {
    let driver = driver()?;
    let context = current()?;
    capture::unsafe_call(driver)?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(pp) }?;
    if bytesize == 0 || flags & !7 != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let at = map_pages(bytesize).map_err(exhausted)?;
    let id = driver.memory.new_id();
    let locked = Locked { size: bytesize, flags, registered: false, context, id };
    crate::write(&driver.memory.space).insert(at, Area::Locked(locked));
    place.write(std::ptr::with_exposed_provenance_mut(at));
    Ok(())
}

pub(crate) unsafe fn cuMemAllocHost_v2(pp: *mut *mut c_void, bytesize: usize) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { cuMemHostAlloc(pp, bytesize, 0) }
}

pub(crate) unsafe fn cuMemFreeHost(p: *mut c_void) -> CuResult {
    let driver = driver()?;
    let context = current()?;
    capture::unsafe_call(driver)?;
    let at = p.addr();
    let size = match crate::read(&driver.memory.space).at(at) {
        Some(Area::Locked(locked)) if !locked.registered => locked.size,
        _ => {
            violation(format_args!("cuMemFreeHost: nothing was allocated at {at:#x}"));
            return Err(CuError::INVALID_VALUE);
        }
    };
    work::wait_for_device(driver, context.ordinal());
    let removed = crate::write(&driver.memory.space).remove(at);
    if removed.is_some() {
        unmap_pages(at, size);
    }
    Ok(())
}

/// Whether every page of a range is mapped in this process.
fn is_mapped(at: usize, size: usize) -> bool {
    let start = at - at % PAGE;
    let length = (at + size - start).next_multiple_of(PAGE);
    let mut pages = vec![0_u8; length / PAGE];
    let place = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: `pages` has a byte for each page; a range that is not mapped gives an error.
    unsafe { libc::mincore(place, length, pages.as_mut_ptr()) == 0 }
}

pub(crate) unsafe fn cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, flags: c_uint) -> CuResult {
    let driver = driver()?;
    let context = current()?;
    capture::unsafe_call(driver)?;
    let at = p.addr();
    let Some(end) = at.checked_add(bytesize) else { return Err(CuError::INVALID_VALUE) };
    if at == 0 || bytesize == 0 || flags & !15 != 0 || !is_mapped(at, bytesize) {
        return Err(CuError::INVALID_VALUE);
    }
    let mut space = crate::write(&driver.memory.space);
    if space.overlaps(at, end) {
        return Err(CuError::HOST_MEMORY_ALREADY_REGISTERED);
    }
    let id = driver.memory.new_id();
    space.insert(at, Area::Locked(Locked { size: bytesize, flags, registered: true, context, id }));
    Ok(())
}

pub(crate) unsafe fn cuMemHostUnregister(p: *mut c_void) -> CuResult {
    let driver = driver()?;
    let context = current()?;
    let at = p.addr();
    if !matches!(crate::read(&driver.memory.space).at(at), Some(Area::Locked(locked)) if locked.registered) {
        return Err(CuError::HOST_MEMORY_NOT_REGISTERED);
    }
    work::wait_for_device(driver, context.ordinal());
    crate::write(&driver.memory.space).remove(at);
    Ok(())
}

pub(crate) unsafe fn cuMemHostGetDevicePointer_v2(
    pdptr: *mut DevicePtr,
    p: *mut c_void,
    flags: c_uint,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(pdptr) }?;
    if flags != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let space = crate::read(&driver.memory.space);
    match space.find(p.addr()) {
        Some((_, Area::Locked(_))) => place.write(DevicePtr(args::wide(p.addr()))),
        _ => return Err(CuError::INVALID_VALUE),
    };
    Ok(())
}

pub(crate) unsafe fn cuMemHostGetFlags(p_flags: *mut c_uint, p: *mut c_void) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(p_flags) }?;
    let space = crate::read(&driver.memory.space);
    match space.find(p.addr()) {
        Some((_, Area::Locked(locked))) => place.write(locked.flags),
        _ => return Err(CuError::INVALID_VALUE),
    };
    Ok(())
}
