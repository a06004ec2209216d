//! Memory pools and stream-ordered allocation.
//!
//! An allocation can be used at once; its free takes effect when the stream gets there. A pool can be exported as a descriptor and
//! imported by another process, which then imports single pointers. A process that holds an imported pool cannot be
//! restored (docs/DRIVER-VERSIONS.md, what a process holds: 304).

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd};
use std::sync::Mutex;

use cuda_sys::{
    AllocationType, CuError, CuResult, Device, DevicePtr, HandleType, LocationType, MemLocation,
    MemPool as PoolHandle, Stream,
};

use super::native::Kind;
use super::physical::{Origin, Physical, Place};
use super::space::Area;
use super::token;
use crate::args;
use crate::config::MAX_DEVICES;
use crate::context::{Ctx, current};
use crate::device::calls::ordinal;
use crate::driver::{Driver, driver};
use crate::machine::shares::{self, Held};
use crate::slab::address_of;
use crate::trace::violation;
use crate::work::op::Op;
use crate::work::{self, stream};

/// The descriptor names a pool.
const POOL_TOKEN: u64 = u64::from_le_bytes(*b"fakepool");
/// The bytes name an allocation of a pool.
const POINTER: u64 = u64::from_le_bytes(*b"fakepptr");
/// Bytes of `CUmemPoolPtrExportData`.
const POINTER_BYTES: usize = 64;

/// `CUmemPoolProps`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Props {
    kind: AllocationType,
    handle_types: HandleType,
    location: MemLocation,
    win32: *mut c_void,
    max_size: usize,
    usage: u16,
    reserved: [u8; 54],
}

/// A pool of a device.
#[derive(Debug, Default)]
pub(crate) struct MemPool {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    ordinal: usize,
    exportable: bool,
    default: bool,
    imported: bool,
    /// What keeps the pool known to its importers.
    share: Option<Held>,
    release_threshold: u64,
}

/// The pools that devices use when none is named.
#[derive(Debug, Default)]
pub(crate) struct Defaults {
    default: [Mutex<Option<&'static MemPool>>; MAX_DEVICES],
    current: [Mutex<Option<&'static MemPool>>; MAX_DEVICES],
}

impl MemPool {
    fn handle(&'static self) -> PoolHandle {
        PoolHandle(std::ptr::with_exposed_provenance_mut(address_of(self)))
    }

    /// Whether another process made it.
    pub(crate) fn is_imported(&self) -> bool {
        crate::lock(&self.state).imported
    }
}

fn named(driver: &Driver, pool: PoolHandle) -> CuResult<&'static MemPool> {
    driver.memory.pools.get(pool.0.addr()).ok_or_else(|| {
        violation(format_args!("{pool:?} is not a pool"));
        CuError::INVALID_VALUE
    })
}

fn new_pool(driver: &Driver, state: State) -> &'static MemPool {
    driver.memory.pools.insert(|pool| *crate::lock(&pool.state) = state)
}

fn default_pool(driver: &Driver, ordinal: usize) -> CuResult<&'static MemPool> {
    let place = driver.memory.defaults.default.get(ordinal).ok_or(CuError::INVALID_DEVICE)?;
    let mut place = crate::lock(place);
    let make = || new_pool(driver, State { ordinal, default: true, ..State::default() });
    Ok(*place.get_or_insert_with(make))
}

fn current_pool(driver: &Driver, ordinal: usize) -> CuResult<&'static MemPool> {
    let place = driver.memory.defaults.current.get(ordinal).ok_or(CuError::INVALID_DEVICE)?;
    let current = *crate::lock(place);
    current.map_or_else(|| default_pool(driver, ordinal), Ok)
}

pub(crate) unsafe fn cuDeviceGetDefaultMemPool(pool_out: *mut PoolHandle, dev: Device) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(pool_out) }?;
    place.write(default_pool(driver, ordinal(driver, dev)?)?.handle());
    Ok(())
}

pub(crate) unsafe fn cuDeviceGetMemPool(pool: *mut PoolHandle, dev: Device) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(pool) }?;
    place.write(current_pool(driver, ordinal(driver, dev)?)?.handle());
    Ok(())
}

pub(crate) unsafe fn cuDeviceSetMemPool(dev: Device, pool: PoolHandle) -> CuResult {
    let driver = driver()?;
    let ordinal = ordinal(driver, dev)?;
    let pool = named(driver, pool)?;
    let place = driver.memory.defaults.current.get(ordinal).ok_or(CuError::INVALID_DEVICE)?;
    *crate::lock(place) = Some(pool);
    Ok(())
}

pub(crate) unsafe fn cuMemPoolCreate(pool: *mut PoolHandle, pool_props: *const c_void) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(pool) }?;
    // SAFETY: the caller's promise.
    let props = unsafe { args::read(pool_props.cast::<Props>()) }?;
    if props.kind != AllocationType::PINNED || props.location.kind != LocationType::DEVICE {
        return Err(CuError::INVALID_VALUE);
    }
    let ordinal = ordinal(driver, Device(props.location.id))?;
    let exportable = props.handle_types == HandleType::POSIX_FD;
    place.write(new_pool(driver, State { ordinal, exportable, ..State::default() }).handle());
    Ok(())
}

