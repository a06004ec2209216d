//! What the process owns, maps and shares: allocations, virtual handles, mappings.
//!
//! An [`Allocation`](record) is physical memory. It has at most one real handle, however many virtual handles the
//! program holds, and keeps it while anything refers to it:
//!
//! ```text
//!   virtual handle --+
//!   mapping ---------+--> allocation --> real handle
//!   call in flight --+        |
//!   ticket held -----+        +--> bytes: live, saved, or elsewhere
//!   binding ---------+
//! ```
//!
//! The last reference gone, the tables hand out a [`Leaving`]: whoever gets it asks the driver to release the real
//! handle and then says [`finish`](World::finish), or [`abort`](World::abort) where the driver refused.
//!
//! What holds:
//! * One leaf mutex. Nothing here calls the driver, and nobody holds the mutex while calling it: what must stay
//!   valid across a driver call is pinned.
//! * The value of a virtual handle is never used twice ([names]), and no driver has it: its upper bits make it an address
//!   that no process can have.
//! * A record changes only after the driver call that it records has succeeded.
//! * Memory is bounded by what has been alive at one time: tables do not shrink. A lookup by handle costs O(1), by address O(log n).

mod access;
mod census;
mod handles;
mod mappings;
mod marks;
mod names;
mod record;
mod sharing;
mod table;
mod team;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use cuda_sys::MemHandle;
use protocol::AllocationId;

pub use access::{Access, Grant};
pub use handles::{Adopted, Gone, Leaving, NotHere, Pin, Release};
pub use mappings::{Mapping, Standing, Taken};
pub use marks::{Bytes, Object, Pinned, View};
pub use team::{Binding, Joined, Multicast, Part};

pub use record::{Attachment, Backing, Contents, Description, Key, Origin, Piece, Place, Saved};

use names::{Name, Names};
use record::{Allocation, Handle};
use table::Table;

/// Everything tracked of one process. `A` is what the shim keeps beside each allocation.
pub struct World<A> {
    state: Mutex<State<A>>,
    /// Told when an allocation has no pins any more.
    unpinned: Condvar,
}

#[derive(Debug)]
struct State<A> {
    /// Each in a place of its own: what comes and goes takes the place that has just become free, which is in the caches still.
    allocations: Table<Key, Box<Allocation<A>>>,
    /// Those that others may ask for.
    published: Table<AllocationId, Key>,
    handles: Table<Name, Handle>,
    mappings: BTreeMap<u64, Mapping>,
    /// Allocations that only a ticket keeps, or whose release the driver refused.
    waiting: BTreeSet<Key>,
    /// The last one a sweep has looked at.
    swept: Option<Key>,
    /// How many allocations there were.
    count: u64,
    allocation_names: Names,
    handle_names: Names,
}

impl<A> World<A> {
    /// An empty world.
    pub fn new() -> Self {
        Self {
            state: Mutex::new(State {
                allocations: Table::default(),
                published: Table::default(),
                handles: Table::default(),
                mappings: BTreeMap::new(),
                waiting: BTreeSet::new(),
                swept: None,
                count: 0,
                allocation_names: Names::default(),
                handle_names: Names::default(),
            }),
            unpinned: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<A>> {
        // A panic under the lock has poisoned the shim as a whole already; hooks go on as well as they can.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<A> Default for World<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A> fmt::Debug for World<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the lock: a log line may be written while it is held.
        f.debug_struct("World").finish_non_exhaustive()
    }
}

/// Upper bits of every virtual handle. No address looks like this on x86-64 or aarch64, with four or with five
/// levels of page tables, so it cannot be a real handle: those are pointers of the driver.
const VIRTUAL: u64 = 0x6e76 << 48;

/// Whether `handle` is one of ours, alive or not.
pub const fn is_virtual(handle: MemHandle) -> bool {
    handle.0 & (0xffff << 48) == VIRTUAL
}
