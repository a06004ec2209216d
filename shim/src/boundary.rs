//! The edge between C and Rust: no panic crosses it, and `errno` is as found.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use cuda_sys::{CuError, CuResult};
use shim_core::calls::CallId;

static POISONED: AtomicBool = AtomicBool::new(false);

/// Whether a panic was caught. The shim then answers calls, but carries out no verb any more.
#[allow(dead_code, reason = "for the verbs")]
pub(crate) fn poisoned() -> bool {
    POISONED.load(Ordering::Relaxed)
}

/// Runs the hook of `call`. A panic becomes `CUDA_ERROR_UNKNOWN` and poisons the shim.
#[inline]
pub(crate) fn run(call: CallId, hook: impl FnOnce() -> CuResult) -> CuResult {
    match catch_unwind(AssertUnwindSafe(hook)) {
        Ok(result) => result,
        Err(_) => panicked(call),
    }
}

#[cold]
fn panicked(_call: CallId) -> CuResult {
    POISONED.store(true, Ordering::Relaxed);
    Err(CuError::UNKNOWN)
}
