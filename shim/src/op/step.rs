//! `step`: lets one held launch through.

use protocol::{Failure, QuiesceReply, StepRequest};
use shim_core::gate;

use super::{Phases, quiesce, release};

/// Opens the memory gate if that is closed, and lets one launch through.
pub(crate) fn run(_: &StepRequest, _: &Phases) -> Result<QuiesceReply, Failure> {
    // Work is going to run that may change what was copied.
    release::forget_copies();
    gate::reopen_memory();
    gate::step();
    Ok(QuiesceReply { drain: quiesce::look() })
}
