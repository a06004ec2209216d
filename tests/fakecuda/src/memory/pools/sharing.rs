//! Pools that processes share. A pool can be exported as a descriptor and imported by another process, which then imports single
//! pointers. A process that holds an imported pool cannot be restored (docs/DRIVER-VERSIONS.md, what a process holds: 304).

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd};

use cuda_sys::{CuError, CuResult, DevicePtr, HandleType, MemPool as PoolHandle};

use super::{State, named, new_pool};
use crate::args;
use crate::context::current;
use crate::driver::driver;
use crate::machine::shares;
use crate::memory::native::Kind;
use crate::memory::physical::{Origin, Physical, Place};
use crate::memory::space::Area;
use crate::memory::token;

/// The descriptor names a pool.
const POOL_TOKEN: u64 = u64::from_le_bytes(*b"fakepool");
/// The bytes name an allocation of a pool.
const POINTER: u64 = u64::from_le_bytes(*b"fakepptr");
/// Bytes of `CUmemPoolPtrExportData`.
const POINTER_BYTES: usize = 64;

pub(crate) unsafe fn cuMemPoolExportToShareableHandle(
    handle_out: *mut c_void,
    pool: PoolHandle,
    handle_type: HandleType,
    flags: u64,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise: for a descriptor the place holds an `int`.
    let place = unsafe { args::out(handle_out.cast::<c_int>()) }?;
    let pool = named(driver, pool)?;
    let mut state = crate::lock(&pool.state);
    if flags != 0 || handle_type != HandleType::POSIX_FD || !state.exportable {
        return Err(CuError::INVALID_VALUE);
    }
    if state.share.is_none() {
        state.share = Some(driver.machine.new_share(shares::Kind::Pool, None, 0)?);
    }
    let held = state.share.as_ref().ok_or(CuError::OPERATING_SYSTEM)?;
    let mut words = [0; token::WORDS];
    let device = args::wide(driver.physical(state.ordinal)?);
    for (word, value) in words.iter_mut().zip([POOL_TOKEN, args::wide(held.number), held.id, device]) {
        *word = value;
    }
    let file = driver.memory.own_pool(true).file();
    place.write(token::make(&words, &[file.as_fd(), held.lock().as_fd()])?.into_raw_fd());
    Ok(())
}

pub(crate) unsafe fn cuMemPoolImportFromShareableHandle(
    pool_out: *mut PoolHandle,
    handle: *mut c_void,
    handle_type: HandleType,
    flags: u64,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(pool_out) }?;
    let number = c_int::try_from(handle.addr()).map_err(|_| CuError::INVALID_VALUE)?;
    if flags != 0 || handle_type != HandleType::POSIX_FD || number < 0 {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: used for the length of this call; a number that is no open descriptor gives an error of the kernel.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    let ([_, share, id, device, ..], [_file, lock]) = token::read(descriptor, POOL_TOKEN)?;
    let ordinal = driver.ordinal_of(args::size(device)).ok_or(CuError::INVALID_DEVICE)?;
    let held = driver.machine.join_share(args::size(share), id, lock).ok_or(CuError::INVALID_VALUE)?;
    let state = State { ordinal, imported: true, share: Some(held), ..State::default() };
    place.write(new_pool(driver, state).handle());
    Ok(())
}

/// The bytes name the memory by where its process keeps a descriptor of its file.
pub(crate) unsafe fn cuMemPoolExportPointer(share_data_out: *mut c_void, ptr: DevicePtr) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(share_data_out.cast::<[u64; POINTER_BYTES / 8]>()) }?;
    let at = args::size(ptr.0);
    let space = crate::read(&driver.memory.space);
    let Some(Area::Native(native)) = space.at(at) else { return Err(CuError::INVALID_VALUE) };
    let Kind::Pool(pool) = native.kind else { return Err(CuError::INVALID_VALUE) };
    if !crate::lock(&pool.state).exportable {
        return Err(CuError::INVALID_VALUE);
    }
    let words = native.memory.share(driver, |origin, pool, _| {
        let descriptor = u64::from(std::os::fd::AsRawFd::as_raw_fd(pool.file()).unsigned_abs());
        Ok([
            POINTER,
            std::process::id().into(),
            descriptor,
            args::wide(origin.share),
            origin.id,
            args::wide(origin.offset),
            args::wide(native.size),
            args::wide(driver.physical(native.ordinal)?),
        ])
    })?;
    place.write(words);
    Ok(())
}

pub(crate) unsafe fn cuMemPoolImportPointer(
    ptr_out: *mut DevicePtr,
    pool: PoolHandle,
    share_data: *mut c_void,
) -> CuResult {
    let driver = driver()?;
    let context = current()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(ptr_out) }?;
    let pool = named(driver, pool)?;
    // SAFETY: the caller's promise.
    let words = unsafe { args::read(share_data.cast::<[u64; POINTER_BYTES / 8]>()) }?;
    let [kind, pid, descriptor, share, id, offset, size, device] = words;
    if kind != POINTER || !pool.is_imported() {
        return Err(CuError::INVALID_VALUE);
    }
    let ordinal = driver.ordinal_of(args::size(device)).ok_or(CuError::INVALID_DEVICE)?;
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/proc/{pid}/fd/{descriptor}"))
        .map_err(|_| CuError::INVALID_VALUE)?;
    let file = driver.memory.peer_pool(file.into())?;
    let (offset, size) = (args::size(offset), args::size(size));
    if !file.contains(offset, size) {
        return Err(CuError::INVALID_VALUE);
    }
    let held = driver.machine.open_share(args::size(share), id).ok_or(CuError::INVALID_VALUE)?;
    let origin = Origin { share: held.number, id, offset, size };
    let memory = Physical::import(driver, file, origin, Place::Device(ordinal), None, held);
    let at = driver.memory.place_whole(context, size, memory, 0, Kind::PoolImport(pool))?;
    place.write(DevicePtr(args::wide(at)));
    Ok(())
}