/// What was allocated from it stays until it is freed.
pub(crate) unsafe fn cuMemPoolDestroy(pool: PoolHandle) -> CuResult {
    let driver = driver()?;
    let pool = named(driver, pool)?;
    if crate::lock(&pool.state).default {
        return Err(CuError::INVALID_VALUE);
    }
    for place in &driver.memory.defaults.current {
        let mut place = crate::lock(place);
        if place.is_some_and(|current| std::ptr::eq(current, pool)) {
            *place = None;
        }
    }
    driver.memory.pools.remove(address_of(pool));
    let share = crate::lock(&pool.state).share.take();
    if let Some(held) = share {
        driver.machine.leave_share(held);
    }
    Ok(())
}

/// Pools keep nothing that is free.
pub(crate) unsafe fn cuMemPoolTrimTo(pool: PoolHandle, _min_bytes_to_keep: usize) -> CuResult {
    named(driver()?, pool).map(|_| ())
}

pub(crate) unsafe fn cuMemPoolSetAttribute(pool: PoolHandle, attr: c_uint, value: *mut c_void) -> CuResult {
    let pool = named(driver()?, pool)?;
    match attr {
        1..=3 => {}
        4 => {
            // SAFETY: the caller's promise: for this attribute the place holds 64 bits.
            crate::lock(&pool.state).release_threshold = unsafe { args::read(value.cast::<u64>()) }?;
        }
        6 | 8 => {}
        _ => return Err(CuError::INVALID_VALUE),
    }
    Ok(())
}

pub(crate) unsafe fn cuMemPoolGetAttribute(pool: PoolHandle, attr: c_uint, value: *mut c_void) -> CuResult {
    let driver = driver()?;
    let pool = named(driver, pool)?;
    if (1..=3).contains(&attr) {
        // SAFETY: the caller's promise: for these attributes the place holds an `int`.
        unsafe { args::out(value.cast::<c_int>()) }?.write(1);
        return Ok(());
    }
    let of_pool = |kind: &Kind| matches!(kind, Kind::Pool(of) if std::ptr::eq(*of, pool));
    let number = match attr {
        4 => crate::lock(&pool.state).release_threshold,
        5..=8 => {
            let space = crate::read(&driver.memory.space);
            let sizes = space
                .natives()
                .filter(|(_, native)| of_pool(&native.kind))
                .map(|(_, native)| native.memory.size);
            args::wide(sizes.sum())
        }
        _ => return Err(CuError::INVALID_VALUE),
    };
    // SAFETY: the caller's promise: for these attributes the place holds 64 bits.
    unsafe { args::out(value.cast::<u64>()) }?.write(number);
    Ok(())
}

fn allocate(
    driver: &'static Driver,
    context: &'static Ctx,
    pool: &'static MemPool,
    size: usize,
) -> CuResult<usize> {
    if size == 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let (exportable, imported) = {
        let state = crate::lock(&pool.state);
        (state.exportable, state.imported)
    };
    if imported {
        return Err(CuError::INVALID_VALUE);
    }
    driver.memory.allocate_whole(driver, context, size, exportable, Kind::Pool(pool))
}

pub(crate) unsafe fn cuMemAllocAsync(dptr: *mut DevicePtr, bytesize: usize, h_stream: Stream) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(dptr) }?;
    let stream = stream::named(h_stream)?;
    work::capture::not_capturing(stream)?;
    let context = stream.context();
    let pool = current_pool(driver, context.ordinal())?;
    place.write(DevicePtr(args::wide(allocate(driver, context, pool, bytesize)?)));
    Ok(())
}

pub(crate) unsafe fn cuMemAllocFromPoolAsync(
    dptr: *mut DevicePtr,
    bytesize: usize,
    pool: PoolHandle,
    h_stream: Stream,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(dptr) }?;
    let stream = stream::named(h_stream)?;
    work::capture::not_capturing(stream)?;
    let pool = named(driver, pool)?;
    place.write(DevicePtr(args::wide(allocate(driver, stream.context(), pool, bytesize)?)));
    Ok(())
}

pub(crate) unsafe fn cuMemFreeAsync(dptr: DevicePtr, h_stream: Stream) -> CuResult {
    let driver = driver()?;
    let stream = stream::named(h_stream)?;
    work::capture::not_capturing(stream)?;
    let at = args::size(dptr.0);
    match crate::read(&driver.memory.space).at(at) {
        Some(Area::Native(native)) if !matches!(native.kind, Kind::Ipc { .. }) => {}
        _ => {
            violation(format_args!("cuMemFreeAsync: nothing was allocated at {at:#x}"));
            return Err(CuError::INVALID_VALUE);
        }
    }
    stream.submit(Op::Free(at), Vec::new()).map(|_| ())
}

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
