//! The tables that nearly every call looks into: by number, in no order.
//!
//! Among 10^5 entries a tree is five levels deep, and the way to a random name leads over as many cold cache lines; here it is
//! one or two. The price is that whoever lists a table sorts it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table.
pub(super) type Table<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;

/// The golden ratio, which keeps numbers that follow each other apart.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes the bits of a number. The keys are counted up by us or random names, so nobody outside gains by choosing them.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(GOLDEN);
    }

    fn write_usize(&mut self, _length: usize) {
        // The length of a name is always the same.
    }

    fn finish(&self) -> u64 {
        // The table looks at the lowest and at the highest bits; a product leaves the lowest to themselves.
        let mixed = (self.0 ^ self.0 >> 32).wrapping_mul(GOLDEN);
        mixed ^ mixed >> 32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::hash::BuildHasher;

    use super::*;
    use crate::world::names::Name;

    /// Places of a table with room for twice as many, and the tags by which it tells entries of one place apart.
    fn spread(hashes: impl Iterator<Item = u64>) -> (usize, usize) {
        let (mut places, mut tags) = (BTreeSet::new(), BTreeSet::new());
        for hash in hashes {
            places.insert(hash % (1 << 17));
            tags.insert(hash >> 57);
        }
        (places.len(), tags.len())
    }

    #[test]
    fn numbers_in_a_row_and_names_are_spread_over_the_table() {
        let hash = BuildHasherDefault::<Mix>::default();
        for (places, tags) in [
            spread((0..1 << 16).map(|number| hash.hash_one(Name::of(number)))),
            // Names that differ in their last bytes only, which is worse than random.
            spread(
                (0..1_u128 << 16)
                    .map(|number| hash.hash_one(protocol::AllocationId((number << 112).to_le_bytes()))),
            ),
        ] {
            // Thrown at random they would take 51,600 places.
            assert!(places > 45_000 && tags == 128, "{places} places, {tags} tags");
        }
    }
}
