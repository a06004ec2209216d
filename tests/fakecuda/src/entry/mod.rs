//! How a program gets in: `cuInit`, versions, error texts, and the look-up of functions.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use cuda_sys::{CuError, CuResult, ERRORS, Uuid};

use crate::args;
use crate::config::config;
use crate::driver;

mod lookup;

pub(crate) use lookup::{cuGetProcAddress, cuGetProcAddress_v2};

/// Starts the driver in this process. The second call does nothing.
pub(crate) unsafe fn cuInit(flags: c_uint) -> CuResult {
    if flags != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    driver::start()
}

pub(crate) unsafe fn cuDriverGetVersion(version: *mut c_int) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { args::out(version) }?.write(config().version);
    Ok(())
}

fn texts() -> &'static [(u32, CString)] {
    static TEXTS: OnceLock<Vec<(u32, CString)>> = OnceLock::new();
    TEXTS.get_or_init(|| {
        std::iter::once(("CUDA_SUCCESS", 0))
            .chain(ERRORS.iter().copied())
            .filter_map(|(name, value)| Some((value, CString::new(name).ok()?)))
            .collect()
    })
}

fn text(error: c_uint) -> *const c_char {
    texts().iter().find(|(value, _)| *value == error).map_or(std::ptr::null(), |(_, text)| text.as_ptr())
}

pub(crate) unsafe fn cuGetErrorName(error: c_uint, name: *mut *const c_char) -> CuResult {
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(name) }?;
    let text = text(error);
    place.write(text);
    if text.is_null() { Err(CuError::INVALID_VALUE) } else { Ok(()) }
}

/// The stand-in describes an error by its name.
pub(crate) unsafe fn cuGetErrorString(error: c_uint, description: *mut *const c_char) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { cuGetErrorName(error, description) }
}

/// There are no private tables here: every id is unknown.
pub(crate) unsafe fn cuGetExportTable(table: *mut *const c_void, _id: *const Uuid) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { args::out(table) }?.write(std::ptr::null());
    Err(CuError::INVALID_VALUE)
}
