//! Legacy IPC of memory: 64 bytes that name an allocation of another process.
//!
//! The memory is shared as an exported descriptor shares it: an opener keeps it, also when its exporter has freed it or is gone (as
//! measured). The opener reaches the exporter's file through `/proc`. A second open of one handle gives the same address
//! and counts; the last close unmaps.
//!
//! docs/DRIVER-VERSIONS.md, `locking`: memory that the driver itself restored cannot be opened (800 NOT_PERMITTED);
//! an open mapping makes the restore of the opener fail. For memory of `cuMemCreate`, of pools, and opened memory
//! there is no handle.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::c_uint;
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cuda_sys::{CuError, CuResult, DevicePtr, IPC_HANDLE_SIZE, IpcMemHandle};

use super::native::Kind;
use super::physical::{Origin, Physical, Place};
use super::pool::Pool;
use super::space::Area;
use crate::args;
use crate::context::current;
use crate::driver::{Driver, driver};
use crate::machine::shares::{self, Held};
use crate::trace::violation;

const MAGIC: u64 = u64::from_le_bytes(*b"fakeipc1");
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`
const LAZY_ENABLE_PEER_ACCESS: c_uint = 1;

/// Flag of a share: the driver restored the allocation.
const RESTORED: u32 = 1;

type Words = [u64; IPC_HANDLE_SIZE / 8];

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
    let mark = native.ipc.as_ref().ok_or(CuError::OPERATING_SYSTEM)?;
    let (mark, mark_id) = (args::wide(mark.number), mark.id);
    let device = args::wide(driver.physical(native.ordinal)?);
    let words = native.memory.share(driver, |origin, pool, _| {
        let descriptor = u64::from(pool.file().as_raw_fd().unsigned_abs());
        Ok([
            MAGIC,
            mark << 32 | u64::from(std::process::id()),
            mark_id,
            args::wide(origin.share) << 32 | descriptor,
            origin.id,
            args::wide(origin.offset + native.offset),
            args::wide(native.size),
            pool.identity().1 << 8 | device,
        ])
    })?;
    place.write(to_bytes(&words));
    Ok(())
}

/// The allocation that a handle names, as the opener needs it.
#[derive(Clone, Copy, Debug)]
struct Named {
    mark: usize,
    mark_id: u64,
    pid: u64,
    descriptor: u64,
    inode: u64,
    device: usize,
    origin: Origin,
}

const LOW: u64 = u32::MAX as u64;

fn named(handle: &IpcMemHandle) -> CuResult<Named> {
    let [magic, mark_and_pid, mark_id, share_and_descriptor, id, offset, size, inode_and_device] =
        to_words(handle);
    if magic != MAGIC {
        return Err(CuError::INVALID_VALUE);
    }
    Ok(Named {
        mark: args::size(mark_and_pid >> 32),
        mark_id,
        pid: mark_and_pid & LOW,
        descriptor: share_and_descriptor & LOW,
        inode: inode_and_device >> 8,
        device: args::size(inode_and_device & 0xff),
        origin: Origin {
            share: args::size(share_and_descriptor >> 32),
            id,
            offset: args::size(offset),
            size: args::size(size),
        },
    })
}

/// The file with the memory: from its exporter, or from an earlier open where that is gone.
fn pool(driver: &Driver, named: &Named) -> CuResult<Arc<Pool>> {
    let path = format!("/proc/{}/fd/{}", named.pid, named.descriptor);
    let found = OpenOptions::new().read(true).write(true).open(path).ok();
    let found = found.and_then(|file| driver.memory.peer_pool(OwnedFd::from(file)).ok());
    found
        .filter(|pool| pool.identity().1 == named.inode)
        .or_else(|| driver.memory.known_peer(named.inode))
        .filter(|pool| pool.contains(named.origin.offset, named.origin.size))
        .ok_or(CuError::INVALID_VALUE)
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
    if flags != LAZY_ENABLE_PEER_ACCESS {
        return Err(CuError::INVALID_VALUE);
    }
    let named = named(&handle)?;
    if named.pid == u64::from(std::process::id()) {
        // A process cannot open its own handle.
        return Err(CuError::INVALID_CONTEXT);
    }
    let ordinal = driver.ordinal_of(named.device).ok_or(CuError::INVALID_DEVICE)?;
    if driver.machine.is_held(named.mark, named.mark_id) {
        let mark = driver.machine.share(named.mark).ok_or(CuError::INVALID_VALUE)?;
        if mark.flags.load(Ordering::SeqCst) & RESTORED != 0 {
            return Err(CuError::NOT_PERMITTED);
        }
    }
    if let Some(at) = crate::write(&driver.memory.space).open_again(named.origin.id, named.origin.offset) {
        place.write(DevicePtr(args::wide(at)));
        return Ok(());
    }
    let held =
        driver.machine.open_share(named.origin.share, named.origin.id).ok_or(CuError::INVALID_VALUE)?;
    let pool = pool(driver, &named)?;
    let memory = Physical::import(driver, pool, named.origin, Place::Device(ordinal), None, held);
    let kind = Kind::Ipc { opened: 1, id: named.origin.id };
    let at = driver.memory.place_whole(context, named.origin.size, memory, 0, kind)?;
    crate::write(&driver.memory.space).set_ordinal(at, ordinal);
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
