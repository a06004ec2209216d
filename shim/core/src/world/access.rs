//! Who may access a mapping, and how: per location and per sub-range.
//!
//! Grants of one location never overlap and neighbours with equal flags are one grant, so the list stays as short
//! as what the program said. A later grant replaces an earlier one of the same location where they overlap, `NONE`
//! removes, and other locations are left alone: that is how the driver adds them up.

use cuda_sys::{AccessFlags, LocationType, MemLocation};

/// Access of one location to the bytes `from..to` of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Who.
    pub location: MemLocation,
    /// First byte, counted from the start of the mapping.
    pub from: u64,
    /// One past the last byte.
    pub to: u64,
    /// How. Never `NONE`.
    pub flags: AccessFlags,
}

/// The grants of one mapping, sorted by location and start.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Access(Vec<Grant>);

/// Locations in an order, and equal where the driver ignores the id.
fn name(location: MemLocation) -> (u32, i32) {
    match location.kind {
        LocationType::HOST | LocationType::HOST_NUMA_CURRENT => (location.kind.0, 0),
        kind => (kind.0, location.id),
    }
}

impl Access {
    /// No access for anybody.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// The grants, sorted by location and start.
    pub fn grants(&self) -> &[Grant] {
        &self.0
    }

    /// What `location` may do with the byte at `at`.
    pub fn flags_at(&self, location: MemLocation, at: u64) -> AccessFlags {
        let after =
            self.0.partition_point(|grant| (name(grant.location), grant.from) <= (name(location), at));
        match after.checked_sub(1).and_then(|before| self.0.get(before)) {
            Some(grant) if name(grant.location) == name(location) && at < grant.to => grant.flags,
            _ => AccessFlags::NONE,
        }
    }

    /// Sets what `location` may do with the bytes `from..to`.
    pub fn set(&mut self, location: MemLocation, from: u64, to: u64, flags: AccessFlags) {
        if from >= to {
            return;
        }
        let who = name(location);
        // Everything of this location that overlaps or touches `from..to`.
        let first = self.0.partition_point(|grant| (name(grant.location), grant.to) < (who, from));
        let last = self.0.partition_point(|grant| (name(grant.location), grant.from) <= (who, to)).max(first);
        let mut new = Grant { location, from, to, flags };
        let mut pieces = [None, None, None];
        for old in self.0.get(first..last).unwrap_or_default() {
            if old.flags == flags {
                new.from = new.from.min(old.from);
                new.to = new.to.max(old.to);
                continue;
            }
            if old.from < from {
                pieces[0] = Some(Grant { to: old.to.min(from), ..*old });
            }
            if old.to > to {
                pieces[2] = Some(Grant { from: old.from.max(to), ..*old });
            }
        }
        if flags != AccessFlags::NONE {
            pieces[1] = Some(new);
        }
        self.0.splice(first..last, pieces.into_iter().flatten());
    }

    /// The grants of the bytes `from..to`, counted from `from`: what is left of a mapping that was cut.
    #[must_use]
    pub fn cut(&self, from: u64, to: u64) -> Self {
        let inside = |grant: &Grant| {
            let (start, end) = (grant.from.max(from), grant.to.min(to));
            (start < end).then(|| Grant { from: start - from, to: end - from, ..*grant })
        };
        Self(self.0.iter().filter_map(inside).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GPU0: MemLocation = MemLocation { kind: LocationType::DEVICE, id: 0 };
    const GPU1: MemLocation = MemLocation { kind: LocationType::DEVICE, id: 1 };

    #[test]
    fn a_later_grant_adds_and_none_removes() {
        let mut access = Access::none();
        access.set(GPU0, 0, 8, AccessFlags::READ_WRITE);
        access.set(GPU1, 0, 8, AccessFlags::READ);
        access.set(GPU0, 2, 4, AccessFlags::NONE);
        let grant = |location, from, to, flags| Grant { location, from, to, flags };
        assert_eq!(
            access.grants(),
            [
                grant(GPU0, 0, 2, AccessFlags::READ_WRITE),
                grant(GPU0, 4, 8, AccessFlags::READ_WRITE),
                grant(GPU1, 0, 8, AccessFlags::READ),
            ]
        );
    }

    #[test]
    fn neighbours_with_equal_flags_are_one_grant() {
        let mut access = Access::none();
        for at in (0..100).rev() {
            access.set(GPU0, at, at + 1, AccessFlags::READ_WRITE);
        }
        assert_eq!(access.grants().len(), 1);
    }

    #[test]
    fn the_id_of_the_host_says_nothing() {
        let mut access = Access::none();
        access.set(MemLocation { kind: LocationType::HOST, id: 0 }, 0, 8, AccessFlags::READ);
        let host = MemLocation { kind: LocationType::HOST, id: 77 };
        assert_eq!(access.flags_at(host, 3), AccessFlags::READ);
    }

    fn location() -> impl Strategy<Value = MemLocation> {
        (
            prop_oneof![Just(LocationType::DEVICE), Just(LocationType::HOST), Just(LocationType::HOST_NUMA)],
            0..2,
        )
            .prop_map(|(kind, id)| MemLocation { kind, id })
    }

    fn flags() -> impl Strategy<Value = AccessFlags> {
        prop_oneof![Just(AccessFlags::NONE), Just(AccessFlags::READ), Just(AccessFlags::READ_WRITE)]
    }

    proptest! {
        /// Against one cell per byte and location.
        #[test]
        fn grants_add_up_byte_by_byte(
            steps in prop::collection::vec((location(), 0_u64..24, 0_u64..24, flags()), 0..24),
            cut in (0_u64..24, 0_u64..24),
        ) {
            let mut access = Access::none();
            let mut cells = std::collections::BTreeMap::new();
            for (location, from, to, flags) in steps {
                access.set(location, from, to, flags);
                for at in from..to {
                    cells.insert((name(location), at), flags);
                }
            }
            for kind in [LocationType::DEVICE, LocationType::HOST, LocationType::HOST_NUMA] {
                for id in 0..2 {
                    let location = MemLocation { kind, id };
                    for at in 0..24 {
                        let told = cells.get(&(name(location), at)).copied().unwrap_or_default();
                        prop_assert_eq!(access.flags_at(location, at), told);
                        let inside = cut.0 <= at && at < cut.1;
                        let rest = access.cut(cut.0, cut.1).flags_at(location, at.wrapping_sub(cut.0));
                        prop_assert_eq!(rest, if inside { told } else { AccessFlags::NONE });
                    }
                }
            }
            for pair in access.grants().windows(2) {
                let touching = name(pair[0].location) == name(pair[1].location) && pair[0].to >= pair[1].from;
                prop_assert!(!touching || (pair[0].to == pair[1].from && pair[0].flags != pair[1].flags));
            }
        }
    }
}
