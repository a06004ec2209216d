//! Waiting on a word, also between processes.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::thread::futex::{self, Flags, Timespec};

/// Waits while the word has this value, at most this long. May return early.
pub(crate) fn wait(word: &AtomicU32, value: u32, at_most: Option<Duration>) {
    let timeout = at_most.map(|time| Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    });
    // Every caller looks at its condition again, so the reason of the return is of no interest.
    let _ = futex::wait(word, Flags::empty(), value, timeout.as_ref());
}

/// Wakes all who wait on the word, in every process that maps it.
pub(crate) fn wake_all(word: &AtomicU32) {
    // Fails only for an address that is not mapped.
    let _ = futex::wake(word, Flags::empty(), i32::MAX.unsigned_abs());
}
