//! `step`: lets one held call through, or all that touch memory.

use protocol::{Failure, GateLevel, Held, QuiesceReply, StepRequest};
use shim_core::gate;

use super::quiesce::{drain, milliseconds, resume_answers};
use super::{Phases, release};

/// Lets through what is asked for, and waits for the drain.
pub(crate) fn run(request: &StepRequest, _: &Phases) -> Result<QuiesceReply, Failure> {
    // Work is going to run that may change what was copied.
    release::forget_copies();
    // A release that failed before it dropped anything has held them.
    resume_answers();
    match request.held {
        Held::One => _ = gate::step(),
        Held::Thread(thread) => _ = gate::step_thread(thread.cast_unsigned()),
        Held::Memory => gate::reopen_memory(),
    }
    let level = gate::closed().unwrap_or(GateLevel::Launch);
    Ok(QuiesceReply { drain: drain(level, milliseconds(request.wait_ms)) })
}
