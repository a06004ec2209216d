//! What a suspend has done to each object: the marks that `release` sets and `load` and `remap` take away.
//!
//! ```text
//!   bytes      Live --copied--> Copied --dropped--> Saved --filled--> Live        (own memory, and an heir's)
//!              Live --lend----> Elsewhere ----------------imported--> Live        (imports)
//!   backing    Live --dropped--> Dropped --created--> Live
//!   mapping    Live --unmapped--> Dropped --mapped--> Bare --granted--> Live
//! ```
//!
//! Every mark is set after its driver call has succeeded, and every verb acts on exactly what is marked: so a verb
//! may be repeated, and the reverse verbs undo a release that stopped half way. An import is `Elsewhere` from the
//! moment that anybody may drop the memory, also while its real handle is still live: such a handle is stale.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cuda_sys::MemHandle;
use protocol::AllocationId;

use super::access::Grant;
use super::mappings::Standing;
use super::record::{Allocation, Attachment, Backing, Contents, Description, Key, Origin, Saved};
use super::{State, World};

/// Where the bytes of an allocation are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bytes {
    /// In the memory.
    Live,
    /// In the memory, and in a copy that stays good while nothing runs.
    Copied,
    /// In the copy alone.
    Saved,
    /// With another process.
    Elsewhere,
}

/// An allocation as a verb sees it.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// Which.
    pub key: Key,
    /// What it is.
    pub what: Description,
    /// Whether the driver has it.
    pub backing: Backing,
    /// Where its bytes are.
    pub bytes: Bytes,
}

impl Object {
    /// Whether this process saves the bytes: its own memory, and what it is the heir of.
    pub fn kept_by(&self, heir_of: &[AllocationId]) -> bool {
        self.what.origin == Origin::Created || heir_of.contains(&self.what.id)
    }
}

/// A mapping as a verb sees it.
#[derive(Clone, Debug)]
pub struct View {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// First byte of the allocation.
    pub offset: u64,
    /// How much of it the driver has.
    pub standing: Standing,
    /// Who may access what.
    pub grants: Vec<Grant>,
}

/// A call in flight still uses the real handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pinned;

impl<A: Attachment> World<A> {
    /// All allocations, oldest first.
    pub fn objects(&self) -> Vec<Object> {
        let object = |key: &Key, allocation: &Allocation<A>| Object {
            key: *key,
            what: allocation.what,
            backing: allocation.backing,
            bytes: allocation.bytes(),
        };
        let state = self.lock();
        let living = state.allocations.iter().filter(|(_, allocation)| !allocation.leaving);
        let mut objects: Vec<Object> = living.map(|(key, allocation)| object(key, allocation)).collect();
        drop(state);
        objects.sort_unstable_by_key(|object| object.key);
        objects
    }

    /// All mappings by allocation, each list in the order of addresses.
    pub fn views(&self) -> BTreeMap<Key, Vec<View>> {
        let mut views: BTreeMap<Key, Vec<View>> = BTreeMap::new();
        for (address, mapping) in &self.lock().mappings {
            views.entry(mapping.key).or_default().push(View {
                address: *address,
                len: mapping.len,
                offset: mapping.offset,
                standing: mapping.standing,
                grants: mapping.access.grants().to_vec(),
            });
        }
        views
    }

    /// The copy of an allocation's bytes.
    pub fn saved(&self, key: Key) -> Option<Saved> {
        let state = self.lock();
        let allocation = state.allocations.get(&key)?;
        match &allocation.contents {
            Contents::Saved(saved) => Some(saved.clone()),
            _ => allocation.copy.clone(),
        }
    }

    /// Records a copy of bytes that are still live.
    pub fn copied(&self, key: Key, copy: Saved) {
        self.change(key, |allocation| {
            allocation.contents = Contents::Live;
            allocation.copy = Some(copy);
        });
    }

    /// Forgets the copies of bytes that are still live: they may change from here on.
    pub fn forget_copies(&self) {
        for allocation in self.lock().allocations.values_mut() {
            allocation.copy = None;
        }
    }

    /// Whether any bytes are in a copy alone.
    pub fn any_saved(&self) -> bool {
        self.lock().allocations.values().any(|allocation| matches!(allocation.contents, Contents::Saved(_)))
    }

