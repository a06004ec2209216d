//! Which call a name is: hash tables made at compile time, read without lock or allocation.

use core::ffi::c_char;
use core::slice;

use cuda_sys::PASS;
use shim_core::calls::CallId;

/// Slots; a power of two above twice the number of calls.
const SLOTS: usize = 2048;
/// No longer name is in the list.
const LONGEST: usize = 64;
const EMPTY: u16 = u16::MAX;

/// The calls by their names.
static BY_NAME: [u16; SLOTS] = table(false);
/// The newest form of each call by what all its forms' names have in common; without those of which some form needs no
/// hook.
static BY_BASE: [u16; SLOTS] = table(true);

/// The call with this name. Reachable from `resolve`.
pub(crate) fn named(name: &[u8]) -> Option<CallId> {
    find(&BY_NAME, name, |call| call.name().as_bytes() == name)
}

/// The newest form we know of the call that `name`, which is not in the list, is another form of. Reachable from
/// `resolve`.
pub(crate) fn newest_form(name: &[u8]) -> Option<CallId> {
    let base = base(name);
    find(&BY_BASE, base, |call| self::base(call.name().as_bytes()) == base)
}

/// The bytes of a name that may be the driver's, or `None` for one that is not: most look-ups end here.
///
/// # Safety
/// `name` is a C string that outlives the result.
pub(crate) unsafe fn bytes<'a>(name: *const c_char) -> Option<&'a [u8]> {
    let name = name.cast::<u8>();
    for length in 0..=LONGEST {
        // SAFETY: no byte before this one was the string's end.
        let byte = unsafe { name.add(length) };
        // SAFETY: as above.
        match (length, unsafe { byte.read() }) {
            (0, b'c') | (1, b'u') => {}
            // SAFETY: the string's bytes up to its end.
            (2.., 0) => return Some(unsafe { slice::from_raw_parts(name, length) }),
            (0 | 1, _) => return None,
            _ => {}
        }
    }
    None
}

fn find(table: &[u16; SLOTS], name: &[u8], is: impl Fn(CallId) -> bool) -> Option<CallId> {
    let mut slot = slot(name);
    loop {
        let call = *CallId::ALL.get(usize::from(*table.get(slot)?))?;
        if is(call) {
            return Some(call);
        }
        slot = (slot + 1) % SLOTS;
    }
}

/// FNV-1a, folded.
#[allow(clippy::indexing_slicing, reason = "below the length; slices have no iterator at compile time")]
const fn slot(name: &[u8]) -> usize {
    let mut hash: u32 = 0x811c_9dc5;
    let mut at = 0;
    while at < name.len() {
        hash = (hash ^ name[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    (hash ^ (hash >> 15)) as usize % SLOTS
}

/// The name without what marks a form of the call: `_ptsz` or `_ptds`, and before it `_v` with a number.
pub(crate) const fn base(name: &[u8]) -> &[u8] {
    let name = match name {
        [base @ .., b'_', b'p', b't', b's' | b'd', b'z' | b's'] => base,
        _ => name,
    };
    let mut digits = name;
    while let [before @ .., b'0'..=b'9'] = digits {
        digits = before;
    }
    match digits {
        [base @ .., b'_', b'v'] if digits.len() < name.len() => base,
        _ => name,
    }
}

#[allow(clippy::indexing_slicing, reason = "evaluated at compile time: out of bounds does not build")]
#[allow(clippy::cast_possible_truncation, reason = "the list is far shorter than 65,535")]
const fn table(by_base: bool) -> [u16; SLOTS] {
    const { assert!(CallId::COUNT * 2 < SLOTS) };
    let mut table = [EMPTY; SLOTS];
    let mut at = 0;
    while at < CallId::COUNT {
        let name = CallId::ALL[at].name().as_bytes();
        assert!(name.len() <= LONGEST);
        let key = if by_base { base(name) } else { name };
        let mut slot = slot(key);
        while table[slot] != EMPTY {
            let other = CallId::ALL[table[slot] as usize].name().as_bytes();
            if by_base && same(base(other), key) {
                break;
            }
            slot = (slot + 1) % SLOTS;
        }
        if !(by_base && passes(key)) {
            table[slot] = at as u16;
        }
        at += 1;
    }
    table
}

/// Whether a function of this base needs no hook.
#[allow(clippy::indexing_slicing, reason = "evaluated at compile time: out of bounds does not build")]
const fn passes(key: &[u8]) -> bool {
    let mut at = 0;
    while at < PASS.len() {
        if same(base(PASS[at].as_bytes()), key) {
            return true;
        }
        at += 1;
    }
    false
}

#[allow(clippy::indexing_slicing, reason = "evaluated at compile time: out of bounds does not build")]
const fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_list_is_found_and_no_other() {
        for call in CallId::ALL {
            assert_eq!(named(call.name().as_bytes()), Some(*call));
            assert!(named(format!("{call}x").as_bytes()).is_none(), "{call}x");
        }
        for stranger in ["", "c", "cu", "cudnnCreate", "cublasCreate_v2", "curl_easy_init", "cuDNN"] {
            assert!(named(stranger.as_bytes()).is_none(), "{stranger}");
        }
    }

    #[test]
    fn only_what_may_be_the_drivers_is_read_to_its_end() {
        let long = std::ffi::CString::new("cu".repeat(5000)).unwrap();
        // SAFETY: C strings that live long enough.
        let read = |name: &std::ffi::CStr| unsafe { bytes(name.as_ptr()) }.map(<[u8]>::to_vec);
        assert_eq!(read(c"cuInit"), Some(b"cuInit".to_vec()));
        assert_eq!(read(c"cu"), Some(b"cu".to_vec()));
        for other in [c"", c"c", c"malloc", c"cblas_dgemm", &long] {
            assert_eq!(read(other), None, "{other:?}");
        }
    }

    #[test]
    fn forms_of_one_call_share_their_base() {
        for (name, expected) in [
            ("cuMemAlloc_v2", "cuMemAlloc"),
            ("cuMemAlloc", "cuMemAlloc"),
            ("cuMemcpyHtoDAsync_v2_ptsz", "cuMemcpyHtoDAsync"),
            ("cuMemcpy_ptds", "cuMemcpy"),
            ("cuMemCreate_v17", "cuMemCreate"),
            ("cuFoo_vx", "cuFoo_vx"),
            ("cuFoo_v", "cuFoo_v"),
            ("cuMemsetD32", "cuMemsetD32"),
        ] {
            assert_eq!(str::from_utf8(base(name.as_bytes())), Ok(expected));
        }
    }

    #[test]
    fn a_new_form_leads_to_the_newest_we_know_unless_the_call_needs_no_hook() {
        assert_eq!(newest_form(b"cuMemCreate_v3"), Some(CallId::cuMemCreate));
        assert_eq!(newest_form(b"cuCtxCreate_v9"), Some(CallId::cuCtxCreate_v4));
        assert_eq!(newest_form(b"cuLaunchKernel_v2_ptsz"), Some(CallId::cuLaunchKernel_ptsz));
        assert_eq!(newest_form(b"cuDeviceGetUuid_v3"), None);
        assert_eq!(newest_form(b"cuNobodyKnows"), None);
    }
}
