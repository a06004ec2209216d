//! The `dlsym` that would have been called without us: the next one after this library.

use core::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{driver, log};

/// The type of `dlsym`.
pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The versions under which the C library exports it: libdl was merged in 2.34; before, each architecture had the
/// version of its first release.
const VERSIONS: &[&CStr] = &[
    c"GLIBC_2.34",
    #[cfg(target_arch = "x86_64")]
    c"GLIBC_2.2.5",
    #[cfg(target_arch = "aarch64")]
    c"GLIBC_2.17",
];

static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The address of the next `dlsym`. Reachable from `resolve`.
pub(crate) fn address() -> usize {
    match NEXT.load(Ordering::Acquire) {
        0 => find(),
        known => known,
    }
}

/// Calls the next `dlsym`. Not for pseudo-handles: it would take us for the caller.
///
/// # Safety
/// As the C library's function of this name.
pub(crate) unsafe fn call(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the address is that of a `dlsym`.
    let next = unsafe { core::mem::transmute::<usize, Dlsym>(address()) };
    // SAFETY: the caller's arguments, unchanged.
    unsafe { next(handle, name) }
}

#[cold]
fn find() -> usize {
    let versioned = VERSIONS.iter().find_map(|version| {
        // SAFETY: C strings; the search starts after this library.
        let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
        (!found.is_null()).then(|| found.addr())
    });
    let Some(next) = versioned.or_else(|| driver::behind_us("dlsym")) else { nowhere() };
    NEXT.store(next, Ordering::Release);
    next
}

/// Without a `dlsym` behind us every look-up of the process would fail in ways nobody could explain.
fn nowhere() -> ! {
    log::complain(format_args!(
        "no dlsym of the C library found behind this library, in any version known; glibc 2.34 or later is needed"
    ));
    // SAFETY: no preconditions.
    unsafe { libc::abort() }
}
