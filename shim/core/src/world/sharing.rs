//! Allocations that only a ticket keeps, and what is attached to each.
//!
//! A native descriptor keeps memory alive after its exporter let go of handle and mapping. So does a ticket, but
//! nobody tells when its last descriptor is closed: such allocations wait here until a sweep finds them unheld.

use core::ops::Bound::{Excluded, Unbounded};

use super::World;
use super::handles::{Leaving, Pin};
use super::record::{Attachment, Description, Key};

impl<A: Attachment> World<A> {
    /// Looks at what is attached to a pinned allocation.
    pub fn attached<T>(&self, pin: &Pin, look: impl FnOnce(&mut A) -> T) -> Option<T> {
        self.lock().allocations.get_mut(&pin.key).map(|allocation| look(&mut allocation.attached))
    }

    /// What a pinned allocation is.
    pub fn describe(&self, pin: &Pin) -> Option<Description> {
        self.lock().allocations.get(&pin.key).map(|allocation| allocation.what)
    }

    /// The same for whoever is going to tell others of it: from here on they find it by its id.
    pub fn publish(&self, pin: &Pin) -> Option<Description> {
        self.lock().publish(pin.key)
    }

    /// The same for what is mapped at an address.
    pub fn publish_at(&self, address: u64) -> Option<Description> {
        let mut state = self.lock();
        let key = state.mapping_at(address)?.1.key;
        state.publish(key)
    }

    /// Remembers that a raw descriptor, or a handle of a kind that cannot be carried, was handed out.
    pub fn mark_raw(&self, pin: &Pin) {
        if let Some(allocation) = self.lock().allocations.get_mut(&pin.key) {
            allocation.raw = true;
        }
    }

    /// Whether anything waits for a sweep.
    pub fn waits(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Looks at up to `limit` waiting allocations, going round from sweep to sweep, and lets go of those that nobody
    /// holds.
    pub fn sweep(&self, limit: usize) -> Vec<Leaving> {
        let mut state = self.lock();
        let last = state.swept.map_or(Unbounded, Excluded);
        let behind = state.waiting.range((last, Unbounded));
        let before = state.swept.into_iter().flat_map(|last| state.waiting.range(..=last));
        let keys: Vec<Key> = behind.chain(before).take(limit).copied().collect();
        state.swept = keys.last().copied();
        keys.into_iter().filter_map(|key| state.settle(key)).collect()
    }
}
