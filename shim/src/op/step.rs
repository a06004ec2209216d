//! `step`: lets one held launch through.

use protocol::{Failure, QuiesceReply, StepRequest};
use shim_core::gate;

use super::{Phases, quiesce};

/// Opens the memory gate if that is closed, and lets one launch through.
pub(crate) fn run(_: &StepRequest, _: &Phases) -> Result<QuiesceReply, Failure> {
    gate::reopen_memory();
    gate::step();
    Ok(QuiesceReply { drain: quiesce::look() })
}
