//! Sharing memory by descriptor.
//!
//! As measured: an imported handle reads back without handle types and cannot be exported again; what is no descriptor of the
//! driver is UNKNOWN.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd};

use cuda_sys::{
    AllocFlags, AllocationProp, AllocationType, CuError, CuResult, HandleType, LocationType, MemHandle,
    MemLocation,
};

use super::{Object, named};
use crate::args;
use crate::driver::{Driver, driver};
use crate::memory::multicast;
use crate::memory::physical::{Origin, Physical, Place};
use crate::memory::token;

/// The descriptor names memory.
const MEMORY_TOKEN: u64 = u64::from_le_bytes(*b"fakemem1");

/// The descriptor keeps the memory alive, whatever happens to the handle. It is closed on exec.
pub(crate) unsafe fn cuMemExportToShareableHandle(
    shareable_handle: *mut c_void,
    handle: MemHandle,
    handle_type: HandleType,
    flags: u64,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise: for a descriptor the place holds an `int`.
    let result = unsafe { args::out(shareable_handle.cast::<c_int>()) }?;
    let (_, memory) = named(driver, handle, "cuMemExportToShareableHandle")?;
    let prop = memory.prop.ok_or(CuError::INVALID_VALUE)?;
    if flags != 0
        || ![HandleType::POSIX_FD, HandleType::FABRIC].contains(&handle_type)
        || prop.requested_handle_types.0 & handle_type.0 == 0
    {
        return Err(CuError::INVALID_VALUE);
    }
    if handle_type == HandleType::FABRIC {
        // Nobody imports it here: there is one node.
        // SAFETY: the caller's promise: for a fabric handle the place holds 64 bytes.
        unsafe { args::out(shareable_handle.cast::<[u8; 64]>()) }?.write([0x5a; 64]);
        return Ok(());
    }
    if memory.team.is_some() {
        result.write(multicast::export(driver, &memory)?.into_raw_fd());
        return Ok(());
    }
    let (on_device, place) = match memory.place {
        Place::Device(ordinal) => (1, args::wide(driver.physical(ordinal)?)),
        Place::Host(node) => (0, u64::from(node.unsigned_abs())),
    };
    let token = memory.share(driver, |origin, pool, held| {
        let flags = prop.alloc_flags;
        let words = [
            MEMORY_TOKEN,
            args::wide(origin.share),
            origin.id,
            args::wide(origin.offset),
            args::wide(origin.size),
            on_device,
            place,
            prop.location.kind.0.into(),
            u64::from(flags.compression_type) | u64::from(flags.gpu_direct_rdma_capable) << 8,
            flags.usage.into(),
            0,
            0,
        ];
        token::make(&words, &[pool.file().as_fd(), held.lock().as_fd()])
    })?;
    result.write(token.into_raw_fd());
    Ok(())
}

/// What the words of a descriptor say.
fn described(driver: &Driver, words: &token::Words) -> CuResult<(Origin, Place, AllocationProp)> {
    let &[_, share, id, offset, size, on_device, place, location, flags, usage, ..] = words;
    let origin = Origin { share: args::size(share), id, offset: args::size(offset), size: args::size(size) };
    let (place, location_id) = if on_device == 1 {
        let ordinal = driver.ordinal_of(args::size(place)).ok_or(CuError::INVALID_DEVICE)?;
        (Place::Device(ordinal), c_int::try_from(ordinal).unwrap_or(0))
    } else {
        let node = c_int::try_from(place).unwrap_or(0);
        (Place::Host(node), node)
    };
    let [compression_type, gpu_direct_rdma_capable, ..] = flags.to_le_bytes();
    let prop = AllocationProp {
        kind: AllocationType::PINNED,
        requested_handle_types: HandleType::NONE,
        location: MemLocation { kind: LocationType(u32::try_from(location).unwrap_or(0)), id: location_id },
        win32_handle_meta_data: std::ptr::null_mut(),
        alloc_flags: AllocFlags {
            compression_type,
            gpu_direct_rdma_capable,
            usage: u16::try_from(usage).unwrap_or(0),
            reserved: [0; 4],
        },
    };
    Ok((origin, place, prop))
}

/// The descriptor stays the caller's.
pub(crate) unsafe fn cuMemImportFromShareableHandle(
    handle: *mut MemHandle,
    os_handle: *mut c_void,
    sh_handle_type: HandleType,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let result = unsafe { args::out(handle) }?;
    match sh_handle_type.0 {
        1 if os_handle.is_null() => return Err(CuError::INVALID_VALUE),
        1 => {}
        2 | 4 => return Err(CuError::NOT_SUPPORTED),
        _ => return Err(CuError::INVALID_VALUE),
    }
    let number =
        c_int::try_from(os_handle.addr()).ok().filter(|&number| number >= 0).ok_or(CuError::UNKNOWN)?;
    // SAFETY: used for the length of this call; a number that is no open descriptor gives an error of the kernel.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    let Ok((words, [file, lock])) = token::read(descriptor, MEMORY_TOKEN) else {
        result.write(multicast::import(driver, descriptor).map_err(|_| CuError::UNKNOWN)?);
        return Ok(());
    };
    let (origin, place, prop) = described(driver, &words)?;
    let pool = driver.memory.peer_pool(file)?;
    if !pool.contains(origin.offset, origin.size) {
        return Err(CuError::INVALID_VALUE);
    }
    let held = driver.machine.join_share(origin.share, origin.id, lock).ok_or(CuError::INVALID_VALUE)?;
    let memory = Physical::import(driver, pool, origin, place, Some(prop), held);
    result.write(Object::create(driver, memory));
    Ok(())
}
