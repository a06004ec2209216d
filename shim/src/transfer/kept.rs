//! Host memory that is kept from one suspend in place to the next.
//!
//! Each object keeps its room. The next time its bytes are compared with what is there: what is equal is not written
//! again, and what is not goes to pages that exist, which is what costs most of a first time. Where the device has told
//! the digest of a grain, that is what is compared, and an equal grain is not even copied. A room goes with its object,
//! or with the first suspend that does not keep any.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shim_core::world::Key;

use super::GRAIN;
use super::arena::Arena;

/// Where the bytes of one object go.
#[derive(Debug)]
pub(super) struct Room {
    arena: Arc<Arena>,
    start: u64,
    /// Which grains were written. Empty where nobody is going to ask.
    grains: Vec<AtomicBool>,
    digests: Mutex<Digests>,
}

/// What is known of grains, by where they begin.
#[derive(Debug, Default)]
struct Digests {
    /// Of what is in the room.
    there: BTreeMap<u64, [u8; 32]>,
    /// Of what is on its way to it.
    coming: BTreeMap<u64, [u8; 32]>,
}

impl Room {
    /// Room in `arena` from `start` on; `kept` bytes of it may be asked for later.
    pub(super) fn new(arena: &Arc<Arena>, start: u64, kept: u64) -> Self {
        let count = usize::try_from(kept).unwrap_or(usize::MAX).div_ceil(GRAIN);
        let grains = (0..count).map(|_| AtomicBool::new(false)).collect();
        Self { arena: Arc::clone(arena), start, grains, digests: Mutex::default() }
    }

    /// The place of `len` bytes of the object from `at` on.
    pub(super) fn place(&self, at: u64, len: usize) -> Option<*mut u8> {
        let start = usize::try_from(self.start.checked_add(at)?).ok()?;
        let inside = start.checked_add(len).is_some_and(|end| end <= self.arena.len);
        inside.then(|| self.arena.base.wrapping_add(start))
    }

    fn grain(&self, at: u64) -> Option<&AtomicBool> {
        self.grains.get(usize::try_from(at).ok()? / GRAIN)
    }

    /// Whether the bytes of that digest are in the grain at `at`. Where they are not, they are expected there.
    pub(super) fn has(&self, at: u64, digest: [u8; 32]) -> bool {
        if self.grain(at).is_none() {
            return false;
        }
        let mut digests = self.digests();
        let is_there = digests.there.get(&at) == Some(&digest);
        if !is_there {
            digests.coming.insert(at, digest);
        }
        is_there
    }

    /// The grain at `at` is about to be written: from here on nothing is known of it.
    pub(super) fn opened(&self, at: u64) {
        self.digests().there.remove(&at);
    }

    fn digests(&self) -> MutexGuard<'_, Digests> {
        self.digests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the grain at `at` was written before.
    pub(super) fn is_filled(&self, at: u64) -> bool {
        self.grain(at).is_some_and(|grain| grain.load(Ordering::Relaxed))
    }

    /// The grain at `at` has the bytes that came for it.
    pub(super) fn filled(&self, at: u64) {
        if let Some(grain) = self.grain(at) {
            grain.store(true, Ordering::Relaxed);
            let mut digests = self.digests();
            if let Some(digest) = digests.coming.remove(&at) {
                digests.there.insert(at, digest);
            }
        }
    }

    /// What did not come is not expected any more.
    pub(super) fn settle(&self) {
        self.digests().coming = BTreeMap::new();
    }

    fn bytes(&self) -> u64 {
        let filled = self.grains.iter().filter(|grain| grain.load(Ordering::Relaxed)).count();
        u64::try_from(filled.saturating_mul(GRAIN)).unwrap_or(u64::MAX)
    }

    /// Gives its pages back. Its arena stays as long as other rooms are in it.
    fn empty(self) {
        for (number, _) in self.grains.iter().enumerate() {
            let at = u64::try_from(number.saturating_mul(GRAIN)).unwrap_or(u64::MAX);
            if self.is_filled(at)
                && let Some(place) = self.place(at, GRAIN)
            {
                // SAFETY: whole pages of an arena that belong to this room alone, and no record names them.
                unsafe { libc::madvise(place.cast(), GRAIN, libc::MADV_DONTNEED) };
            }
        }
    }
}

/// The rooms, and the process they belong to: a forked child has none of them.
static ROOMS: Mutex<(u32, BTreeMap<Key, Room>)> = Mutex::new((0, BTreeMap::new()));

fn with<R>(look: impl FnOnce(&mut BTreeMap<Key, Room>) -> R) -> R {
    let own = std::process::id();
    let mut rooms = ROOMS.lock().unwrap_or_else(PoisonError::into_inner);
    if rooms.0 != own {
        // The parent's, which this process does not have.
        core::mem::forget(core::mem::replace(&mut *rooms, (own, BTreeMap::new())));
    }
    look(&mut rooms.1)
}

/// The room that an object had the last time.
pub(super) fn take(object: Key) -> Option<Room> {
    with(|rooms| rooms.remove(&object))
}

/// Keeps rooms.
pub(super) fn keep(new: impl Iterator<Item = (Key, Room)>) {
    with(|rooms| rooms.extend(new.inspect(|(_, room)| room.settle())));
}

/// Whether an object's room is kept.
pub(super) fn has(object: Key) -> bool {
    with(|rooms| rooms.contains_key(&object))
}

/// How many bytes are kept.
pub(crate) fn bytes() -> u64 {
    with(|rooms| rooms.values().map(Room::bytes).sum())
}

/// Gives back the rooms of all objects but those in `living`.
pub(crate) fn retain(living: &BTreeSet<Key>) {
    let gone = with(|rooms| {
        let all = core::mem::take(rooms);
        let (stay, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            all.into_iter().partition(|(key, _)| living.contains(key));
        *rooms = stay;
        gone
    });
    gone.into_values().for_each(Room::empty);
}
