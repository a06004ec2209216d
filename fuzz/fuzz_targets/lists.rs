//! Any bytes are a list in its only form, or are refused; also when their checksum is right.
#![no_main]

use chunkstore::list::format::{decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    assert!(decode(bytes).map_or(true, |list| encode(&list) == bytes));
    let mut sealed = bytes.to_vec();
    sealed.extend(blake3::hash(bytes).as_bytes());
    assert!(decode(&sealed).map_or(true, |list| encode(&list) == sealed));
});
