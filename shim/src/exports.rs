//! The functions the library exports: one per line of the list, with the driver's name and signature.
//!
//! A program that was linked with libcuda binds to these; `dlsym` and `cuGetProcAddress` hand them out.
#![allow(clippy::too_many_arguments, reason = "the driver's own signatures")]

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr;

use cuda_sys::{for_each_call, *};
use shim_core::calls::CallId;

use crate::driver::real;
use crate::{boundary, generation, hooks};

/// How a hook is run: those of the family `gate` do nothing that could change `errno`.
macro_rules! run {
    (gate, $body:expr) => {
        boundary::catch($body)
    };
    // It looks after `errno` itself, in the rare case.
    (sync, $body:expr) => {
        boundary::catch($body)
    };
    ($family:ident, $body:expr) => {
        boundary::run($body)
    };
}

macro_rules! export {
    ($($class:ident $family:ident fn $name:ident($($arg:ident: $ty:ty),*) $(on $stream:ident $(.$field:ident)?)?;)+) => {
        $(
            /// # Safety
            /// As the driver's function of this name.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($arg: $ty),*) -> CuResult {
                if !generation::live() && !generation::settle() {
                    // SAFETY: the caller's arguments, unchanged.
                    return unsafe { real::$name($($arg),*) };
                }
                // SAFETY: the caller's arguments, unchanged.
                run!($family, || unsafe { hooks::$family::$name($($arg),*) })
            }
        )+

        /// The functions above, in the order of the list.
        static ENTRIES: [Entry; CallId::COUNT] = [$(Entry($name as *const c_void)),+];
    };
}

/// The address of an exported function.
struct Entry(*const c_void);

// SAFETY: an address of code.
unsafe impl Sync for Entry {}

for_each_call!(export);

/// The address of our function for `call`. Reachable from `resolve`.
pub(crate) fn entry(call: CallId) -> *const c_void {
    ENTRIES.get(call.index()).map_or(ptr::null(), |entry| entry.0)
}

/// Whether `address` is one of our functions.
pub(crate) fn is_entry(address: usize) -> bool {
    ENTRIES.iter().any(|entry| entry.0.addr() == address)
}
