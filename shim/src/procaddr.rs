//! What the driver's resolver hands out: our function wherever it found one that we stand in front of.
//!
//! Which function a name stands for depends on the version and the flags that the caller gives, and only the
//! driver knows the rule. So the driver is asked first, with the caller's own arguments, and what is replaced is found by
//! the address it answered with: measured, that is the address of the exported symbol.
//!
//! A name we stand in front of that leads to an address we do not know is a newer form of the call, with arguments we
//! do not know. It is passed on, and reported: what it allocates or shares cannot be carried.

use core::ffi::{CStr, c_char, c_void};

use cuda_sys::{Class, PASS};
use protocol::BlockerKind;
use shim_core::calls::CallId;

use crate::hooks::refuse;
use crate::{driver, exports};

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
    if found.is_null() {
        return;
    }
    if let Some(call) = driver::call_at(found.addr()) {
        // SAFETY: as above.
        unsafe { function.write(exports::entry(call).cast_mut()) };
        return;
    }
    // SAFETY: the resolver demands a C string.
    if let Ok(name) = unsafe { CStr::from_ptr(symbol) }.to_str() {
        report_unknown(name, found);
    }
}

/// Says that `name` led to a function nobody here knows, and makes `check` refuse where that matters.
fn report_unknown(name: &str, found: *mut c_void) {
    if name.is_empty() || PASS.iter().any(|pass| base(pass) == base(name)) || exports::is_entry(found.addr())
    {
        return;
    }
    let mut forms = CallId::ALL.iter().filter(|call| base(call.name()) == base(name));
    let Some(newest) = forms.next_back() else {
        log!("cuGetProcAddress: {name} is a function this library has never heard of; passed on");
        return;
    };
    log!("cuGetProcAddress: {name} at {found:p} is a form of {newest} this library does not know; passed on");
    if newest.class() == Class::Object || newest.name().starts_with("cuMemAlloc") {
        refuse::count(BlockerKind::UnknownAbi, name);
    }
}

/// The name without what marks a form of the call: `_v2`, `_ptsz`, `_ptds`.
fn base(name: &str) -> &str {
    let name = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds")).unwrap_or(name);
    match name.rsplit_once("_v") {
        Some((base, version)) if !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit()) => {
            base
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_one_call_share_their_base() {
        for (name, expected) in [
            ("cuMemAlloc_v2", "cuMemAlloc"),
            ("cuMemAlloc", "cuMemAlloc"),
            ("cuMemcpyHtoDAsync_v2_ptsz", "cuMemcpyHtoDAsync"),
            ("cuMemcpy_ptds", "cuMemcpy"),
            ("cuMemCreate_v17", "cuMemCreate"),
            ("cuFoo_vx", "cuFoo_vx"),
        ] {
            assert_eq!(base(name), expected);
        }
    }
}
