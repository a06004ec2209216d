//! `export`: hands a peer the driver's own descriptor of an allocation, for whoever knows its secret.
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

/// A descriptor of the allocation.
pub(crate) fn run(request: &ExportRequest, phases: &Phases) -> Result<(ExportReply, OwnedFd), Failure> {
    let phase = phases.get();
    let id = request.allocation;
    let pid = std::process::id();
    let fail = |cause, why: String| Failure { cause, message: format!("process {pid}: {why}"), phase };
    if phase == Phase::Released {
        return Err(fail(Cause::NotNow, format!("allocation {id} is not back yet")));
    }
    let pinned = Real::of_ticket(id, request.secret).map_err(|why| match why {
        NotHere::Dropped => fail(Cause::NotNow, format!("allocation {id} is not back yet")),
        // A wrong secret and a wrong name are answered alike: who guesses learns nothing.
        NotHere::Unknown | NotHere::Secret | NotHere::NotOurs => {
            fail(Cause::Unknown, format!("allocation {id} is not here"))
        }
    })?;
    let driver =
        |error: CuError| fail(Cause::Driver(error.raw()), format!("export of allocation {id}: {error}"));
    let Some(pin) = pinned.pin() else { return Err(driver(CuError::INVALID_VALUE)) };
    export(pin).map_err(driver)?;
    let size = world().describe(pin).map_or(0, |what| what.size);
    let copy = world().attached(pin, |attached| attached.descriptor.as_ref().map(crate::kept::Kept::copy));
    match copy.flatten() {
        Some(Ok(descriptor)) => Ok((ExportReply { size }, descriptor)),
        Some(Err(error)) => {
            let errno = error.raw_os_error().unwrap_or(0);
            Err(fail(
                Cause::System(errno),
                format!("the descriptor of allocation {id} cannot be copied: {error}"),
            ))
        }
        // Dropped between the two looks.
        None => Err(fail(Cause::NotNow, format!("allocation {id} is not back yet"))),
    }
}
