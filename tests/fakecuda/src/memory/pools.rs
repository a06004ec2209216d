//! Memory pools and stream-ordered allocation.
//!
//! An allocation can be used at once; its free takes effect when the stream gets there.

#![allow(non_snake_case, reason = "the driver's own names")]

pub(crate) mod sharing;

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Mutex;

use cuda_sys::{
    AllocationType, CuError, CuResult, Device, DevicePtr, HandleType, LocationType, MemLocation,
    MemPool as PoolHandle, Stream,
};

use super::native::Kind;
use super::physical::{Physical, Place};
use super::space::Area;
use super::{GRANULE, managed};
use crate::args;
use crate::config::MAX_DEVICES;
use crate::context::Ctx;
use crate::device::calls::ordinal;
use crate::driver::{Driver, driver};
use crate::machine::shares::Held;
use crate::slab::address_of;
use crate::trace::violation;
use crate::work::op::Op;
use crate::work::{self, stream};

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

/// Where what is allocated from a pool lies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
enum Ground {
    #[default]
    Device,
    /// Nothing is measured of these two; what is allocated from them is what other calls make there.
    Host,
    Managed,
}

#[derive(Debug, Default)]
struct State {
    ground: Ground,
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
    /// Those that are not on a device, by where they are.
    elsewhere: Mutex<BTreeMap<(Ground, u32, c_int), &'static MemPool>>,
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

/// Where a pool of this kind is at a location. One that is managed need not have one.
fn ground(driver: &Driver, location: MemLocation, kind: AllocationType) -> CuResult<(Ground, usize)> {
    let host = matches!(location.kind, LocationType::HOST | LocationType::HOST_NUMA);
    match (kind, location.kind) {
        (AllocationType::PINNED, LocationType::DEVICE) => {
            Ok((Ground::Device, ordinal(driver, Device(location.id))?))
        }
        (AllocationType::PINNED, _) if host => Ok((Ground::Host, 0)),
        (AllocationType::MANAGED, LocationType(0) | LocationType::DEVICE) => Ok((Ground::Managed, 0)),
        (AllocationType::MANAGED, _) if host => Ok((Ground::Managed, 0)),
        _ => Err(CuError::INVALID_VALUE),
    }
}

/// The default pool of a location, or what was set in its place.
unsafe fn pool_at(
    pool: *mut PoolHandle,
    location: *mut MemLocation,
    kind: c_uint,
    of_device: fn(&Driver, usize) -> CuResult<&'static MemPool>,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(pool) }?;
    // SAFETY: the caller's promise.
    let location = unsafe { args::read(location) }?;
    let (ground, ordinal) = ground(driver, location, AllocationType(kind))?;
    let found = if ground == Ground::Device {
        of_device(driver, ordinal)?
    } else {
        let mut elsewhere = crate::lock(&driver.memory.defaults.elsewhere);
        let make = || new_pool(driver, State { ground, default: true, ..State::default() });
        *elsewhere.entry((ground, location.kind.0, location.id)).or_insert_with(make)
    };
    place.write(found.handle());
    Ok(())
}

pub(crate) unsafe fn cuMemGetDefaultMemPool(
    pool_out: *mut PoolHandle,
    location: *mut MemLocation,
    kind: c_uint,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { pool_at(pool_out, location, kind, default_pool) }
}

pub(crate) unsafe fn cuMemGetMemPool(
    pool: *mut PoolHandle,
    location: *mut MemLocation,
    kind: c_uint,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { pool_at(pool, location, kind, current_pool) }
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
    let (ground, ordinal) = ground(driver, props.location, props.kind)?;
    let exportable = props.handle_types == HandleType::POSIX_FD;
    place.write(new_pool(driver, State { ground, ordinal, exportable, ..State::default() }).handle());
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
    let (ground, exportable, imported) = {
        let state = crate::lock(&pool.state);
        (state.ground, state.exportable, state.imported)
    };
    if imported {
        return Err(CuError::INVALID_VALUE);
    }
    match ground {
        Ground::Device => driver.memory.allocate_whole(driver, context, size, exportable, Kind::Pool(pool)),
        Ground::Host => {
            let rounded = size.checked_next_multiple_of(GRANULE).ok_or(CuError::OUT_OF_MEMORY)?;
            let memory = Physical::create(driver, rounded, Place::Host(0), None, exportable)?;
            driver.memory.place_whole(context, size, memory, 0, Kind::Pool(pool))
        }
        Ground::Managed => managed::allocate(driver, context, size),
    }
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
