//! Threads that wait at the gate, each with a seat of its own to sleep on.
//!
//! ```text
//!          sit                  open
//!   FREE ------> TAKEN -> WAITING ------> CALLED --+
//!    ^                       |                     | the thread looks at the gate again
//!    |                       | admit               |
//!    |                       +------> ADMITTED     |
//!    |   leave                           |         |
//!    +-----------------------------------+---------+
//! ```
//!
//! An admitted thread goes through whatever the gate says. It counts as inside until it has left its seat, and
//! it leaves only when its own count says that it is inside: whoever looks at the seats first and at the counts
//! second never misses it. State and call are one number, so that who admits a launch never admits something
//! else that sat down meanwhile.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use super::linux::Linux;
use super::machine::{Atomic, Machine};
use super::rule::Rule;
use crate::calls::CallId;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const WAITING: u32 = 2;
const CALLED: u32 = 3;
const ADMITTED: u32 = 4;

/// A place to wait.
pub(super) struct Seat<M: Machine> {
    /// One of the states in the lowest byte, the call above it.
    pub(super) state: M::U32,
    pub(super) thread: M::U32,
    /// When the thread came, in order of arrival.
    pub(super) arrival: M::U64,
}

/// All seats of the process.
pub(super) struct Waiters<M: Machine, const SEATS: usize> {
    pub(super) seats: [Seat<M>; SEATS],
    pub(super) arrivals: M::U64,
    /// Threads that found no seat and sleep on the gate's word.
    pub(super) standing: M::U32,
}

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Called {
    /// The gate may be open: look.
    Look,
    /// This one call goes through.
    Admitted,
}

impl<M: Machine, const SEATS: usize> Waiters<M, SEATS> {
    /// Waits until it is worth looking at the gate again, whose word was `seen` when it held the call; or until the
    /// thread is admitted. An admitted thread runs `admitted` before it stops counting as such.
    pub(super) fn wait(&self, word: &M::U32, seen: u32, call: CallId, admitted: impl FnOnce()) -> Called {
        let Some(seat) = self.seats.iter().find(|seat| seat.state.replace(FREE, TAKEN)) else {
            self.stand(word, call);
            return Called::Look;
        };
        let waiting = state(WAITING, call);
        seat.thread.store(M::thread(), Relaxed);
        seat.arrival.store(self.arrivals.fetch_add(1, Relaxed), Relaxed);
        seat.state.store(waiting, Release);
        // Either whoever changes the word sees the seat, or the look below sees the change.
        M::full_fence();
        if word.load(Acquire) != seen {
            seat.state.replace(waiting, state(CALLED, call));
        }
        let called = loop {
            let now = seat.state.load(Acquire);
            if now == waiting {
                M::wait(&seat.state, waiting);
            } else if now == state(ADMITTED, call) {
                break Called::Admitted;
            } else {
                break Called::Look;
            }
        };
        if called == Called::Admitted {
            admitted();
        }
        seat.state.store(FREE, Release);
        called
    }

    /// Waits without a seat: nobody can name the thread or admit it alone, but it comes through when the gate opens.
    fn stand(&self, word: &M::U32, call: CallId) {
        self.standing.fetch_add(1, Relaxed);
        // As above: either whoever opens sees that somebody stands, or the look sees the open gate.
        M::full_fence();
        loop {
            let seen = word.load(Acquire);
            if !Rule::of(call).is_held(seen) {
                break;
            }
            M::wait(word, seen);
        }
        self.standing.fetch_sub(1, Relaxed);
    }

    /// After the gate's word has changed: wakes every thread that it no longer holds.
    pub(super) fn open(&self, word: &M::U32) {
        // Pairs with the fence of a thread that sits down.
        M::full_fence();
        let open = word.load(Acquire);
        self.call(|call| !Rule::of(call).is_held(open));
        if self.standing.load(Acquire) != 0 {
            M::wake(word);
        }
    }

    /// After the gate's word has changed: lets threads whose calls `may` go look at it again.
    pub(super) fn call(&self, may: impl Fn(CallId) -> bool) {
        M::full_fence();
        for seat in &self.seats {
            let seen = seat.state.load(Acquire);
            if let Some(call) = waiting_call(seen)
                && may(call)
                && seat.state.replace(seen, state(CALLED, call))
            {
                M::wake(&seat.state);
            }
        }
    }

    /// Lets the one thread through that waits longest with a call that `may` go, and is `thread` if one is named. Whether there
    /// was one.
    pub(super) fn admit(&self, thread: Option<u32>, may: impl Fn(CallId) -> bool) -> bool {
        loop {
            let longest = self
                .seats
                .iter()
                .filter_map(|seat| Some((seat, waiting_call(seat.state.load(Acquire))?)))
                .filter(|(seat, call)| {
                    may(*call) && thread.is_none_or(|thread| thread == seat.thread.load(Relaxed))
                })
                .min_by_key(|(seat, _)| seat.arrival.load(Relaxed));
            let Some((seat, call)) = longest else { return false };
            // Else it was called meanwhile.
            if seat.state.replace(state(WAITING, call), state(ADMITTED, call)) {
                M::wake(&seat.state);
                return true;
            }
        }
    }

    /// Hands the count of every admitted thread that may not yet say itself that it is inside to `see`.
    pub(super) fn for_each_admitted(&self, mut see: impl FnMut(u32)) {
        for seat in &self.seats {
            let seen = seat.state.load(Acquire);
            if let Some(call) = call_of(seen).filter(|call| seen == state(ADMITTED, *call)) {
                see(Rule::of(call).counts);
            }
        }
    }

    /// Hands every thread that waits in a seat, and what it wants, to `see`.
    pub(super) fn for_each_waiting(&self, mut see: impl FnMut(u32, CallId)) {
        for seat in &self.seats {
            if let Some(call) = waiting_call(seat.state.load(Acquire)) {
                see(seat.thread.load(Relaxed), call);
            }
        }
    }

    /// How many threads wait without a seat.
    pub(super) fn standing(&self) -> u32 {
        self.standing.load(Acquire)
    }

    /// In a forked child: nobody waits.
    pub(super) fn forked(&self) {
        for seat in &self.seats {
            seat.state.store(FREE, Release);
        }
        self.standing.store(0, Release);
    }
}

impl<const SEATS: usize> Waiters<Linux, SEATS> {
    /// Seats that nobody has taken.
    pub(super) const fn new() -> Self {
        Self {
            seats: [const { Seat::new() }; SEATS],
            arrivals: AtomicU64::new(0),
            standing: AtomicU32::new(0),
        }
    }
}

impl Seat<Linux> {
    const fn new() -> Self {
        Self { state: AtomicU32::new(FREE), thread: AtomicU32::new(0), arrival: AtomicU64::new(0) }
    }
}

const fn state(state: u32, call: CallId) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "the list has some hundred entries")]
    let call = call.index() as u32;
    state | call << 8
}

fn call_of(seen: u32) -> Option<CallId> {
    CallId::at(seen as usize >> 8)
}

fn waiting_call(seen: u32) -> Option<CallId> {
    call_of(seen).filter(|call| seen == state(WAITING, *call))
}
