//! Registered host memory: passed on to the driver, and noted where the library is to register it anew.

use core::ffi::{c_uint, c_void};

use cuda_sys::CuResult;
use shim_core::calls::CallId;
use shim_core::gate;

use crate::driver::real;
use crate::registered::{self, Form};

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemHostRegister(p: *mut c_void, bytesize: usize, flags: c_uint) -> CuResult {
    let _pass = gate::enter(CallId::cuMemHostRegister);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemHostRegister(p, bytesize, flags) }?;
    registered::noted(p, bytesize, flags, Form::First);
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, flags: c_uint) -> CuResult {
    let _pass = gate::enter(CallId::cuMemHostRegister_v2);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemHostRegister_v2(p, bytesize, flags) }?;
    registered::noted(p, bytesize, flags, Form::Second);
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemHostUnregister(p: *mut c_void) -> CuResult {
    let _pass = gate::enter(CallId::cuMemHostUnregister);
    let leaving = registered::leave(p);
    // SAFETY: the caller's argument, unchanged.
    unsafe { real::cuMemHostUnregister(p) }?;
    leaving.gone();
    Ok(())
}
