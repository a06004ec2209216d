//! Which call a name is: a hash table made at compile time, read without lock or allocation.

use core::ffi::c_char;

use shim_core::calls::CallId;

/// Slots; a power of two above twice the number of calls.
const SLOTS: usize = 2048;
/// No longer name is in the list.
const LONGEST: usize = 64;
const EMPTY: u16 = u16::MAX;

static TABLE: [u16; SLOTS] = table();

/// FNV-1a, one byte further.
const fn step(hash: u32, byte: u8) -> u32 {
    (hash ^ byte as u32).wrapping_mul(0x0100_0193)
}

const SEED: u32 = 0x811c_9dc5;

const fn slot(hash: u32) -> usize {
    (hash ^ (hash >> 15)) as usize % SLOTS
}

#[allow(clippy::indexing_slicing, reason = "evaluated at compile time: out of bounds does not build")]
#[allow(clippy::cast_possible_truncation, reason = "the list is far shorter than 65,535")]
const fn table() -> [u16; SLOTS] {
    const { assert!(CallId::COUNT * 2 < SLOTS) };
    let mut table = [EMPTY; SLOTS];
    let mut at = 0;
    while at < CallId::COUNT {
        let name = CallId::ALL[at].name().as_bytes();
        assert!(name.len() <= LONGEST);
        let mut hash = SEED;
        let mut byte = 0;
        while byte < name.len() {
            hash = step(hash, name[byte]);
            byte += 1;
        }
        let mut slot = slot(hash);
        while table[slot] != EMPTY {
            slot = (slot + 1) % SLOTS;
        }
        table[slot] = at as u16;
        at += 1;
    }
    table
}

/// The call with this name. Reachable from `resolve`.
///
/// # Safety
/// `name` is a C string.
pub(crate) unsafe fn named(name: *const c_char) -> Option<CallId> {
    let name = name.cast::<u8>();
    // SAFETY: a C string has a first byte.
    if unsafe { name.read() } != b'c' {
        return None;
    }
    let mut hash = SEED;
    let mut length = 0;
    loop {
        // SAFETY: no byte before this one was the string's end.
        let byte = unsafe { name.add(length) };
        // SAFETY: as above.
        let byte = unsafe { byte.read() };
        if byte == 0 {
            break;
        }
        if length == LONGEST {
            return None;
        }
        hash = step(hash, byte);
        length += 1;
    }
    // SAFETY: the string's bytes up to its end.
    let name = unsafe { core::slice::from_raw_parts(name, length) };
    let mut slot = slot(hash);
    loop {
        let call = *CallId::ALL.get(usize::from(*TABLE.get(slot)?))?;
        if call.name().as_bytes() == name {
            return Some(call);
        }
        slot = (slot + 1) % SLOTS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(name: &std::ffi::CStr) -> Option<CallId> {
        // SAFETY: a C string.
        unsafe { named(name.as_ptr()) }
    }

    #[test]
    fn every_name_of_the_list_is_found_and_no_other() {
        for call in CallId::ALL {
            let name = std::ffi::CString::new(call.name()).unwrap();
            assert_eq!(find(&name), Some(*call));
            let longer = std::ffi::CString::new(format!("{}x", call.name())).unwrap();
            assert!(find(&longer).is_none(), "{longer:?}");
        }
        let long = std::ffi::CString::new("cu".repeat(5000)).unwrap();
        for stranger in
            [c"", c"c", c"cu", c"cudnnCreate", c"cublasCreate_v2", c"curl_easy_init", c"cuDNN", &long]
        {
            assert!(find(stranger).is_none(), "{stranger:?}");
        }
    }
}
