//! What a pointer is: attributes and ranges.
//!
//! What tells memory of `cuMemAlloc` from that of `cuMemCreate` (docs/DRIVER-VERSIONS.md, `malloc`) is here:
//! IS_LEGACY_CUDA_IPC_CAPABLE is 1 for native memory and 0 for VMM, ALLOWED_HANDLE_TYPES is 0 for native, SYNC_MEMOPS
//! can be set for native and is 801 for VMM, ranges are the requested size for native memory.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::{c_int, c_uint, c_void};

use cuda_sys::{CuError, CuResult, DevicePtr};

use super::native::{Kind, Native};
use super::physical::Place;
use super::space::{Area, Mapping, Space};
use crate::args;
use crate::context::{Ctx, current_unchecked};
use crate::driver::driver;
use crate::slab::address_of;

const HOST_MEMORY: u64 = 1;
const DEVICE_MEMORY: u64 = 2;
const SYNC_MEMOPS: c_uint = 6;

/// A value of an attribute, by its width.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Value {
    /// Four bytes: a number, or a boolean (as measured).
    Int(u64),
    /// Eight bytes.
    Long(u64),
}

impl Value {
    /// # Safety
    /// `place` is null or writable for a value of this width.
    unsafe fn write(self, place: *mut c_void) -> CuResult {
        match self {
            Self::Int(value) => {
                let value = u32::try_from(value).unwrap_or(u32::MAX);
                // SAFETY: the caller's promise.
                unsafe { args::out(place.cast::<u32>()) }?.write(value);
            }
            Self::Long(value) => {
                // SAFETY: the caller's promise.
                unsafe { args::out(place.cast::<u64>()) }?.write(value);
            }
        }
        Ok(())
    }
}

/// A pointer as the attributes see it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    context: Option<&'static Ctx>,
    /// The ordinal, or -2 for memory of the host.
    ordinal: c_int,
    on_device: bool,
    /// Whether the host may follow the pointer.
    host_pointer: bool,
    managed: bool,
    /// Made by `cuMemAlloc` of this process.
    native: bool,
    start: usize,
    size: usize,
    mapping_start: usize,
    mapping_size: usize,
    handle_types: u32,
    rdma: bool,
    pool: usize,
    id: u64,
    block: u64,
    sync_memops: bool,
    read: u32,
    write: u32,
}

fn of_native(at: usize, native: &Native) -> Seen {
    let small = matches!(native.kind, Kind::Malloc { small: true });
    let pool = match native.kind {
        Kind::Pool(pool) | Kind::PoolImport(pool) => address_of(pool),
        _ => 0,
    };
    Seen {
        context: Some(native.context),
        ordinal: c_int::try_from(native.ordinal).unwrap_or(0),
        on_device: true,
        host_pointer: false,
        managed: false,
        native: matches!(native.kind, Kind::Malloc { .. }),
        start: at,
        size: native.size,
        mapping_start: at - if small { native.offset } else { 0 },
        mapping_size: native.memory.size,
        handle_types: 0,
        rdma: true,
        pool,
        id: native.id,
        block: native.memory.id,
        sync_memops: native.sync_memops,
        read: u32::MAX,
        write: u32::MAX,
    }
}

fn of_mapping(start: usize, mapping: &Mapping) -> Seen {
    let (ordinal, on_device) = match mapping.memory.place {
        Place::Device(ordinal) => (c_int::try_from(ordinal).unwrap_or(0), true),
        Place::Host(_) => (-2, false),
    };
    let prop = mapping.memory.prop;
    Seen {
        context: None,
        ordinal,
        on_device,
        host_pointer: !on_device,
        managed: false,
        native: false,
        start,
        size: mapping.size,
        mapping_start: start,
        mapping_size: mapping.size,
        handle_types: prop.map_or(0, |prop| prop.requested_handle_types.0),
        rdma: prop.is_some_and(|prop| prop.alloc_flags.gpu_direct_rdma_capable != 0),
        pool: 0,
        id: mapping.id,
        block: mapping.memory.id,
        sync_memops: false,
        read: mapping.access.read,
        write: mapping.access.write,
    }
}

fn of_host(start: usize, size: usize, context: &'static Ctx, id: u64, managed: bool) -> Seen {
    Seen {
        context: Some(context),
        ordinal: if managed { c_int::try_from(context.ordinal()).unwrap_or(0) } else { -2 },
        on_device: managed,
        host_pointer: true,
        managed,
        native: false,
        start,
        size,
        mapping_start: start,
        mapping_size: size,
        handle_types: 0,
        rdma: false,
        pool: 0,
        id,
        block: id,
        sync_memops: false,
        read: u32::MAX,
        write: u32::MAX,
    }
}

fn look(space: &Space, address: usize) -> Option<Seen> {
    match space.find(address)? {
        (start, Area::Native(native)) => Some(of_native(start, native)),
        (start, Area::Locked(locked)) => Some(of_host(start, locked.size, locked.context, locked.id, false)),
        (start, Area::Managed { size, context, id }) => Some(of_host(start, *size, context, *id, true)),
        (_, Area::Reserved { .. }) => {
            let (start, mapping) = space.mapping(address)?;
            Some(of_mapping(start, mapping))
        }
    }
}

