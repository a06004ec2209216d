//! Whether bytes are all zero, fast.

/// Whether all bytes are zero. Stops early where they are not.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    // One page after the other, each without a branch, so that the compiler uses wide registers.
    bytes.chunks(4096).all(|page| {
        let (words, rest) = page.as_chunks::<8>();
        let words = words.iter().fold(0, |all, word| all | u64::from_ne_bytes(*word));
        words == 0 && rest.iter().all(|byte| *byte == 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_anywhere_is_found() {
        let mut bytes = vec![0_u8; 3 * 4096 + 5];
        assert!(is_zero(&bytes) && is_zero(&[]));
        for at in [0, 1, 7, 8, 4095, 4096, 8191, 3 * 4096 - 1, 3 * 4096, 3 * 4096 + 4] {
            bytes[at] = 0x80;
            assert!(!is_zero(&bytes), "{at}");
            bytes[at] = 0;
        }
    }
}
