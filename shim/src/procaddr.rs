//! What the driver's resolver hands out: our function wherever it found one that we stand in front of.
//!
//! Which function a name stands for depends on the version and the flags that the caller gives, and only the
//! driver knows the rule. So the driver is asked first, with the caller's own arguments, and what is replaced is found by
//! the address it answered with: measured, that is the address of the exported symbol.
//!
//! A name we stand in front of that leads to an address we do not know is a newer form of the call, with arguments we
//! do not know. It is passed on, and noted: what it allocates or shares cannot be carried.

use core::ffi::{CStr, c_char, c_void};

use cuda_sys::PASS;

use crate::driver::{self, Name};
use crate::exports;

/// Replaces what the driver's resolver answered for `symbol`.
///
/// # Safety
/// The driver's resolver has succeeded with these arguments.
pub(crate) unsafe fn replace(symbol: *const c_char, function: *mut *mut c_void) {
    if symbol.is_null() || function.is_null() {
        return;
    }
    // SAFETY: the driver has just written it.
    let found = unsafe { function.read() };
    if found.is_null() || exports::is_entry(found.addr()) {
        return;
    }
    if let Some(call) = driver::call_at(found.addr()) {
        // SAFETY: as above.
        unsafe { function.write(exports::entry(call).cast_mut()) };
        return;
    }
    // SAFETY: the resolver demands a C string.
    unsafe { note_unknown(symbol, found) };
}

/// The driver found a function that is none of those we stand in front of.
///
/// # Safety
/// `symbol` is a C string.
unsafe fn note_unknown(symbol: *const c_char, found: *const c_void) {
    // SAFETY: the caller's.
    let name = unsafe { CStr::from_ptr(symbol) }.to_string_lossy();
    // SAFETY: the caller's.
    match unsafe { Name::of(symbol) } {
        Name::Call(call) | Name::NewForm(call) => {
            driver::note_new_form(call);
            log!(
                "cuGetProcAddress: {name} at {found:p} is a form of {call} this library does not know; passed on"
            );
        }
        Name::Other if !PASS.iter().any(|pass| driver::same_base(pass, &name)) => {
            log!("cuGetProcAddress: {name} is a function this library has never heard of; passed on");
        }
        Name::Other => {}
    }
}
