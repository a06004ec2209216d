//! Whose held call is let through next, so that work which waits for it comes to its end.
//!
//! Work that was let in may wait for work that is held: of another process, or of another thread of the same. What it waits for is
//! the call of a thread that has not come as far. So threads are told apart by whether all that they have launched has ended:
//!
//! * a *free* one has caught up, or its process is idle. Letting it go on cannot go too far: once it is ahead of the others its
//!   own work waits, and it is free no longer. The one that has been so for longest without being let go on comes first, and goes
//!   on until something has changed, or for a while;
//! * an *ahead* one has work that has not ended. It comes where no free one is left, and now and then besides: it may wait for
//!   its own next call (a host function that needs a lock which the thread at the gate holds, a copy on another stream). One that
//!   came to rest by its own call comes before all others the next time, until that helps no more.
//!
//! Groups that have nothing to do with each other may have threads in the same processes, and have to be at rest at the same time.
//! Nobody knows which thread belongs to which group. Any fixed order of turns can come back to where it was with one group
//! at rest and the other not, again and again: so what is let through besides is drawn by chance, which leads to a moment of
//! rest of all from anywhere.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

use crate::pid::Pid;

/// How many calls of one thread are let through before another has its turn.
const RUN: u32 = 4;
/// Of how many turns one is a thread's that is ahead, although others are free; each time in vain doubles it.
const BESIDES: u32 = 8;

/// How often that may halve.
const MOST_IN_VAIN: u32 = 3;

/// A thread with a held call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Caller {
    pub(super) pid: Pid,
    pub(super) tid: i32,
}

/// Threads with held calls that may be let through.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Waiting {
    /// Those whose work has all ended.
    pub(super) free: BTreeSet<Caller>,
    /// Those whose work has not, or of which nobody knows.
    pub(super) ahead: BTreeSet<Caller>,
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// A free thread.
    Free(Caller),
    /// One that is ahead.
    Ahead(Caller),
}

/// The order of turns.
#[derive(Debug)]
pub(super) struct Chase {
    chance: Rng,
    turn: u64,
    /// The last turn at which a thread was ahead or let go on.
    active: BTreeMap<Caller, u64>,
    /// Threads that came to rest when they were let go on last while they were ahead.
    helps_itself: BTreeSet<Caller>,
    /// How often a thread was let go on while it was ahead, and stayed so.
    in_vain: BTreeMap<Caller, u32>,
    /// Who is ahead.
    ahead: BTreeSet<Caller>,
    busy: BTreeSet<Pid>,
    /// Who goes on, and for how many turns already.
    run: Option<(Caller, u32)>,
    /// The thread that was let go on in the last turn while it was ahead.
    went: Option<Caller>,
}

impl Chase {
    /// An order of turns that draws from here.
    pub(super) fn new(chance: Rng) -> Self {
        Self {
            chance,
            turn: 0,
            active: BTreeMap::new(),
            helps_itself: BTreeSet::new(),
            in_vain: BTreeMap::new(),
            ahead: BTreeSet::new(),
            busy: BTreeSet::new(),
            run: None,
            went: None,
        }
    }

    /// The thread whose turn it is. `busy` are all processes that are.
    pub(super) fn next(&mut self, waiting: &Waiting, busy: BTreeSet<Pid>) -> Option<Turn> {
        self.turn += 1;
        if let Some(caller) = self.went.take() {
            if waiting.ahead.contains(&caller) {
                self.helps_itself.remove(&caller);
                *self.in_vain.entry(caller).or_default() += 1;
            } else {
                self.helps_itself.insert(caller);
                self.in_vain.remove(&caller);
            }
        }
        for caller in &waiting.ahead {
            self.active.insert(*caller, self.turn);
        }
        let changed = self.busy != busy || self.ahead != waiting.ahead;
        self.busy = busy;
        self.ahead.clone_from(&waiting.ahead);
        let helps = waiting.ahead.intersection(&self.helps_itself).next().copied();
        let next = match helps {
            Some(caller) => Some(Turn::Ahead(caller)),
            None => self
                .besides(&waiting.ahead)
                .or_else(|| self.free(&waiting.free, changed))
                .or_else(|| self.chance.choice(waiting.ahead.iter().copied()).map(Turn::Ahead)),
        };
        if let Some(Turn::Free(caller)) = next {
            self.active.insert(caller, self.turn);
        }
        next
    }

    /// A thread that is ahead was let go on. It is looked at more patiently first, so its turn may not come about.
    pub(super) fn went(&mut self, caller: Caller) {
        self.went = Some(caller);
    }

    /// A thread that is ahead, now and then; each time that this was in vain makes it half as likely.
    fn besides(&mut self, ahead: &BTreeSet<Caller>) -> Option<Turn> {
        let caller = self.chance.choice(ahead.iter().copied())?;
        let in_vain = self.in_vain.get(&caller).copied().unwrap_or(0);
        let turns = BESIDES << in_vain.min(MOST_IN_VAIN);
        (self.chance.u32(0..turns) == 0).then_some(Turn::Ahead(caller))
    }

    fn free(&mut self, free: &BTreeSet<Caller>, changed: bool) -> Option<Turn> {
        let (caller, count) = match self.run {
            Some((caller, count)) if !changed && count < RUN && free.contains(&caller) => (caller, count + 1),
            _ => {
                let active = |caller: &Caller| self.active.get(caller).copied().unwrap_or(0);
                (free.iter().copied().min_by_key(|caller| (active(caller), *caller))?, 1)
            }
        };
        self.run = Some((caller, count));
        Some(Turn::Free(caller))
    }
}

#[cfg(test)]
mod tests;
