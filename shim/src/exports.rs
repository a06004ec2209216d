//! The functions the library exports: one per line of the list, with the driver's name and signature.
//!
//! A program that was linked with libcuda binds to these; `dlsym` and `cuGetProcAddress` hand them out.
#![allow(clippy::too_many_arguments, reason = "the driver's own signatures")]

use core::ffi::{c_char, c_int, c_uint, c_void};

use cuda_sys::{for_each_call, *};
use shim_core::calls::CallId;

use crate::{boundary, hooks};

macro_rules! export {
    ($($class:ident $family:ident fn $name:ident($($arg:ident: $ty:ty),*) $(on $stream:ident $(.$field:ident)?)?;)+) => {$(
        /// # Safety
        /// As the driver's function of this name.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $ty),*) -> CuResult {
            // SAFETY: the caller's arguments, unchanged.
            boundary::run(CallId::$name, || unsafe { hooks::$family::$name($($arg),*) })
        }
    )+};
}

for_each_call!(export);
