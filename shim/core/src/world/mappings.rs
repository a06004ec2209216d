//! Which addresses show which bytes of which allocation.
//!
//! The program's `unmap` takes the records out before the driver is asked and puts them back if it refuses, so that
//! a `map` of another thread, which the driver lets through the moment the range is free, finds room here as well.

use cuda_sys::{AccessDesc, AccessFlags, MemHandle, MemLocation};

use super::access::Access;
use super::handles::{Leaving, Pin};
use super::names::Name;
use super::record::{Attachment, Key};
use super::{State, World};

/// How much of a mapping the driver has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// All of it.
    Live,
    /// Nothing.
    Dropped,
    /// The mapping, but not the access.
    Bare,
}

/// Bytes of an allocation at an address range.
#[derive(Clone, Debug)]
pub struct Mapping {
    pub(super) key: Key,
    /// The virtual handle it was made through.
    pub(super) handle: MemHandle,
    /// Bytes.
    pub(super) len: u64,
    /// The first byte shown, counted from the start of the allocation.
    pub(super) offset: u64,
    pub(super) access: Access,
    pub(super) standing: Standing,
}

/// Mappings taken out of the table while the driver unmaps their range.
#[derive(Debug)]
#[must_use = "mappings are lost unless they are put back or ended"]
pub struct Taken {
    from: u64,
    to: u64,
    mappings: Vec<(u64, Mapping)>,
}

impl<A: Attachment> World<A> {
    /// Records a mapping that the driver has made through a pinned handle. Returns what lost its last reference: the
    /// driver found the range free, so whatever the table still had there is gone.
    pub fn map(&self, pin: &Pin, address: u64, len: u64, offset: u64) -> Vec<Leaving> {
        let mut state = self.lock();
        let stale = state.take(address, address.saturating_add(len));
        let leaving = state.end(stale);
        state.hold(pin.handle, pin.key, pin.imported).mappings += 1;
        let standing = Standing::Live;
        let mapping =
            Mapping { key: pin.key, handle: pin.handle, len, offset, access: Access::none(), standing };
        state.mappings.insert(address, mapping);
        if let Some(allocation) = state.allocations.get_mut(&pin.key) {
            allocation.mappings += 1;
        }
        leaving
    }

    /// Takes out every mapping that overlaps `address..address + len`. They keep their allocations.
    pub fn take(&self, address: u64, len: u64) -> Taken {
        self.lock().take(address, address.saturating_add(len))
    }

    /// Puts back what the driver did not unmap.
    pub fn put_back(&self, taken: Taken) {
        let mut state = self.lock();
        state.mappings.extend(taken.mappings);
    }

    /// Ends the mappings of a range that the driver has unmapped. Returns what lost its last reference.
    pub fn end(&self, taken: Taken) -> Vec<Leaving> {
        self.lock().end(taken)
    }

    /// Records access that the driver has granted.
    pub fn grant(&self, address: u64, len: u64, grants: &[AccessDesc]) {
        let mut state = self.lock();
        let to = address.saturating_add(len);
        let first = state.mapping_at(address).map_or(address, |(start, _)| start);
        for (start, mapping) in state.mappings.range_mut(first..to) {
            let from = address.saturating_sub(*start);
            let until = (to - start).min(mapping.len);
            for grant in grants {
                mapping.access.set(grant.location, from, until, grant.flags);
            }
        }
    }

    /// What `location` may do with the byte at `address`, or `None` where nothing of ours is mapped.
    pub fn access_at(&self, location: MemLocation, address: u64) -> Option<AccessFlags> {
        let state = self.lock();
        let (start, mapping) = state.mapping_at(address)?;
        Some(mapping.access.flags_at(location, address - start))
    }
}

impl<A> State<A> {
    /// The mapping that shows a byte at `address`, with its start.
    pub(super) fn mapping_at(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        (address - start < mapping.len).then_some((*start, mapping))
    }

    fn take(&mut self, from: u64, to: u64) -> Taken {
        let first = self.mapping_at(from).map_or(from, |(start, _)| start);
        let starts: Vec<u64> = if from < to {
            self.mappings.range(first..to).map(|(start, _)| *start).collect()
        } else {
            Vec::new()
        };
        let mappings =
            starts.into_iter().filter_map(|start| Some((start, self.mappings.remove(&start)?))).collect();
        Taken { from, to, mappings }
    }
}

impl<A: Attachment> State<A> {
    fn end(&mut self, taken: Taken) -> Vec<Leaving> {
        let mut leaving = Vec::new();
        for (start, mapping) in taken.mappings {
            // Before the record loses a reference, so that it does not vanish in between.
            self.keep_outside(start, &mapping, taken.from, taken.to);
            if let Some(handle) = self.handles.get_mut(&Name::of(mapping.handle.0)) {
                handle.mappings -= 1;
            }
            if let Some(allocation) = self.allocations.get_mut(&mapping.key) {
                allocation.mappings -= 1;
            }
            self.prune(mapping.handle);
            leaving.extend(self.settle(mapping.key));
        }
        leaving
    }

    /// Records what is left of a mapping outside of `from..to`, for a driver that unmaps a part of one.
    fn keep_outside(&mut self, start: u64, mapping: &Mapping, from: u64, to: u64) {
        let len = mapping.len;
        let before = (0, from.saturating_sub(start).min(len));
        let after = (to.saturating_sub(start).min(len), len);
        for (first, last) in [before, after] {
            if first >= last {
                continue;
            }
            let rest = Mapping {
                len: last - first,
                offset: mapping.offset + first,
                access: mapping.access.cut(first, last),
                ..mapping.clone()
            };
            self.mappings.insert(start + first, rest);
            if let Some(handle) = self.handles.get_mut(&Name::of(mapping.handle.0)) {
                handle.mappings += 1;
            }
            if let Some(allocation) = self.allocations.get_mut(&mapping.key) {
                allocation.mappings += 1;
            }
        }
    }
}
