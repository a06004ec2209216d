//! Legacy IPC of memory: 64 bytes that name an allocation of another process.
//!
//! The opener reaches the exporter's file through `/proc`; the handle names a share that says whether the allocation still is
//! there. A second open of one handle gives the same address and counts; the last close unmaps.
//!
//! Rows of DRIVER-FACTS: memory that the driver itself restored cannot be opened (800 NOT_PERMITTED); an open mapping makes the
//! restore of the opener fail. For memory of `cuMemCreate` there is no handle.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::c_uint;
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use cuda_sys::{CuError, CuResult, DevicePtr, IPC_HANDLE_SIZE, IpcMemHandle};

use super::native::Kind;
use super::physical::{Origin, Physical, Place};
use super::space::Area;
use crate::args;
use crate::context::current;
use crate::driver::{Driver, driver};
use crate::machine::shares::{self, Held};
use crate::trace::violation;

const MAGIC: u64 = u64::from_le_bytes(*b"fakeipc1");
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`
const LAZY_ENABLE_PEER_ACCESS: c_uint = 1;

/// The allocation of a share is gone.
const FREED: u32 = 1;
/// The driver restored it.
const RESTORED: u32 = 2;

type Words = [u64; IPC_HANDLE_SIZE / 8];

/// Whoever opens a handle from now on is told that its memory is gone.
pub(super) fn mark_freed(driver: &Driver, held: &Held) {
    if let Some(share) = driver.machine.share(held.number) {
        share.flags.fetch_or(FREED, Ordering::SeqCst);
    }
}

/// Whoever opens a handle from now on is told that its memory was restored.
pub(crate) fn mark_restored(driver: &Driver, held: &Held) {
    if let Some(share) = driver.machine.share(held.number) {
        share.flags.fetch_or(RESTORED, Ordering::SeqCst);
    }
}

fn to_bytes(words: &Words) -> IpcMemHandle {
    let mut reserved = [0; IPC_HANDLE_SIZE];
    for (bytes, word) in reserved.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    IpcMemHandle { reserved }
}

fn to_words(handle: &IpcMemHandle) -> Words {
    let mut words = [0; IPC_HANDLE_SIZE / 8];
    for (word, bytes) in words.iter_mut().zip(handle.reserved.chunks_exact(8)) {
        *word = bytes.try_into().map_or(0, u64::from_ne_bytes);
    }
    words
}

/// Any pointer into an allocation gives the handle of the allocation.
pub(crate) unsafe fn cuIpcGetMemHandle(p_handle: *mut IpcMemHandle, dptr: DevicePtr) -> CuResult {
    let driver = driver()?;
    current()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(p_handle) }?;
    let mut space = crate::write(&driver.memory.space);
    let Some((_, Area::Native(native))) = space.find_mut(args::size(dptr.0)) else {
        return Err(CuError::INVALID_VALUE);
    };
    if !matches!(native.kind, Kind::Malloc { .. }) {
        return Err(CuError::INVALID_VALUE);
    }
    if native.ipc.is_none() {
        let held = driver.machine.new_share(shares::Kind::LegacyMemory, None, 0)?;
        if native.memory.restored.load(Ordering::Acquire) {
            mark_restored(driver, &held);
        }
        native.ipc = Some(held);
    }
    let held = native.ipc.as_ref().ok_or(CuError::OPERATING_SYSTEM)?;
    let (pool, offset) = native.memory.backing(native.offset);
    let descriptor = u64::from(pool.file().as_raw_fd().unsigned_abs());
    place.write(to_bytes(&[
        MAGIC,
        args::wide(held.number) << 32 | u64::from(std::process::id()),
        held.id,
        descriptor,
        pool.identity().1,
        args::wide(offset),
        args::wide(native.size),
        args::wide(driver.physical(native.ordinal)?),
    ]));
    Ok(())
}

/// The allocation that a handle names, as the opener needs it.
#[derive(Clone, Copy, Debug)]
struct Named {
    share: usize,
    pid: u64,
    id: u64,
    descriptor: u64,
    inode: u64,
    offset: usize,
    size: usize,
    device: usize,
}

fn named(handle: &IpcMemHandle) -> CuResult<Named> {
    let [magic, share_and_pid, id, descriptor, inode, offset, size, device] = to_words(handle);
    if magic != MAGIC {
        return Err(CuError::INVALID_VALUE);
    }
    Ok(Named {
        share: args::size(share_and_pid >> 32),
        pid: share_and_pid & u64::from(u32::MAX),
        id,
        descriptor,
        inode,
        offset: args::size(offset),
        size: args::size(size),
        device: args::size(device),
    })
}

pub(crate) unsafe fn cuIpcOpenMemHandle_v2(
    pdptr: *mut DevicePtr,
    handle: IpcMemHandle,
    flags: c_uint,
) -> CuResult {
    let driver = driver()?;
    let context = current()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(pdptr) }?;
    if flags & !LAZY_ENABLE_PEER_ACCESS != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let named = named(&handle)?;
    if named.pid == u64::from(std::process::id()) {
        // A process cannot open its own handle.
        return Err(CuError::INVALID_CONTEXT);
    }
    let ordinal = driver.ordinal_of(named.device).ok_or(CuError::INVALID_DEVICE)?;
    let share = driver.machine.open_share(named.share, named.id).ok_or(CuError::INVALID_VALUE)?;
    let state = driver.machine.share(named.share).ok_or(CuError::INVALID_VALUE)?.flags.load(Ordering::SeqCst);
    if state & FREED != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    if state & RESTORED != 0 {
        return Err(CuError::NOT_PERMITTED);
    }
    let mut space = crate::write(&driver.memory.space);
    if let Some(at) = space.open_again(named.id) {
        place.write(DevicePtr(args::wide(at)));
        return Ok(());
    }
    drop(space);
    let path = format!("/proc/{}/fd/{}", named.pid, named.descriptor);
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(|_| CuError::INVALID_VALUE)?;
    let pool = driver.memory.peer_pool(OwnedFd::from(file))?;
    if pool.identity().1 != named.inode || !pool.contains(named.offset, named.size) {
        return Err(CuError::INVALID_VALUE);
    }
    let origin = Origin { share: named.share, id: named.id, offset: named.offset, size: named.size };
    let memory = Physical::borrow(driver, pool, origin, Place::Device(ordinal));
    let kind = Kind::Ipc { opened: 1, share };
    let at = driver.memory.place_whole(context, named.size, memory, 0, kind)?;
    space = crate::write(&driver.memory.space);
    space.set_ordinal(at, ordinal);
    place.write(DevicePtr(args::wide(at)));
    Ok(())
}

/// The form before CUDA 11, which did the same.
pub(crate) unsafe fn cuIpcOpenMemHandle(
    pdptr: *mut DevicePtr,
    handle: IpcMemHandle,
    flags: c_uint,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { cuIpcOpenMemHandle_v2(pdptr, handle, flags) }
}

pub(crate) unsafe fn cuIpcCloseMemHandle(dptr: DevicePtr) -> CuResult {
    let driver = driver()?;
    current()?;
    let at = args::size(dptr.0);
    let mut space = crate::write(&driver.memory.space);
    let Some((start, Area::Native(native))) = space.find_mut(at) else {
        violation(format_args!("cuIpcCloseMemHandle: {at:#x} was not opened"));
        return Err(CuError::INVALID_VALUE);
    };
    let Kind::Ipc { opened, .. } = &mut native.kind else {
        violation(format_args!("cuIpcCloseMemHandle: {at:#x} was not opened"));
        return Err(CuError::INVALID_VALUE);
    };
    if start != at {
        return Err(CuError::INVALID_VALUE);
    }
    *opened -= 1;
    if *opened > 0 {
        return Ok(());
    }
    let removed = space.remove_native(at, |_| true);
    drop(space);
    crate::work::note_pending(
        driver,
        "cuIpcCloseMemHandle",
        at,
        removed.as_ref().map_or(0, |native| native.size),
    );
    if let Some(native) = removed {
        driver.memory.give_back(at, *native);
    }
    Ok(())
}