impl Seen {
    fn value(&self, attribute: c_uint, address: usize) -> CuResult<Value> {
        let number = |value: usize| Value::Long(args::wide(value));
        let access = |seen: &Self| -> CuResult<u64> {
            let bit = 1 << current_unchecked()?.ordinal();
            Ok(u64::from(seen.read & bit != 0) | u64::from(seen.write & bit != 0) << 1)
        };
        Ok(match attribute {
            1 => number(self.context.map_or(0, |context| context.handle().0.addr())),
            2 => Value::Int(if self.on_device { DEVICE_MEMORY } else { HOST_MEMORY }),
            3 => number(address),
            4 if self.host_pointer => number(address),
            6 => Value::Int(self.sync_memops.into()),
            7 => Value::Long(self.id),
            8 => Value::Int(self.managed.into()),
            9 => Value::Int(u64::from(self.ordinal.cast_unsigned())),
            10 => Value::Int(self.native.into()),
            11 => number(self.start),
            12 => number(self.size),
            13 => Value::Int(1),
            14 => Value::Long(self.handle_types.into()),
            15 => Value::Int(self.rdma.into()),
            16 => Value::Int(access(self)?),
            17 => number(self.pool),
            18 => number(self.mapping_size),
            19 => number(self.mapping_start),
            20 => Value::Long(self.block),
            21 => Value::Int(self.native.into()),
            _ => return Err(CuError::INVALID_VALUE),
        })
    }
}

/// What `cuPointerGetAttributes` gives for a pointer that the driver does not know, or for an attribute that does not apply.
fn nothing(attribute: c_uint) -> CuResult<Value> {
    Ok(match attribute {
        1 | 3 | 4 | 7 | 11 | 12 | 14 | 17 | 18 | 19 | 20 => Value::Long(0),
        2 | 16 => Value::Int(0),
        9 => Value::Int(u64::from((-2_i32).cast_unsigned())),
        6 | 8 | 10 | 13 | 15 | 21 => Value::Int(0),
        _ => return Err(CuError::INVALID_VALUE),
    })
}

pub(crate) unsafe fn cuPointerGetAttribute(data: *mut c_void, attribute: c_uint, ptr: DevicePtr) -> CuResult {
    let driver = driver()?;
    let address = args::size(ptr.0);
    let space = crate::read(&driver.memory.space);
    let value = match look(&space, address) {
        Some(seen) => seen.value(attribute, address)?,
        None => return Err(CuError::INVALID_VALUE),
    };
    // SAFETY: the caller's promise.
    unsafe { value.write(data) }
}

/// Succeeds for every pointer: what does not apply is zero.
pub(crate) unsafe fn cuPointerGetAttributes(
    num_attributes: c_uint,
    attributes: *mut c_uint,
    data: *mut *mut c_void,
    ptr: DevicePtr,
) -> CuResult {
    let driver = driver()?;
    let count = usize::try_from(num_attributes).unwrap_or(0);
    // SAFETY: the caller's promise.
    let attributes = unsafe { args::list(attributes, count) }?;
    // SAFETY: the caller's promise.
    let places = unsafe { args::list(data, count) }?;
    if count == 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let address = args::size(ptr.0);
    let space = crate::read(&driver.memory.space);
    let seen = look(&space, address);
    for (&attribute, &place) in attributes.iter().zip(places) {
        let value = match seen.map(|seen| seen.value(attribute, address)) {
            Some(Ok(value)) => value,
            _ => nothing(attribute)?,
        };
        // SAFETY: the caller's promise.
        unsafe { value.write(place) }?;
    }
    Ok(())
}

/// Only SYNC_MEMOPS can be set, and only of native memory (VMM: 801).
pub(crate) unsafe fn cuPointerSetAttribute(
    value: *const c_void,
    attribute: c_uint,
    ptr: DevicePtr,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let value = unsafe { args::read(value.cast::<c_uint>()) }?;
    if attribute != SYNC_MEMOPS {
        return Err(CuError::INVALID_VALUE);
    }
    match crate::write(&driver.memory.space).find_mut(args::size(ptr.0)) {
        Some((_, Area::Native(native))) => native.sync_memops = value != 0,
        Some((_, Area::Reserved { .. })) => return Err(CuError::NOT_SUPPORTED),
        _ => return Err(CuError::INVALID_VALUE),
    }
    Ok(())
}

/// For native memory the size that was asked for, not the rounded one.
pub(crate) unsafe fn cuMemGetAddressRange_v2(
    pbase: *mut DevicePtr,
    psize: *mut usize,
    dptr: DevicePtr,
) -> CuResult {
    let driver = driver()?;
    current_unchecked()?;
    let space = crate::read(&driver.memory.space);
    let seen = look(&space, args::size(dptr.0)).ok_or(CuError::NOT_FOUND)?;
    // SAFETY: the caller's promise.
    if let Some(place) = unsafe { args::optional(pbase) } {
        place.write(DevicePtr(args::wide(seen.start)));
    }
    // SAFETY: the caller's promise.
    if let Some(place) = unsafe { args::optional(psize) } {
        place.write(seen.size);
    }
    Ok(())
}
