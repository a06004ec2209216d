//! Launches of kernels.

#![allow(non_snake_case, reason = "the driver's own names")]
#![allow(clippy::too_many_arguments, reason = "the driver's own signatures")]

use std::ffi::{c_uint, c_void};

use cuda_sys::{CuError, CuResult, Function, LaunchConfig, Stream};

use super::kernels::{ARGUMENTS, Kernel, Launch};
use super::module::kernel;
use super::op::Op;
use super::stream::named;
use crate::args;
use crate::driver::{Driver, driver};

/// `CU_LAUNCH_PARAM_BUFFER_POINTER`
const BUFFER_POINTER: usize = 1;
/// `CU_LAUNCH_PARAM_BUFFER_SIZE`
const BUFFER_SIZE: usize = 2;

/// Offset and size of each argument in a buffer of them.
pub(super) fn layout(kernel: Kernel) -> impl Iterator<Item = (usize, usize)> {
    kernel.arguments().iter().scan(0_usize, |next, &size| {
        let at = next.next_multiple_of(size);
        *next = at + size;
        Some((at, size))
    })
}

/// # Safety
/// `place` is readable for `size` bytes, 4 or 8.
unsafe fn argument(place: *const c_void, size: usize) -> CuResult<u64> {
    if size == 8 {
        // SAFETY: the caller's promise.
        unsafe { args::read(place.cast::<u64>()) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { args::read(place.cast::<u32>()) }.map(u64::from)
    }
}

/// The buffer and its size in a list of launch options.
///
/// # Safety
/// `extra` is such a list: pairs of an option and its value, ended by `CU_LAUNCH_PARAM_END`.
unsafe fn buffer(mut extra: *mut *mut c_void) -> CuResult<(*const c_void, usize)> {
    let (mut place, mut size) = (std::ptr::null(), 0);
    loop {
        // SAFETY: the caller's promise.
        let option = unsafe { args::read(extra) }?.addr();
        if option != BUFFER_POINTER && option != BUFFER_SIZE {
            return Ok((place, size));
        }
        // SAFETY: an option that is not the end has a value.
        extra = unsafe { extra.add(1) };
        // SAFETY: as above.
        let value = unsafe { args::read(extra) }?;
        if option == BUFFER_POINTER {
            place = value.cast_const();
        } else {
            // SAFETY: the value of this option is the place of a size.
            size = unsafe { args::read(value.cast::<usize>()) }?;
        }
        // SAFETY: an entry follows the value.
        extra = unsafe { extra.add(1) };
    }
}

/// Takes a kernel with its arguments, from either way of passing them.
///
/// # Safety
/// As the caller of a launch promises: the arguments are there, as the kernel's signature says.
pub(super) unsafe fn collect(
    driver: &Driver,
    function: usize,
    grid: [c_uint; 3],
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CuResult<Launch> {
    let kernel = kernel(driver, function)?;
    let mut arguments = [0; ARGUMENTS];
    if !params.is_null() {
        // SAFETY: the caller's promise.
        let places = unsafe { args::list(params.cast_const(), kernel.arguments().len()) }?;
        for ((value, place), size) in arguments.iter_mut().zip(places).zip(kernel.arguments()) {
            // SAFETY: the caller's promise.
            *value = unsafe { argument(*place, *size) }?;
        }
    } else if !extra.is_null() {
        // SAFETY: the caller's promise.
        let (place, length) = unsafe { buffer(extra) }?;
        for (value, (at, size)) in arguments.iter_mut().zip(layout(kernel)) {
            if place.is_null() || at + size > length {
                return Err(CuError::INVALID_VALUE);
            }
            // SAFETY: inside the buffer, by the check above.
            *value = unsafe { argument(place.wrapping_byte_add(at), size) }?;
        }
    } else if !kernel.arguments().is_empty() {
        return Err(CuError::INVALID_VALUE);
    }
    Ok(Launch { kernel, arguments, grid })
}

/// A grid and a block with an extent of zero cannot be launched; neither can a block of more threads than the device has.
fn check_shape(shape: [c_uint; 6]) -> CuResult {
    let [_, _, _, x, y, z] = shape;
    let threads = u64::from(x) * u64::from(y) * u64::from(z);
    if shape.contains(&0) || threads > 1024 { Err(CuError::INVALID_VALUE) } else { Ok(()) }
}

pub(crate) unsafe fn cuLaunchKernel(
    f: Function,
    grid_dim_x: c_uint,
    grid_dim_y: c_uint,
    grid_dim_z: c_uint,
    block_dim_x: c_uint,
    block_dim_y: c_uint,
    block_dim_z: c_uint,
    _shared_mem_bytes: c_uint,
    h_stream: Stream,
    kernel_params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CuResult {
    let driver = driver()?;
    let stream = named(h_stream)?;
    check_shape([grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x, block_dim_y, block_dim_z])?;
    let grid = [grid_dim_x, grid_dim_y, grid_dim_z];
    // SAFETY: the caller's promise.
    let launch = unsafe { collect(driver, f.0.addr(), grid, kernel_params, extra) }?;
    super::submit(stream, Op::Kernel(launch), Vec::new()).map(|_| ())
}

pub(crate) unsafe fn cuLaunchKernelEx(
    config: *const LaunchConfig,
    f: Function,
    kernel_params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let config = unsafe { args::read(config) }?;
    let stream = named(config.stream)?;
    check_shape([
        config.grid_dim_x,
        config.grid_dim_y,
        config.grid_dim_z,
        config.block_dim_x,
        config.block_dim_y,
        config.block_dim_z,
    ])?;
    let grid = [config.grid_dim_x, config.grid_dim_y, config.grid_dim_z];
    // SAFETY: the caller's promise.
    let launch = unsafe { collect(driver, f.0.addr(), grid, kernel_params, extra) }?;
    super::submit(stream, Op::Kernel(launch), Vec::new()).map(|_| ())
}

pub(crate) unsafe fn cuLaunchCooperativeKernel(
    f: Function,
    grid_dim_x: c_uint,
    grid_dim_y: c_uint,
    grid_dim_z: c_uint,
    block_dim_x: c_uint,
    block_dim_y: c_uint,
    block_dim_z: c_uint,
    shared_mem_bytes: c_uint,
    h_stream: Stream,
    kernel_params: *mut *mut c_void,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe {
        cuLaunchKernel(
            f,
            grid_dim_x,
            grid_dim_y,
            grid_dim_z,
            block_dim_x,
            block_dim_y,
            block_dim_z,
            shared_mem_bytes,
            h_stream,
            kernel_params,
            std::ptr::null_mut(),
        )
    }
}
