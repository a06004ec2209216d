//! `step`: lets one held launch through.

use protocol::{Failure, GateLevel, QuiesceReply, StepRequest};
use shim_core::gate;

use super::quiesce::{drain, milliseconds, resume_answers};
use super::{Phases, release};

/// Opens the memory gate if that is closed, since a copy may be what is missing; lets one launch through; and waits for
/// the drain.
pub(crate) fn run(request: &StepRequest, _: &Phases) -> Result<QuiesceReply, Failure> {
    // Work is going to run that may change what was copied.
    release::forget_copies();
    // A release that failed before it dropped anything has held them.
    resume_answers();
    gate::reopen_memory();
    gate::step();
    Ok(QuiesceReply { drain: drain(GateLevel::Launch, milliseconds(request.wait_ms)) })
}
