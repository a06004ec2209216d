//! Kernels and functions: their names, parameters and attributes.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::{CString, c_char, c_int, c_uint};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use cuda_sys::{CuError, CuResult, Device, Function as FunctionHandle, Kernel as KernelHandle};

use super::super::kernels::Kernel;
use super::super::launch;
use super::kernel;
use crate::args;
use crate::driver::driver;

fn c_name(kernel: Kernel) -> *const c_char {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    let names = NAMES
        .get_or_init(|| Kernel::ALL.iter().map(|k| CString::new(k.name()).unwrap_or_default()).collect());
    let of_kernel = Kernel::ALL.iter().position(|&other| other == kernel).and_then(|at| names.get(at));
    of_kernel.map_or(std::ptr::null(), |name| name.as_ptr())
}

pub(crate) unsafe fn cuFuncGetName(name: *mut *const c_char, function: FunctionHandle) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(name) }?;
    place.write(c_name(kernel(driver, function.0.addr())?));
    Ok(())
}

pub(crate) unsafe fn cuKernelGetName(name: *mut *const c_char, kernel: KernelHandle) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { cuFuncGetName(name, FunctionHandle(kernel.0)) }
}

pub(crate) unsafe fn cuFuncGetParamInfo(
    function: FunctionHandle,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(offset) }?;
    let (at, bytes) =
        launch::layout(kernel(driver, function.0.addr())?).nth(index).ok_or(CuError::INVALID_VALUE)?;
    place.write(at);
    // SAFETY: the caller's promise.
    if let Some(place) = unsafe { args::optional(size) } {
        place.write(bytes);
    }
    Ok(())
}

pub(crate) unsafe fn cuKernelGetParamInfo(
    kernel: KernelHandle,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { cuFuncGetParamInfo(FunctionHandle(kernel.0), index, offset, size) }
}

pub(crate) unsafe fn cuFuncGetAttribute(
    value: *mut c_int,
    attribute: c_uint,
    function: FunctionHandle,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(value) }?;
    let function = driver.modules.function(function.0.addr())?;
    place.write(match attribute {
        // Threads per block.
        0 => 1024,
        // Registers.
        4 => 32,
        // PTX and binary version.
        5 | 6 => 90,
        // Dynamic shared memory.
        8 => c_int::try_from(function.shared.load(Ordering::Relaxed)).unwrap_or(0),
        1..=16 => 0,
        _ => return Err(CuError::INVALID_VALUE),
    });
    Ok(())
}

pub(crate) unsafe fn cuKernelGetAttribute(
    value: *mut c_int,
    attribute: c_uint,
    kernel: KernelHandle,
    _dev: Device,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { cuFuncGetAttribute(value, attribute, FunctionHandle(kernel.0)) }
}

pub(crate) unsafe fn cuFuncSetAttribute(
    function: FunctionHandle,
    attribute: c_uint,
    value: c_int,
) -> CuResult {
    let driver = driver()?;
    let function = driver.modules.function(function.0.addr())?;
    if attribute == 8 {
        function.shared.store(u32::try_from(value).map_err(|_| CuError::INVALID_VALUE)?, Ordering::Relaxed);
    }
    Ok(())
}

pub(crate) unsafe fn cuKernelSetAttribute(
    attribute: c_uint,
    value: c_int,
    kernel: KernelHandle,
    _dev: Device,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { cuFuncSetAttribute(FunctionHandle(kernel.0), attribute, value) }
}

pub(crate) unsafe fn cuFuncSetCacheConfig(function: FunctionHandle, _config: c_uint) -> CuResult {
    driver()?.modules.function(function.0.addr()).map(|_| ())
}

pub(crate) unsafe fn cuFuncIsLoaded(state: *mut c_uint, function: FunctionHandle) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(state) }?;
    driver.modules.function(function.0.addr())?;
    place.write(1);
    Ok(())
}

pub(crate) unsafe fn cuFuncLoad(function: FunctionHandle) -> CuResult {
    driver()?.modules.function(function.0.addr()).map(|_| ())
}

pub(crate) unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    function: FunctionHandle,
    block_size: c_int,
    _shared: usize,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(blocks) }?;
    driver.modules.function(function.0.addr())?;
    if block_size <= 0 {
        return Err(CuError::INVALID_VALUE);
    }
    place.write(2048 / block_size.max(64));
    Ok(())
}

pub(crate) unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: *mut c_int,
    function: FunctionHandle,
    block_size: c_int,
    shared: usize,
    _flags: c_uint,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block_size, shared) }
}
