//! What a look-up of the program gets: our function where it asked for a driver call of libcuda.
//!
//! Pseudo-handles are never answered here: the next `dlsym` searches the caller's scope, where our exported functions
//! stand before libcuda's. An explicit handle is answered only when what the program would have got is libcuda's own
//! function: a library that happens to export the same name keeps it.
//!
//! Everything reachable from here runs in every process that inherits the preload, maybe inside its allocator, its
//! loader or a constructor: rules 1 and 2 of the crate.

use core::ffi::{c_char, c_void};

use crate::{dlsym_next, driver, exports, generation};

/// What the stub needs to go on: two registers.
#[repr(C)]
pub(crate) struct Lookup {
    /// The address to answer, or zero.
    answer: usize,
    /// The next `dlsym`, to jump to otherwise.
    next: usize,
}

/// Called by the stub of `dlsym` with the program's arguments.
///
/// # Safety
/// As `dlsym`.
pub(crate) unsafe extern "C" fn resolve(handle: *mut c_void, name: *const c_char) -> Lookup {
    // SAFETY: the caller's.
    let answer = unsafe { answer(handle, name) }.unwrap_or(0);
    Lookup { answer, next: dlsym_next::address() }
}

/// # Safety
/// As `dlsym`.
unsafe fn answer(handle: *mut c_void, name: *const c_char) -> Option<usize> {
    if handle == libc::RTLD_DEFAULT || handle == libc::RTLD_NEXT || name.is_null() || generation::off() {
        return None;
    }
    // SAFETY: `dlsym` demands a C string.
    let call = unsafe { driver::named(name) }?;
    // SAFETY: an explicit handle: who calls makes no difference.
    let found = unsafe { dlsym_next::call(handle, name) };
    driver::owns(call, found.addr()).then(|| exports::entry(call))
}
