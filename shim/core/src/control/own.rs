//! Which threads of the process are ours: whoever stops the program's threads leaves these alone.
//!
//! A fixed array, written without a lock by the threads themselves: it is read while others may be stopped anywhere.

use std::sync::atomic::{AtomicU64, Ordering};

/// More of ours than this at a time are not listed.
const PLACES: usize = 160;

/// Process and thread id of one of our threads, or 0. A forked child finds its parent's here, and passes them over.
static OWN: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// Keeps the thread that made it on the list.
#[derive(Debug)]
#[must_use = "the thread is on the list as long as this lives"]
pub struct Listed(Option<&'static AtomicU64>);

/// Puts the calling thread on the list.
pub fn list() -> Listed {
    // SAFETY: no preconditions.
    let tid = unsafe { libc::gettid() }.cast_unsigned();
    let own = u64::from(std::process::id()) << 32 | u64::from(tid);
    let free = |found: u64| (found == 0 || !is_of_this_process(found)).then_some(own);
    Listed(OWN.iter().find(|place| place.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).is_ok()))
}

/// The ids of our threads that live.
pub fn threads() -> Vec<i32> {
    let found = OWN.iter().map(|place| place.load(Ordering::Acquire));
    found
        .filter(|place| is_of_this_process(*place))
        .filter_map(|place| i32::try_from(place & u64::from(u32::MAX)).ok())
        .collect()
}

fn is_of_this_process(place: u64) -> bool {
    place >> 32 == u64::from(std::process::id())
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_listed_while_it_lives() {
        let tid = std::thread::scope(|scope| {
            let listed = || {
                let _listed = list();
                // SAFETY: no preconditions.
                let tid = unsafe { libc::gettid() };
                (tid, threads().contains(&tid))
            };
            let (tid, was_listed) = scope.spawn(listed).join().unwrap();
            assert!(was_listed);
            tid
        });
        assert!(!threads().contains(&tid));
    }

    #[test]
    fn the_threads_of_a_parent_are_passed_over_and_their_places_are_free() {
        assert!(is_of_this_process(u64::from(std::process::id()) << 32 | 7));
        let parent = (u64::from(std::process::id()) + 1) << 32;
        for (number, place) in OWN.iter().enumerate() {
            let _ = place.compare_exchange(0, parent | number as u64, Ordering::AcqRel, Ordering::Acquire);
        }
        assert!(threads().len() < PLACES);
        assert!(list().0.is_some());
    }
}
