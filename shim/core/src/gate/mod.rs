//! The gate between the program's driver calls and a suspend.

use crate::calls::CallId;

/// The right to be inside a driver call; given back on drop.
#[derive(Debug)]
#[must_use = "the call is only counted while the pass is held"]
pub struct Pass(());

/// Takes a pass for `call`. Leaves `errno` as it was.
#[inline]
pub fn enter(_call: CallId) -> Pass {
    Pass(())
}

/// Takes a pass for a call on a stream; `capturing` tells whether that stream records instead of running work.
#[inline]
pub fn enter_on(_call: CallId, _capturing: impl FnOnce() -> bool) -> Pass {
    Pass(())
}

/// Forgets the parent's passes: called in a forked child.
pub fn forked() {}
