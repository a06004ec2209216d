//! Several devices at the same time: each has a lane, and so has memory of the host.
//!
//! A lane is carried out by one thread from its beginning to its end, with a context and a ring of its own. The first lane is
//! the thread's that carries out the verb, so that with one device there is no other. Where the system has no
//! threads for the others, or fewer are allowed, lanes come one after the other.
//!
//! The first error of a lane is the error of all. The others see it between two steps and end as if they had failed.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use cuda_sys::{LocationType, MemLocation};

use super::TransferError;
use super::crew::with_drivers;

/// Whether a lane has failed.
#[derive(Debug, Default)]
pub(crate) struct Stop(AtomicBool);

impl Stop {
    /// An error where another lane has failed: nobody gets to see it.
    pub(crate) fn check(&self) -> Result<(), TransferError> {
        if self.0.load(Ordering::Acquire) { Err(TransferError::Stopped) } else { Ok(()) }
    }

    fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// How many of `count` lanes there may be at once.
pub(crate) fn at_once(count: usize) -> usize {
    crate::config::lanes().map_or(count, |most| count.min(most)).max(1)
}

/// Memory of one group is moved in one lane: that of a device, or all that of the host, which comes last.
pub(crate) fn group(location: MemLocation) -> usize {
    match location.kind {
        LocationType::DEVICE => usize::try_from(location.id).unwrap_or(0),
        _ => usize::MAX,
    }
}

/// Splits up by group.
pub(crate) fn split<T>(items: impl IntoIterator<Item = (usize, T)>) -> Vec<Vec<T>> {
    let mut groups: BTreeMap<usize, Vec<T>> = BTreeMap::new();
    for (group, item) in items {
        groups.entry(group).or_default().push(item);
    }
    groups.into_values().collect()
}

/// Divides `all` among lanes by weight, if all of them run at once, and else evenly. Each gets at least one.
pub(super) fn shares(all: usize, at_once: usize, weights: &[u64]) -> Vec<usize> {
    if at_once < weights.len() {
        return vec![all.checked_div(at_once).unwrap_or(1).max(1); weights.len()];
    }
    let spare = u128::try_from(all.saturating_sub(weights.len())).unwrap_or(0);
    let total: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let share = |weight: &u64| {
        let more = (spare * u128::from(*weight)).checked_div(total).unwrap_or(0);
        1 + usize::try_from(more).unwrap_or(0)
    };
    weights.iter().map(share).collect()
}

/// Carries out lanes, by number, `at_once` at a time, and gives what came of each; or the first error.
pub(crate) fn each<T: Send, E: Send>(
    count: usize,
    at_once: usize,
    run: &(dyn Fn(usize, &Stop) -> Result<T, E> + Sync),
) -> Result<Result<Vec<T>, E>, TransferError> {
    let (next, stop) = (AtomicUsize::new(0), Stop::default());
    let done: Mutex<BTreeMap<usize, T>> = Mutex::default();
    let failed: Mutex<Option<E>> = Mutex::default();
    let panicked = AtomicBool::new(false);
    let work = || {
        while stop.check().is_ok() {
            let lane = next.fetch_add(1, Ordering::Relaxed);
            if lane >= count {
                break;
            }
            match catch_unwind(AssertUnwindSafe(|| run(lane, &stop))) {
                Ok(Ok(came)) => drop(lock(&done).insert(lane, came)),
                Ok(Err(error)) => {
                    // Before the others may fail because of it.
                    lock(&failed).get_or_insert(error);
                    stop.set();
                }
                Err(_) => {
                    panicked.store(true, Ordering::Release);
                    stop.set();
                }
            }
        }
    };
    with_drivers(at_once.min(count).saturating_sub(1), &work, &|| (), work)?;
    if panicked.into_inner() {
        return Err(TransferError::Panicked);
    }
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(failed.map_or_else(|| Ok(done.into_values().collect()), Err))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn lanes_run_at_the_same_time_and_the_first_on_the_calling_thread() {
        let own = std::thread::current().id();
        // Opens only if all are under way together.
        let met = Barrier::new(4);
        let run = |lane: usize, _: &Stop| {
            met.wait();
            Ok::<_, ()>((lane, std::thread::current().id() == own))
        };
        let came = each(4, 4, &run).unwrap().unwrap();
        assert_eq!(came.iter().map(|(lane, _)| *lane).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(came.iter().filter(|(_, is_own)| *is_own).count(), 1);
        let alone = |_: usize, _: &Stop| Ok::<_, ()>(std::thread::current().id() == own);
        assert_eq!(each(1, 1, &alone).unwrap(), Ok(vec![true]));
        assert_eq!(each(3, 1, &alone).unwrap(), Ok(vec![true; 3]), "one after the other");
        assert_eq!(each(0, 0, &alone).unwrap(), Ok(vec![]));
    }

    #[test]
    fn the_first_error_stops_the_others_and_is_the_one_that_is_told() {
        let begun = Barrier::new(2);
        let run = |lane: usize, stop: &Stop| {
            begun.wait();
            if lane == 1 {
                return Err(7);
            }
            while stop.check().is_ok() {
                std::thread::yield_now();
            }
            Err::<(), _>(8)
        };
        assert_eq!(each(2, 2, &run).unwrap(), Err(7));
        let seen = AtomicUsize::new(0);
        let fails = |_: usize, _: &Stop| Err::<(), _>(seen.fetch_add(1, Ordering::Relaxed));
        assert_eq!(each(5, 1, &fails).unwrap(), Err(0));
        assert_eq!(seen.into_inner(), 1, "no other lane is begun");
    }

    #[test]
    fn a_panic_in_a_lane_stops_the_others() {
        let run = |lane: usize, stop: &Stop| {
            if lane == 1 {
                std::panic::resume_unwind(Box::new(()));
            }
            while stop.check().is_ok() {
                std::thread::yield_now();
            }
            Err::<(), _>(())
        };
        assert_eq!(each(2, 2, &run), Err(TransferError::Panicked));
    }

    #[test]
    fn shares_are_by_weight_and_nobody_goes_without() {
        assert_eq!(shares(16, 2, &[1, 1]), [8, 8]);
        assert_eq!(shares(16, 2, &[100, 0]), [15, 1]);
        assert_eq!(shares(16, 1, &[5]), [16]);
        assert_eq!(shares(16, 1, &[5, 1]), [16, 16], "one after the other");
        assert_eq!(shares(1, 3, &[5, 5, 5]), [1, 1, 1]);
        assert_eq!(shares(4, 2, &[0, 0]), [1, 1]);
    }
}
