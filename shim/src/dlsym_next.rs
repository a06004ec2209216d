//! The `dlsym` that would have been called without us: that of the first object after this library.
//!
//! It is found in the tables of the loaded objects, so that another interposer after us keeps its place: to a look-up by
//! version (`dlvsym`) an interposer's unversioned `dlsym` is invisible. That way is the second, for a library that
//! was not preloaded but opened later, when the C library stands before it.

use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

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
/// A handle in which no driver call is found.
static C_LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

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

/// Fails as `dlsym` does when nobody has `name`: null, and a text for `dlerror`, for which the C library allocates.
///
/// # Safety
/// `name` is a C string, and no other object exports it.
#[cold]
pub(crate) unsafe fn miss(name: *const c_char) -> *mut c_void {
    let mut handle = C_LIBRARY.load(Ordering::Acquire);
    if handle.is_null() {
        #[allow(
            clippy::disallowed_methods,
            reason = "it is loaded in every process; nothing is opened but a handle"
        )]
        // SAFETY: a C string.
        let opened = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        handle = opened;
        C_LIBRARY.store(handle, Ordering::Release);
    }
    if handle.is_null() {
        return handle;
    }
    // SAFETY: a handle that is never closed; the caller's name.
    unsafe { call(handle, name) }
}

#[cold]
fn find() -> usize {
    let versioned = || {
        VERSIONS.iter().find_map(|version| {
            // SAFETY: C strings; the search starts after this library.
            let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
            (!found.is_null()).then(|| found.addr())
        })
    };
    let Some(next) = driver::behind_us("dlsym").or_else(versioned) else { nowhere() };
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
