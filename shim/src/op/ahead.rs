//! Descriptors for imports, asked for by a few threads before they are needed.
//!
//! An answer goes through three threads of the peer and takes a tenth of a millisecond, most of it in waking them up; to import and map
//! what came takes as long. So the one goes on beside the other. Nobody gets further than some objects ahead of the imports:
//! descriptors are few, and a peer serves others too.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::transfer::TransferError;
use crate::transfer::crew::with_threads;

/// Threads that ask. A peer has room for 64 connections, and there may be 16 processes.
const THREADS: usize = 4;
/// How far they may be ahead.
const AHEAD: usize = 32;
/// With fewer objects, to start threads takes longer than to ask.
const WORTH_IT: usize = 8;

struct Desk<'a, T> {
    count: usize,
    ask: &'a (dyn Fn(usize) -> T + Sync),
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    /// The first that nobody asks for yet.
    next: usize,
    /// How many have been taken.
    taken: usize,
    /// What has come. Nothing, where a thread panicked over it.
    there: BTreeMap<usize, Option<T>>,
    closed: bool,
}

/// Calls `take` with a source of answers, to be drawn in order: `ask` is called once for each of `count` numbers, beside `take`
/// or by it. Those that `take` leaves may or may not be asked for.
pub(super) fn ahead<T: Send, R>(
    count: usize,
    ask: &(dyn Fn(usize) -> T + Sync),
    take: impl FnOnce(&dyn Fn() -> Result<T, TransferError>) -> R,
) -> Result<R, TransferError> {
    let state = State { next: 0, taken: 0, there: BTreeMap::new(), closed: false };
    let desk = Desk { count, ask, state: Mutex::new(state), changed: Condvar::new() };
    let threads = if count < WORTH_IT { 0 } else { THREADS };
    with_threads(threads, &|| desk.work(), &|| desk.close(), || take(&|| desk.draw()))
}

impl<T> Desk<'_, T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'g>(&self, state: MutexGuard<'g, State<T>>) -> MutexGuard<'g, State<T>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// What a thread does.
    fn work(&self) {
        let mut state = self.lock();
        while !state.closed && state.next < self.count {
            if state.next >= state.taken + AHEAD {
                state = self.wait(state);
                continue;
            }
            let number = state.next;
            state.next += 1;
            drop(state);
            let came = catch_unwind(AssertUnwindSafe(|| (self.ask)(number))).ok();
            state = self.lock();
            state.there.insert(number, came);
            self.changed.notify_all();
        }
    }

    /// The next answer.
    fn draw(&self) -> Result<T, TransferError> {
        let mut state = self.lock();
        let number = state.taken;
        state.taken += 1;
        self.changed.notify_all();
        if state.next <= number {
            state.next = number + 1;
            drop(state);
            return Ok((self.ask)(number));
        }
        loop {
            if let Some(came) = state.there.remove(&number) {
                return came.ok_or(TransferError::Panicked);
            }
            state = self.wait(state);
        }
    }

    /// Nothing further is asked for.
    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn answers_come_in_order_and_each_is_asked_for_once() {
        for count in [0, 1, WORTH_IT, 500] {
            let asked: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            let ask = |number: usize| {
                asked[number].fetch_add(1, Ordering::Relaxed);
                number
            };
            let drawn =
                ahead(count, &ask, |draw| (0..count).map(|_| draw().unwrap()).collect::<Vec<_>>()).unwrap();
            assert!(drawn.into_iter().eq(0..count));
            assert!(asked.iter().all(|asked| asked.load(Ordering::Relaxed) == 1));
        }
    }

    #[test]
    fn whoever_stops_early_leaves_most_of_it_unasked() {
        let asked = AtomicUsize::new(0);
        let ask = |_| asked.fetch_add(1, Ordering::Relaxed);
        ahead(10_000, &ask, |draw| draw().map(drop)).unwrap().unwrap();
        assert!(asked.into_inner() <= 1 + AHEAD);
    }

    #[test]
    fn a_panic_over_one_is_an_error_of_that_one() {
        let asked = AtomicUsize::new(0);
        let ask = |number: usize| {
            asked.fetch_add(1, Ordering::Relaxed);
            if number == AHEAD / 2 {
                std::panic::resume_unwind(Box::new(()));
            }
            number
        };
        let drawn = ahead(AHEAD, &ask, |draw| {
            // Until the threads have asked for all of them: what the taker asks for itself is not theirs.
            while asked.load(Ordering::Relaxed) < AHEAD {
                std::thread::yield_now();
            }
            (0..AHEAD).map(|_| draw().ok()).collect::<Vec<_>>()
        });
        let drawn = drawn.unwrap();
        let missing: Vec<usize> = (0..AHEAD).filter(|number| drawn[*number] != Some(*number)).collect();
        assert_eq!(missing, [AHEAD / 2]);
    }
}
