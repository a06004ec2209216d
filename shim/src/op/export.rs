//! `export`: hands a peer the driver's own descriptor of an allocation, or the vault it lies in, for whoever knows its secret.
//!
//! Runs on the peer thread, while the program makes calls and while this process imports from others itself: the
//! allocation is pinned, nothing is locked across the driver call, and no peer is waited for.

use std::os::fd::OwnedFd;

use cuda_sys::CuError;
use protocol::{Cause, ExportReply, ExportRequest, Failure, Phase};
use shim_core::world::NotHere;

use super::Phases;
use crate::hooks::vmm::export;
use crate::world::{Real, world};

/// Whether the allocation is here, for whoever knows its secret.
pub(crate) fn has(request: &ExportRequest, phases: &Phases) -> Result<(), Failure> {
    world().has_ticket(request.allocation, request.secret).map_err(|why| nothing(request, phases.get(), why))
}

/// A descriptor of the allocation.
pub(crate) fn run(request: &ExportRequest, phases: &Phases) -> Result<(ExportReply, OwnedFd), Failure> {
    let phase = phases.get();
    let id = request.allocation;
    let pid = std::process::id();
    let fail = |cause, why: String| Failure { cause, message: format!("process {pid}: {why}"), phase };
    let unfound = |why| nothing(request, phase, why);
    if phase == Phase::Released {
        has(request, phases)?;
        return Err(unfound(NotHere::Dropped));
    }
    let pinned = Real::of_ticket(id, request.secret).map_err(unfound)?;
    let driver =
        |error: CuError| fail(Cause::Driver(error.raw()), format!("export of allocation {id}: {error}"));
    let Some(pin) = pinned.pin() else { return Err(driver(CuError::INVALID_VALUE)) };
    export(pin).map_err(driver)?;
    let size = world().describe(pin).map_or(0, |what| what.size);
    match world().attached(pin, |attached| attached.lend()).flatten() {
        Some(Ok(descriptor)) => Ok((ExportReply { size }, descriptor)),
        Some(Err(error)) => {
            let errno = error.raw_os_error().unwrap_or(0);
            Err(fail(
                Cause::System(errno),
                format!("the descriptor of allocation {id} cannot be copied: {error}"),
            ))
        }
        // Dropped between the two looks.
        None => Err(unfound(NotHere::Dropped)),
    }
}

/// The answer where there is nothing to hand out.
fn nothing(request: &ExportRequest, phase: Phase, why: NotHere) -> Failure {
    let (cause, what) = match why {
        NotHere::Dropped => (Cause::NotNow, "not back yet"),
        // A wrong secret and a wrong name are answered alike: who guesses learns nothing.
        NotHere::Unknown | NotHere::Secret | NotHere::NotOurs => (Cause::Unknown, "not here"),
    };
    let (pid, id) = (std::process::id(), request.allocation);
    Failure { cause, message: format!("process {pid}: allocation {id} is {what}"), phase }
}
