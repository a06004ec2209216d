//! Where threads write down which calls they are inside of.
//!
//! A thread takes a slot of its own at its first call and keeps it; only the owner writes the slot's count, so
//! that plain stores do. Nothing tells when a thread ends (a destructor would have to be registered in every
//! thread of the program), so when all slots are taken, those of dead threads are taken over. A thread that
//! finds none even so uses one of a few shared slots, whose counts are added to and subtracted from, and keeps
//! its own count itself.
//!
//! An owner is a thread's name and a number that changes each time the slot changes hands: a name comes back
//! when its thread is dead, and with it alone two threads could both believe they took over the slot.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use super::linux::Linux;
use super::machine::{Atomic, Local, Machine};

/// One thread's count, or a shared one. On cache lines of its own: processors fetch them in pairs.
#[repr(align(128))]
pub(super) struct Slot<M: Machine> {
    /// The calls that the owner is inside of.
    pub(super) count: M::U32,
    /// Changes of hands in the upper half, the thread's name in the lower; 0 is nobody.
    pub(super) owner: M::U64,
}

/// All slots of the process.
pub(super) struct Slots<M: Machine, const OWN: usize, const SHARED: usize> {
    pub(super) own: [Slot<M>; OWN],
    pub(super) shared: [Slot<M>; SHARED],
    /// How many of the first slots were ever taken.
    pub(super) used: M::U32,
}

/// A thread's slot.
pub(super) enum Place<'a, M: Machine> {
    /// Its own.
    Own(&'a Slot<M>),
    /// One that it shares.
    Shared(&'a Slot<M>),
}

impl<M: Machine, const OWN: usize, const SHARED: usize> Slots<M, OWN, SHARED> {
    /// The slot that a thread owns, from what the thread keeps. `None` when it has none or a shared one.
    #[inline(always)]
    pub(super) fn own(&self, place: u32) -> Option<&Slot<M>> {
        self.own.get((place as usize).wrapping_sub(1))
    }

    /// The calling thread's slot, taken if it has none yet.
    pub(super) fn place(&self, local: &Local) -> Place<'_, M> {
        if local.place.get() == 0 {
            local.place.set(self.claim(M::thread()));
        }
        let at = (local.place.get() as usize).wrapping_sub(1);
        match self.own.get(at) {
            Some(slot) => Place::Own(slot),
            None => Place::Shared(self.shared(at)),
        }
    }

    fn shared(&self, at: usize) -> &Slot<M> {
        #[allow(
            clippy::indexing_slicing,
            reason = "a remainder is below the length, which is a constant above 0"
        )]
        &self.shared[at % SHARED]
    }

    /// Finds a place for the thread: one more than an index into the own slots, or anything beyond those.
    fn claim(&self, thread: u32) -> u32 {
        loop {
            // A slot that bears the thread's own name was a namesake's, which must be dead.
            if let Some(at) = self.take(thread, |owner| owner == 0 || owner == thread) {
                return at + 1;
            }
            if !self.open_up() {
                break;
            }
        }
        match self.take(thread, |owner| !M::is_alive(owner)) {
            Some(at) => at + 1,
            // Spreads threads over the shared slots; every value from here on is beyond the own ones.
            None => index_of(OWN + thread as usize % SHARED) + 1,
        }
    }

    /// Takes the first of the opened slots whose owner is free to be replaced.
    fn take(&self, thread: u32, is_free: impl Fn(u32) -> bool) -> Option<u32> {
        let used = self.used.load(Acquire) as usize;
        for (at, slot) in self.own.iter().enumerate().take(used) {
            let owner = slot.owner.load(Acquire);
            if is_free(name_of(owner)) && slot.owner.replace(owner, handed_to(owner, thread)) {
                // What a dead thread was inside of, it never leaves.
                slot.count.store(0, Relaxed);
                return Some(index_of(at));
            }
        }
        None
    }

    /// Makes one more slot available. Whether there was one.
    fn open_up(&self) -> bool {
        let used = self.used.load(Acquire);
        // Where another thread was faster, it is that thread's slot or a free one: look again.
        let more = (used as usize) < OWN;
        if more {
            self.used.replace(used, used + 1);
        }
        more
    }

    /// Hands every count that may be more than nothing to `see`. A dead thread's count is left out.
    pub(super) fn for_each_count(&self, mut see: impl FnMut(u32)) {
        let used = self.used.load(Acquire) as usize;
        for slot in self.own.iter().take(used) {
            let count = slot.count.load(Acquire);
            if count != 0 && M::is_alive(name_of(slot.owner.load(Acquire))) {
                see(count);
            }
        }
        for slot in &self.shared {
            see(slot.count.load(Acquire));
        }
    }

    /// In a forked child, on its only thread: forgets all but that thread, which may be inside of calls.
    pub(super) fn forked(&self, local: &Local) {
        let mine = (local.place.get() as usize).wrapping_sub(1);
        for (at, slot) in self.own.iter().enumerate() {
            if at == mine {
                slot.owner.store(handed_to(0, M::thread()), Release);
            } else {
                slot.owner.store(0, Relaxed);
                slot.count.store(0, Release);
            }
        }
        for slot in &self.shared {
            slot.count.store(0, Release);
        }
        if mine != usize::MAX && self.own.get(mine).is_none() {
            self.shared(mine).count.store(local.count.get(), Release);
        }
    }
}

impl<const OWN: usize, const SHARED: usize> Slots<Linux, OWN, SHARED> {
    /// Slots that nobody has taken.
    pub(super) const fn new() -> Self {
        Self {
            own: [const { Slot::new() }; OWN],
            shared: [const { Slot::new() }; SHARED],
            used: AtomicU32::new(0),
        }
    }
}

impl Slot<Linux> {
    const fn new() -> Self {
        Self { count: AtomicU32::new(0), owner: AtomicU64::new(0) }
    }
}

impl<M: Machine> Place<'_, M> {
    /// What the calling thread is inside of.
    pub(super) fn count(&self, local: &Local) -> u32 {
        match self {
            Self::Own(slot) => slot.count.load(Relaxed),
            Self::Shared(_) => local.count.get(),
        }
    }

    /// Adds a call to what the calling thread is inside of.
    pub(super) fn add(&self, local: &Local, call: u32) {
        match self {
            Self::Own(slot) => slot.count.store(slot.count.load(Relaxed) + call, Release),
            Self::Shared(slot) => {
                local.count.set(local.count.get() + call);
                slot.count.fetch_add(call, Release);
            }
        }
    }

    /// Takes it away again.
    pub(super) fn subtract(&self, local: &Local, call: u32) {
        match self {
            Self::Own(slot) => slot.count.store(slot.count.load(Relaxed) - call, Release),
            Self::Shared(slot) => {
                local.count.set(local.count.get() - call);
                slot.count.fetch_sub(call, Release);
            }
        }
    }
}

const fn name_of(owner: u64) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "the lower half is what is asked for")]
    {
        owner as u32
    }
}

const fn handed_to(owner: u64, thread: u32) -> u64 {
    ((owner >> 32).wrapping_add(1) << 32) | thread as u64
}

const fn index_of(at: usize) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "the tables have far fewer entries")]
    {
        at as u32
    }
}