    /// From here on others may drop what this process has imported: every import is another one's, except for those
    /// that it is the heir of.
    pub fn lend(&self, heir_of: &[AllocationId]) {
        for allocation in self.lock().allocations.values_mut() {
            let own = allocation.what.origin == Origin::Created || heir_of.contains(&allocation.what.id);
            if allocation.contents != Contents::Live {
                continue;
            }
            if !own {
                allocation.contents = Contents::Elsewhere;
                allocation.copy = None;
            } else if allocation.what.multicast.is_some() {
                // Nothing to copy, and so nothing to wait for.
                allocation.contents = Contents::Saved(Saved::default());
            }
        }
    }

    /// Takes back what [`lend`](Self::lend) says of multicast objects that the driver still has: they are dropped by all or
    /// by none, so nobody has dropped them.
    pub fn keep_objects(&self) {
        for allocation in self.lock().allocations.values_mut() {
            if allocation.what.multicast.is_some() && matches!(allocation.backing, Backing::Live(_)) {
                allocation.contents = Contents::Live;
            }
        }
    }

    /// Refuses new pins and waits until the last one is gone, for at most `wait`. Then the real handle is the
    /// caller's to release, until [`dropped`](Self::dropped) or [`admit`](Self::admit).
    pub fn withhold(&self, key: Key, wait: Duration) -> Result<Option<MemHandle>, Pinned> {
        let until = Instant::now() + wait;
        let mut state = self.lock();
        loop {
            let Some(allocation) = state.allocations.get_mut(&key) else { return Ok(None) };
            allocation.withheld = true;
            if allocation.pins == 0 {
                return Ok(match allocation.backing {
                    Backing::Live(real) => Some(real),
                    Backing::Dropped => None,
                });
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                allocation.withheld = false;
                return Err(Pinned);
            }
            state =
                self.unpinned.wait_timeout(state, left).unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }

    /// Allows pins again: the driver did not take the handle back.
    pub fn admit(&self, key: Key) {
        self.change(key, |allocation| allocation.withheld = false);
    }

    /// The driver has taken the real handle back.
    pub fn dropped(&self, key: Key) {
        self.change(key, |allocation| {
            allocation.withheld = false;
            allocation.backing = Backing::Dropped;
            allocation.part.joined.iter_mut().for_each(|joined| joined.live = false);
            allocation.part.bindings.iter_mut().for_each(|binding| binding.live = false);
            if allocation.contents == Contents::Live {
                allocation.contents = match allocation.copy.take() {
                    Some(copy) => Contents::Saved(copy),
                    None => Contents::Elsewhere,
                };
            }
        });
    }

    /// The driver has made the memory again. Its bytes are still in the copy.
    pub fn created(&self, key: Key, real: MemHandle) {
        self.change(key, |allocation| allocation.backing = Backing::Live(real));
    }

    /// The bytes are in the memory again.
    pub fn filled(&self, key: Key) -> Option<Saved> {
        let mut state = self.lock();
        let allocation = state.allocations.get_mut(&key)?;
        match std::mem::replace(&mut allocation.contents, Contents::Live) {
            Contents::Saved(saved) => Some(saved),
            _ => None,
        }
    }

    /// The memory was imported again, with its bytes.
    pub fn imported(&self, key: Key, real: MemHandle) {
        self.change(key, |allocation| {
            allocation.backing = Backing::Live(real);
            allocation.contents = Contents::Live;
        });
    }

    /// Records how much of the mapping at `address` the driver has.
    pub fn stand(&self, address: u64, standing: Standing) {
        if let Some(mapping) = self.lock().mappings.get_mut(&address) {
            mapping.standing = standing;
        }
    }

    /// Looks at what is attached to an allocation.
    pub fn attached_to<T>(&self, key: Key, look: impl FnOnce(&mut A) -> T) -> Option<T> {
        self.lock().allocations.get_mut(&key).map(|allocation| look(&mut allocation.attached))
    }

    fn change(&self, key: Key, change: impl FnOnce(&mut Allocation<A>)) {
        let mut state: std::sync::MutexGuard<'_, State<A>> = self.lock();
        if let Some(allocation) = state.allocations.get_mut(&key) {
            change(allocation);
        }
    }
}

impl<A> Allocation<A> {
    pub(super) fn bytes(&self) -> Bytes {
        match (&self.contents, &self.copy) {
            (Contents::Live, None) => Bytes::Live,
            (Contents::Live, Some(_)) => Bytes::Copied,
            (Contents::Saved(_), _) => Bytes::Saved,
            (Contents::Elsewhere, _) => Bytes::Elsewhere,
        }
    }
}
