//! What the program may ask about an address: memory of ours answers as native memory does.

use core::ffi::{c_uint, c_void};
use core::slice;

use cuda_sys::{Context, CuError, CuResult, DevicePtr};
use shim_core::blocks::{Block, Found};
use shim_core::calls::CallId;
use shim_core::gate;

use crate::blocks::blocks;
use crate::driver::real;
use crate::hooks::sync;

/// `CUpointer_attribute`, those in which memory of ours differs from native memory.
mod attribute {
    use core::ffi::c_uint;

    pub(super) const CONTEXT: c_uint = 1;
    pub(super) const SYNC_MEMOPS: c_uint = 6;
    pub(super) const BUFFER_ID: c_uint = 7;
    pub(super) const IS_LEGACY_CUDA_IPC_CAPABLE: c_uint = 10;
    pub(super) const RANGE_START_ADDR: c_uint = 11;
    pub(super) const RANGE_SIZE: c_uint = 12;
    pub(super) const ALLOWED_HANDLE_TYPES: c_uint = 14;
    pub(super) const MEMORY_BLOCK_ID: c_uint = 20;
    pub(super) const IS_HW_DECOMPRESS_CAPABLE: c_uint = 21;
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemGetAddressRange_v2(
    pbase: *mut DevicePtr,
    psize: *mut usize,
    dptr: DevicePtr,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemGetAddressRange_v2);
    let block = match blocks().find(dptr.0) {
        // SAFETY: the caller's arguments, unchanged.
        Found::Foreign => return unsafe { real::cuMemGetAddressRange_v2(pbase, psize, dptr) },
        Found::Gap => return Err(CuError::NOT_FOUND),
        Found::Block(block) => block,
    };
    // SAFETY: the caller's arguments: the driver says whether this context may ask at all.
    unsafe { real::cuMemGetAddressRange_v2(pbase, psize, dptr) }?;
    if !pbase.is_null() {
        // SAFETY: the driver has just written to it.
        unsafe { pbase.write(DevicePtr(block.base)) };
    }
    if !psize.is_null() {
        // SAFETY: as above.
        unsafe { psize.write(usize::try_from(block.size).unwrap_or(usize::MAX)) };
    }
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuPointerGetAttribute(data: *mut c_void, attribute: c_uint, ptr: DevicePtr) -> CuResult {
    let _pass = gate::enter(CallId::cuPointerGetAttribute);
    let found = blocks().find(ptr.0);
    if found == Found::Gap {
        return Err(CuError::INVALID_VALUE);
    }
    let known = matches!(found, Found::Block(_)) && attribute == attribute::CONTEXT && !data.is_null();
    if !known {
        // Memory of this make belongs to no context; all else the driver can tell.
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::cuPointerGetAttribute(data, attribute, ptr) }?;
    }
    if let Found::Block(block) = found {
        // SAFETY: the driver has just written this attribute there, or the place is not null.
        unsafe { answer(&block, attribute, data) };
    }
    Ok(())
}

/// An address at which no memory is.
const NOWHERE: DevicePtr = DevicePtr(1);

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuPointerGetAttributes(
    num_attributes: c_uint,
    attributes: *mut c_uint,
    data: *mut *mut c_void,
    ptr: DevicePtr,
) -> CuResult {
    let _pass = gate::enter(CallId::cuPointerGetAttributes);
    let found = blocks().find(ptr.0);
    // To this question the driver has an answer for every address, also where nothing is.
    let asked = if found == Found::Gap { NOWHERE } else { ptr };
    // SAFETY: the caller's arguments; any address may be asked about.
    unsafe { real::cuPointerGetAttributes(num_attributes, attributes, data, asked) }?;
    let Found::Block(block) = found else { return Ok(()) };
    let count = usize::try_from(num_attributes).unwrap_or(0);
    // SAFETY: the driver has read as many.
    let attributes = unsafe { slice::from_raw_parts(attributes, count) };
    // SAFETY: as above.
    let places = unsafe { slice::from_raw_parts(data, count) };
    for (attribute, place) in attributes.iter().zip(places) {
        // SAFETY: the driver has just written this attribute there.
        unsafe { answer(&block, *attribute, *place) };
    }
    Ok(())
}

/// Writes what native memory would have answered, where that differs from what memory of ours answers. Opened memory of
/// a peer cannot be shared on, as natively.
///
/// # Safety
/// `place` is writable for the type that the driver defines for `attribute`.
unsafe fn answer(block: &Block, attribute: c_uint, place: *mut c_void) {
    match attribute {
        // SAFETY: the caller vouches for the type, here and below.
        attribute::CONTEXT => unsafe { place.cast::<Context>().write(block.owner.context) },
        attribute::SYNC_MEMOPS => {
            // SAFETY: see above.
            unsafe { place.cast::<c_uint>().write(block.sync_memops.into()) }
        }
        // SAFETY: see above.
        attribute::BUFFER_ID => unsafe { place.cast::<u64>().write(block.id) },
        attribute::IS_LEGACY_CUDA_IPC_CAPABLE => {
            // SAFETY: see above.
            unsafe { place.cast::<c_uint>().write((!block.opened).into()) }
        }
        // SAFETY: see above.
        attribute::RANGE_START_ADDR => unsafe { place.cast::<DevicePtr>().write(DevicePtr(block.base)) },
        // SAFETY: see above.
        attribute::RANGE_SIZE => unsafe {
            place.cast::<usize>().write(usize::try_from(block.size).unwrap_or(usize::MAX))
        },
        // SAFETY: see above.
        attribute::ALLOWED_HANDLE_TYPES => unsafe { place.cast::<u64>().write(0) },
        // The driver's own number changes when memory is mapped again; the span does not move.
        // SAFETY: see above.
        attribute::MEMORY_BLOCK_ID => unsafe { place.cast::<u64>().write(block.span.base) },
        // Native memory says yes also where the device has no such engine (580.159.04).
        // SAFETY: see above.
        attribute::IS_HW_DECOMPRESS_CAPABLE => unsafe { place.cast::<c_uint>().write(1) },
        _ => {}
    }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuPointerSetAttribute(
    value: *const c_void,
    attribute: c_uint,
    ptr: DevicePtr,
) -> CuResult {
    let _pass = gate::enter(CallId::cuPointerSetAttribute);
    let ours = attribute == attribute::SYNC_MEMOPS && !value.is_null();
    if ours && matches!(blocks().find(ptr.0), Found::Block(_)) {
        // SAFETY: not null; for this attribute the driver reads an unsigned number.
        let on = unsafe { value.cast::<c_uint>().read() } != 0;
        if on {
            sync::note();
        }
        return if blocks().set_sync_memops(ptr.0, on) { Ok(()) } else { Err(CuError::INVALID_VALUE) };
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuPointerSetAttribute(value, attribute, ptr) }
}
