//! What a chunk is called: the BLAKE3-256 of its bytes, and how many they are.

use std::fmt;

use thiserror::Error;

/// The most bytes a chunk has. All chunks of an object have this length but its last.
pub const CHUNK_BYTES: u32 = 64 << 20;

/// The BLAKE3-256 of a chunk's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

/// A digest in text has 64 digits, `0` to `9` and `a` to `f`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("a digest has 64 digits, 0-9 and a-f")]
pub struct NotADigest;

impl Digest {
    /// The digest of `bytes`, computed on this thread.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Reads the 64 lower-case digits that `Display` writes. Upper case is refused: one chunk has one name.
    pub fn from_hex(text: &[u8]) -> Result<Self, NotADigest> {
        let digits: &[u8; 64] = text.try_into().map_err(|_| NotADigest)?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
            let [high, low] = pair.map(nibble);
            *byte = (high.ok_or(NotADigest)? << 4) | low.ok_or(NotADigest)?;
        }
        Ok(Self(bytes))
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A chunk as a list names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Chunk {
    /// What its bytes hash to.
    pub digest: Digest,
    /// How many they are: 1 to [`CHUNK_BYTES`].
    pub len: u32,
}

impl fmt::Display for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunk {} ({} bytes)", self.digest, self.len)
    }
}

/// Whether all of `bytes` are zero. Stops at the first block that is not.
pub fn is_zero(bytes: &[u8]) -> bool {
    // A block is or-ed together without a branch, so that the compiler makes vector code of it.
    let (blocks, rest) = bytes.as_chunks::<1024>();
    blocks.iter().all(|block| block.iter().fold(0, |all, byte| all | byte) == 0)
        && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back_gives_the_same_digest() {
        let digest = Digest::of(b"some bytes");
        assert_eq!(Digest::from_hex(digest.to_string().as_bytes()), Ok(digest));
    }

    #[test]
    fn a_name_that_is_not_a_digest_is_refused() {
        let good = Digest::of(b"").to_string();
        for bad in ["", &good[1..], &format!("{good}0"), &good.to_uppercase(), &good.replace('a', "g")] {
            assert_eq!(Digest::from_hex(bad.as_bytes()), Err(NotADigest), "{bad}");
        }
    }

    #[test]
    fn one_byte_anywhere_makes_it_not_zero() {
        for len in [1, 1023, 1024, 1025, 5000] {
            let mut bytes = vec![0; len];
            assert!(is_zero(&bytes));
            for at in [0, len / 2, len - 1] {
                bytes[at] = 1;
                assert!(!is_zero(&bytes), "byte {at} of {len}");
                bytes[at] = 0;
            }
        }
        assert!(is_zero(&[]));
    }
}
