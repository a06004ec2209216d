//! `quiesce`: closes gates.

use protocol::{Cause, Drain, Failure, QuiesceReply, QuiesceRequest, WaitingThread};
use shim_core::gate;

use super::Phases;

/// Closes the gates up to the level asked for.
pub(crate) fn run(request: &QuiesceRequest, phases: &Phases) -> Result<QuiesceReply, Failure> {
    gate::close(request.level).map_err(|error| Failure {
        cause: Cause::System(error.0),
        message: format!("process {}: {error}", std::process::id()),
        phase: phases.get(),
    })?;
    Ok(QuiesceReply { drain: look() })
}

/// What is inside the gated calls and what waits for them.
pub(crate) fn look() -> Drain {
    let mut waiting = Vec::new();
    gate::waiting(|seen| {
        waiting.push(WaitingThread { tid: seen.thread.cast_signed(), call: seen.call.name().to_owned() });
    });
    let inside = gate::inside();
    Drain { waiting, inside: inside.launches + inside.objects, ..Drain::default() }
}
