//! The ways into the driver: `cuInit`, and the driver's own resolver.

use core::ffi::{c_char, c_int, c_uint, c_void};

use cuda_sys::CuResult;
use shim_core::calls::CallId;
use shim_core::gate;

use crate::driver::real;
use crate::{config, control, generation, procaddr};

/// The first success in a life of the process is what all of ours waits for: before it nothing of ours runs.
///
/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuInit(flags: c_uint) -> CuResult {
    let _pass = gate::enter(CallId::cuInit);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuInit(flags) }?;
    if generation::uses_cuda() {
        config::say_bad_values();
        log!("version {}: the program uses CUDA", env!("CARGO_PKG_VERSION"));
    }
    control::start();
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuGetProcAddress(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    cuda_version: c_int,
    flags: u64,
) -> CuResult {
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuGetProcAddress(symbol, pfn, cuda_version, flags) }?;
    // SAFETY: it succeeded.
    unsafe { procaddr::replace(symbol, pfn) };
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuGetProcAddress_v2(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    cuda_version: c_int,
    flags: u64,
    symbol_status: *mut c_uint,
) -> CuResult {
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuGetProcAddress_v2(symbol, pfn, cuda_version, flags, symbol_status) }?;
    // SAFETY: it succeeded.
    unsafe { procaddr::replace(symbol, pfn) };
    Ok(())
}
