//! Errors that end a test.
//!
//! A machine that goes out of scope insists on a clean log of violations. Where the test is ending with an error already, that error
//! is what has to be seen; so every error made here is noted, and silences the other.

use std::cell::Cell;

thread_local!(static FAILED: Cell<bool> = const { Cell::new(false) });

/// Notes that this test is failing.
pub(crate) fn noted(error: anyhow::Error) -> anyhow::Error {
    FAILED.set(true);
    error
}

/// Whether this test is failing.
pub(crate) fn is_failing() -> bool {
    FAILED.get() || std::thread::panicking()
}

/// Returns with an error that is noted.
macro_rules! fail {
    ($($text:tt)+) => {
        return Err($crate::failure::noted(anyhow::anyhow!($($text)+)))
    };
}
pub(crate) use fail;
