//! The worker with the driver linked in, as programs are that nvcc builds with `-lcuda`.

use std::ffi::{CStr, c_char, c_ulong};

/// One function of the header, as the loader bound it.
#[repr(C)]
struct Linked {
    name: *const c_char,
    call: Option<unsafe extern "C" fn()>,
}

#[link(name = "nvsnap_linked", kind = "static")]
#[link(name = "cuda")]
unsafe extern "C" {
    /// `nvsnap_linked_count` entries.
    static nvsnap_linked: Linked;
    static nvsnap_linked_count: c_ulong;
}

fn main() {
    // SAFETY: a number that nobody changes.
    let count = usize::try_from(unsafe { nvsnap_linked_count }).unwrap_or(0);
    // SAFETY: an array of this many entries that nobody changes.
    let table = unsafe { std::slice::from_raw_parts(&raw const nvsnap_linked, count) };
    let there = table.iter().filter_map(|entry| {
        // SAFETY: a C string of the table.
        let name = unsafe { CStr::from_ptr(entry.name) }.to_str().ok()?;
        Some((name, entry.call?))
    });
    integration::driver::link(there.collect());
    integration::program::run();
}
