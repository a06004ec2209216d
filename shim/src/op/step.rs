//! `step`: lets one held launch through.

use protocol::{Failure, GateLevel, QuiesceReply, StepRequest};
use shim_core::gate;

use super::Phases;
use super::quiesce::{drain, milliseconds};

/// Opens the memory gate if that is closed, since a copy may be what is missing; lets one launch through; and waits for
/// the drain.
pub(crate) fn run(request: &StepRequest, _: &Phases) -> Result<QuiesceReply, Failure> {
    gate::reopen_memory();
    gate::step();
    Ok(QuiesceReply { drain: drain(GateLevel::Launch, milliseconds(request.wait_ms)) })
}
