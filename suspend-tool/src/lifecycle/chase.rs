//! Whose held call is let through next, so that work which waits for it comes to its end.
//!
//! Work that was let in may wait for work of another process that is held: then some processes are busy and stay so. What they
//! wait for is a call that an idle process has not made yet, or that a busy one makes from another thread. Letting calls of
//! idle processes through cannot go too far where all are in one group: a process that has caught up waits itself and is
//! idle no longer. So
//!
//! * the idle process comes first that has been idle for longest without being let go on: it is the one that the
//!   others have been waiting for. It goes on until something has changed, or for a while;
//! * a busy process comes where no idle one is left (several devices in one process, a host function that needs a lock
//!   which a thread at the gate holds), or where it has been busy for long while idle ones went on. It gets longer each
//!   time, since its own next calls may wait for others in their turn. One that came to rest by its own call comes before
//!   all others the next time that it is busy, until that helps no more.

use std::collections::{BTreeMap, BTreeSet};

use crate::pid::Pid;

/// How many calls of one process are let through before another has its turn.
const RUN: u32 = 16;
/// After how many turns a busy process has its own.
const FIRST_PATIENCE: u64 = 8;

/// What is remembered of a process.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The last turn at which it was busy or let go on.
    active: u64,
    /// Since when it has been busy without being let go on.
    busy_since: Option<u64>,
    /// How long it then has to wait for a turn of its own.
    patience: u64,
    /// Whether it came to rest when it was let go on last while it was busy.
    helps_itself: bool,
}

impl Default for Seen {
    fn default() -> Self {
        Self { active: 0, busy_since: None, patience: FIRST_PATIENCE, helps_itself: false }
    }
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// An idle process with a held call.
    Idle(Pid),
    /// A process that is busy, and has a held call too.
    Busy(Pid),
}

/// The order of turns.
#[derive(Debug, Default)]
pub(super) struct Chase {
    turn: u64,
    seen: BTreeMap<Pid, Seen>,
    busy: BTreeSet<Pid>,
    /// Who goes on, and for how many turns already.
    run: Option<(Pid, u32)>,
    /// The busy process that was let go on in the last turn.
    went: Option<Pid>,
}

impl Chase {
    /// The process whose turn it is, among those that have held calls. `busy` are all that are.
    pub(super) fn next(&mut self, held: &[Pid], busy: BTreeSet<Pid>) -> Option<Turn> {
        self.turn += 1;
        if let Some(pid) = self.went.take() {
            self.seen.entry(pid).or_default().helps_itself = !busy.contains(&pid);
        }
        for pid in &busy {
            let seen = self.seen.entry(*pid).or_default();
            seen.active = self.turn;
            seen.busy_since.get_or_insert(self.turn);
        }
        for (_, seen) in self.seen.iter_mut().filter(|(pid, _)| !busy.contains(pid)) {
            seen.busy_since = None;
            seen.patience = FIRST_PATIENCE;
        }
        let changed = std::mem::replace(&mut self.busy, busy) != self.busy;
        let next = self
            .helping_itself(held)
            .or_else(|| self.overdue(held))
            .or_else(|| self.idle(held, changed))
            .or_else(|| self.longest_busy(held));
        match next {
            Some(Turn::Idle(pid)) => self.seen.entry(pid).or_default().active = self.turn,
            // It says by `went` whether it was let go on: it is looked at more patiently first.
            Some(Turn::Busy(_)) | None => {}
        }
        next
    }

    /// A busy process was let go on.
    pub(super) fn went(&mut self, pid: Pid) {
        let seen = self.seen.entry(pid).or_default();
        seen.busy_since = None;
        seen.patience *= 2;
        self.went = Some(pid);
    }

    fn busy_for(&self, pid: Pid) -> u64 {
        let since = self.seen.get(&pid).and_then(|seen| seen.busy_since);
        since.map_or(0, |since| self.turn - since)
    }

    fn helping_itself(&self, held: &[Pid]) -> Option<Turn> {
        let helps =
            |pid: &Pid| self.busy.contains(pid) && self.seen.get(pid).is_some_and(|seen| seen.helps_itself);
        held.iter().copied().find(helps).map(Turn::Busy)
    }

    fn overdue(&self, held: &[Pid]) -> Option<Turn> {
        let patience = |pid: &Pid| self.seen.get(pid).map_or(FIRST_PATIENCE, |seen| seen.patience);
        let overdue = held.iter().copied().filter(|pid| self.busy_for(*pid) >= patience(pid));
        overdue.max_by_key(|pid| self.busy_for(*pid)).map(Turn::Busy)
    }

    fn idle(&mut self, held: &[Pid], changed: bool) -> Option<Turn> {
        let is_idle = |pid: &Pid| held.contains(pid) && !self.busy.contains(pid);
        let (pid, count) = match self.run {
            Some((pid, count)) if !changed && count < RUN && is_idle(&pid) => (pid, count + 1),
            _ => {
                let active = |pid: &Pid| self.seen.get(pid).map_or(0, |seen| seen.active);
                let idle = held.iter().copied().filter(is_idle);
                (idle.min_by_key(|pid| (active(pid), *pid))?, 1)
            }
        };
        self.run = Some((pid, count));
        Some(Turn::Idle(pid))
    }

    fn longest_busy(&self, held: &[Pid]) -> Option<Turn> {
        let busy = held.iter().copied().filter(|pid| self.busy.contains(pid));
        busy.max_by_key(|pid| (self.busy_for(*pid), std::cmp::Reverse(*pid))).map(Turn::Busy)
    }
}

#[cfg(test)]
mod tests;
