//! Names that are never used twice, for places that are.
//!
//! A table finds an entry by a hash of its name. A name that was never there before leads to a place that no cache knows, once
//! the table has outgrown the caches; so only the part of a name that counts places is hashed, and whoever comes next gets the
//! place that has become free last.

use core::hash::{Hash, Hasher};

/// Bits that count places: as many may be in use at a time.
const PLACE_BITS: u32 = 28;
/// Bits of a name. A place whose uses they cannot count any further is given up.
const BITS: u32 = 48;

/// A place, and above it how often it was used before. 0 is nobody's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Name(u64);

impl Name {
    /// The name in the lowest bits of a number.
    pub(super) const fn of(number: u64) -> Self {
        Self(number & ((1 << BITS) - 1))
    }

    /// The number, with no bit set above the lowest 48.
    pub(super) const fn number(self) -> u64 {
        self.0
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0 & ((1 << PLACE_BITS) - 1));
    }
}

/// Gives names out, and takes them back.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// What the places that are free are called next.
    free: Vec<Name>,
    /// Places that were ever used.
    used: u64,
}

impl Names {
    /// A name for the place that has become free last, or for a new one.
    pub(super) fn take(&mut self) -> Name {
        self.free.pop().unwrap_or_else(|| {
            self.used += 1;
            Name(self.used)
        })
    }

    /// The place of that name is free. Once for each name.
    pub(super) fn give_back(&mut self, name: Name) {
        let next = name.0 + (1 << PLACE_BITS);
        if next >> BITS == 0 {
            self.free.push(Name(next));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const PLACE: u64 = (1 << PLACE_BITS) - 1;

    #[test]
    fn a_place_is_used_again_and_its_name_is_not() {
        let mut names = Names::default();
        let (first, second) = (names.take(), names.take());
        assert_eq!((first, second), (Name(1), Name(2)));
        let mut seen = BTreeSet::from([first, second]);
        let mut last = second;
        for _ in 0..1000 {
            names.give_back(last);
            last = names.take();
            assert!(seen.insert(last) && last.0 & PLACE == 2, "{last:?}");
        }
        assert_eq!(names.take(), Name(3));
    }

    #[test]
    fn a_place_that_was_used_too_often_is_given_up() {
        let mut names = Names::default();
        let last = Name(u64::MAX >> (64 - BITS));
        names.give_back(last);
        assert_eq!(names.take(), Name(1));
        names.give_back(Name(last.0 - (1 << PLACE_BITS)));
        assert_eq!(names.take(), last);
    }
}
