//! Arrays of one or two dimensions: memory of the driver's own that programs know by a handle and reach by copies alone.
//!
//! Not measured (docs/DRIVER-VERSIONS.md, arrays): what is here is what the header says. The bytes of an array lie in
//! rows in memory of its context, at an address that no program is told.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::c_void;
use std::sync::Mutex;

use cuda_sys::{Array as Handle, ArrayDescriptor, ArrayFormat, CuError, CuResult};

use super::Memory;
use super::native::Kind;
use crate::args;
use crate::context::{Ctx, current};
use crate::driver::driver;
use crate::slab::address_of;
use crate::trace::violation;
use crate::work;
use crate::work::capture;

/// One array. Its handle is its address.
#[derive(Debug, Default)]
pub(crate) struct Array(Mutex<Option<Made>>);

/// What an array is while it lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    descriptor: ArrayDescriptor,
    context: &'static Ctx,
    /// Where its first byte is.
    at: usize,
    /// Bytes of a row, which is also how far it is to the next.
    pub(crate) row: usize,
    rows: usize,
}

impl Made {
    /// Where a copy of so many rows begins that starts at a byte of a row; it has to stay inside.
    pub(crate) fn part(
        &self,
        call: &str,
        (x, y): (usize, usize),
        (width, height): (usize, usize),
    ) -> CuResult<usize> {
        let inside =
            |start: usize, count: usize, all: usize| start.checked_add(count).is_some_and(|end| end <= all);
        if !inside(x, width, self.row) || !inside(y, height, self.rows) {
            violation(format_args!(
                "{call}: {width} bytes of {height} rows at {x}, {y} are not in the array"
            ));
            return Err(CuError::INVALID_VALUE);
        }
        Ok(self.at + y * self.row + x)
    }

    /// The same for the calls that take arrays of one dimension.
    pub(crate) fn line(&self, call: &str, offset: usize, size: usize) -> CuResult<usize> {
        if self.descriptor.height != 0 {
            violation(format_args!("{call}: the array has two dimensions"));
            return Err(CuError::INVALID_VALUE);
        }
        self.part(call, (offset, 0), (size, 1))
    }
}

/// The array with this handle.
pub(crate) fn named(handle: Handle, call: &str) -> CuResult<Made> {
    let array = driver()?.memory.arrays.get(handle.0.addr());
    array.and_then(|array| *crate::lock(&array.0)).ok_or_else(|| {
        violation(format_args!("{call}: {handle:?} is not an array"));
        CuError::INVALID_HANDLE
    })
}

impl Memory {
    /// The end of a context takes its arrays along; their memory goes with all that was allocated in it.
    pub(super) fn end_arrays_of(&self, context: &'static Ctx) {
        for array in self.arrays.live() {
            let of_context = |made: &Made| std::ptr::eq(made.context, context);
            if crate::lock(&array.0).as_ref().is_some_and(of_context)
                && self.arrays.remove(address_of(array)).is_some()
            {
                *crate::lock(&array.0) = None;
                self.arrays.recycle(array);
            }
        }
    }
}

fn bytes_of(format: ArrayFormat) -> CuResult<usize> {
    match format {
        ArrayFormat::UNSIGNED_INT8 => Ok(1),
        ArrayFormat::UNSIGNED_INT16 => Ok(2),
        ArrayFormat::UNSIGNED_INT32 | ArrayFormat::FLOAT => Ok(4),
        _ => Err(CuError::INVALID_VALUE),
    }
}

pub(crate) unsafe fn cuArrayCreate_v2(p_handle: *mut Handle, p_allocate_array: *const c_void) -> CuResult {
    let driver = driver()?;
    let context = current()?;
    capture::unsafe_call(driver)?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(p_handle) }?;
    // SAFETY: the caller's promise.
    let descriptor = unsafe { args::read(p_allocate_array.cast::<ArrayDescriptor>()) }?;
    let channels = usize::try_from(descriptor.num_channels).map_err(|_| CuError::INVALID_VALUE)?;
    if descriptor.width == 0 || ![1, 2, 4].contains(&channels) {
        return Err(CuError::INVALID_VALUE);
    }
    let element = bytes_of(descriptor.format)? * channels;
    let rows = descriptor.height.max(1);
    let row = descriptor.width.checked_mul(element).ok_or(CuError::INVALID_VALUE)?;
    let size = row.checked_mul(rows).ok_or(CuError::INVALID_VALUE)?;
    let at = driver.memory.allocate_whole(driver, context, size, false, Kind::Array)?;
    let made = Made { descriptor, context, at, row, rows };
    let array = driver.memory.arrays.insert(|array| *crate::lock(&array.0) = Some(made));
    place.write(Handle(std::ptr::with_exposed_provenance_mut(address_of(array))));
    Ok(())
}

pub(crate) unsafe fn cuArrayGetDescriptor_v2(p_array_descriptor: *mut c_void, h_array: Handle) -> CuResult {
    driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(p_array_descriptor.cast::<ArrayDescriptor>()) }?;
    place.write(named(h_array, "cuArrayGetDescriptor")?.descriptor);
    Ok(())
}

/// Waits for the work of the device before, as the free of other memory does.
pub(crate) unsafe fn cuArrayDestroy(h_array: Handle) -> CuResult {
    let driver = driver()?;
    let made = named(h_array, "cuArrayDestroy")?;
    capture::unsafe_call(driver)?;
    work::wait_for_device(driver, made.context.ordinal());
    let array = driver.memory.arrays.remove(h_array.0.addr()).ok_or(CuError::INVALID_HANDLE)?;
    *crate::lock(&array.0) = None;
    driver.memory.free_in_order(made.at);
    driver.memory.arrays.recycle(array);
    Ok(())
}
