//! Carrying a verb out: may it begin, which phase holds meanwhile, which afterwards.

use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use protocol::{
    Cause, ExportReply, ExportRequest, Extent, Failure, GateLevel, InspectRequest, LoadExtent, Phase, Reply,
    Request, Turn, VerbKind,
};

use super::{Operations, Phases};

/// Why `verb` may not begin; `running` is the verb that is being carried out.
pub(super) fn objection(
    operations: &dyn Operations,
    phases: &Phases,
    verb: VerbKind,
    running: Option<VerbKind>,
) -> Option<Failure> {
    let (phase, pid) = (phases.get(), std::process::id());
    let object = |cause, message| Some(Failure { cause, message, phase });
    if let Some(running) = running {
        let message = format!("process {pid} is busy with {}: ask again when it is done", running.name());
        return object(Cause::Busy, message);
    }
    // A program whose gates are closed and which has lost nothing yet is let go in any case.
    let lets_go = verb == VerbKind::Reopen && phase != Phase::Remapped;
    if operations.poisoned() && !lets_go {
        let message = format!(
            "process {pid} hit an internal error of libnvsnap_gpushare.so earlier and is not suspended or \
             resumed any more; NVSNAP_GPUSHARE_LOG tells where"
        );
        return object(Cause::Poisoned, message);
    }
    if phase.after(verb).is_none() {
        let allowed: Vec<&str> =
            Phase::ALL.into_iter().filter(|phase| phase.after(verb).is_some()).map(Phase::name).collect();
        let message = format!(
            "process {pid} is {}; {} is for a process that is {}",
            phase.name(),
            verb.name(),
            allowed.join(" or ")
        );
        return object(Cause::WrongPhase, message);
    }
    None
}

/// Carries out a verb that changes the process. The caller has seen to it that there is no objection.
pub(super) fn change(
    operations: &dyn Operations,
    phases: &Phases,
    request: &Request,
) -> Result<Reply, Failure> {
    let (verb, before) = (request.verb(), phases.get());
    phases.begin(verb);
    if let Some(meanwhile) = meanwhile(before, verb) {
        phases.set(meanwhile);
    }
    let done = guarded(operations, phases, verb, || operations.change(request, phases));
    if let Ok(reply) = &done {
        phases.set(afterwards(before, request, reply));
    }
    phases.end();
    done
}

/// The phase while a verb is carried out, where that is not the phase before it. A gate that has begun to close
/// shows at once, also to whoever has to undo it when the verb fails.
const fn meanwhile(before: Phase, verb: VerbKind) -> Option<Phase> {
    match (before, verb) {
        (Phase::Running, VerbKind::Quiesce) | (Phase::Quiesced, VerbKind::Step) => Some(Phase::Quiescing),
        _ => None,
    }
}

/// The phase after a verb has succeeded. Closing the gates succeeds before all work has drained, and a release that
/// was only to save has dropped nothing; a load that was only to make memory has filled none; a remap that stops for
/// others goes on later.
fn afterwards(before: Phase, request: &Request, reply: &Reply) -> Phase {
    match (request, reply) {
        (Request::Quiesce(asked), Reply::Quiesce(found)) => {
            let closed = asked.level == GateLevel::Memory || before == Phase::Quiesced;
            if closed && found.drain.drained { Phase::Quiesced } else { Phase::Quiescing }
        }
        (Request::Release(asked), _) if asked.extent == Extent::Save => before,
        (Request::Load(asked), _) if asked.extent == LoadExtent::Make => before,
        (Request::Remap(asked), _) if asked.turn != Turn::Map => before,
        _ => before.after(request.verb()).unwrap_or(before),
    }
}

/// Hands out a descriptor to a peer.
pub(super) fn export(
    operations: &dyn Operations,
    phases: &Phases,
    request: ExportRequest,
) -> Result<(ExportReply, OwnedFd), Failure> {
    guarded(operations, phases, VerbKind::Export, || operations.export(request))
}

/// Whether what a peer asks for is here.
pub(super) fn has(
    operations: &dyn Operations,
    phases: &Phases,
    request: &ExportRequest,
) -> Result<(), Failure> {
    guarded(operations, phases, VerbKind::Export, || operations.has(request))
}

/// Lists what the process holds.
pub(super) fn inspect(
    operations: &dyn Operations,
    phases: &Phases,
    request: InspectRequest,
) -> Result<Reply, Failure> {
    guarded(operations, phases, VerbKind::Inspect, || operations.inspect(request)).map(Reply::Inspect)
}

/// Runs `body`; a panic in it is a failure, and poisons the process. The failure tells the phase after it.
fn guarded<T>(
    operations: &dyn Operations,
    phases: &Phases,
    verb: VerbKind,
    body: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        operations.poison();
        let message = format!(
            "process {} hit an internal error of libnvsnap_gpushare.so in {}; NVSNAP_GPUSHARE_LOG tells where",
            std::process::id(),
            verb.name()
        );
        Err(Failure { cause: Cause::Poisoned, message, phase: phases.get() })
    });
    result.map_err(|failure| Failure { phase: phases.get(), ..failure })
}
