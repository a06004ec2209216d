//! How long an answer is waited for.

use std::time::Duration;

/// When to stop waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// After this time.
    For(Duration),
    /// When the process reports no progress for this time: moving bytes takes as long as it takes.
    WhileMoving(Duration),
}
