//! What a look-up of the program gets: our function where it asked for a driver call of libcuda.
//!
//! An explicit handle is answered only when what the program would have got is libcuda's own function: a library that
//! happens to export the same name keeps it. Pseudo-handles are never answered with a function: the next `dlsym`
//! searches the caller's scope, where our exported functions stand before libcuda's. But since ours are there whether
//! or not a driver is, a name that no other object has is missing, as it would be without us.
//!
//! Everything reachable from here runs in every process that inherits the preload, maybe inside its allocator, its
//! loader or a constructor: rules 1 and 2 of the crate.

use core::ffi::{c_char, c_void};
use core::ptr;

use crate::driver::{self, Name};
use crate::{dlsym_next, exports, generation};

/// What the stub needs to go on: two registers.
#[repr(C)]
pub(crate) struct Lookup {
    /// What to return.
    answer: *const c_void,
    /// Null, or the `dlsym` that is to answer instead.
    next: *const c_void,
}

impl Lookup {
    fn answered(answer: *const c_void) -> Self {
        Self { answer, next: ptr::null() }
    }

    fn passed_on() -> Self {
        Self { answer: ptr::null(), next: ptr::with_exposed_provenance(dlsym_next::address()) }
    }
}

/// Called by the stub of `dlsym` with the program's arguments.
///
/// # Safety
/// As `dlsym`.
pub(crate) unsafe extern "C" fn resolve(handle: *mut c_void, name: *const c_char) -> Lookup {
    if name.is_null() {
        return Lookup::passed_on();
    }
    // SAFETY: `dlsym` demands a C string.
    let call = match unsafe { Name::of(name) } {
        Name::Call(call) => call,
        Name::NewForm(call) => {
            // SAFETY: as above.
            unsafe { driver::note_if_exported(call, name) };
            return Lookup::passed_on();
        }
        Name::Other => return Lookup::passed_on(),
    };
    if handle == libc::RTLD_DEFAULT || handle == libc::RTLD_NEXT {
        return if driver::exported_beside_us(call) {
            Lookup::passed_on()
        } else {
            // SAFETY: the caller's name.
            Lookup::answered(unsafe { dlsym_next::miss(name) })
        };
    }
    if generation::off() {
        return Lookup::passed_on();
    }
    // SAFETY: an explicit handle: who calls makes no difference.
    let found = unsafe { dlsym_next::call(handle, name) };
    if !found.is_null() && driver::owns(call, found.addr()) {
        return Lookup::answered(exports::entry(call));
    }
    Lookup::passed_on()
}
