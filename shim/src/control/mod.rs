//! The control server of this process: [`shim_core::control`] with the verbs behind it.
//!
//! Started once per process generation, when the program's own `cuInit` has succeeded; a forked child lets go of
//! all of it and begins anew with its own `cuInit`.

use core::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};

use protocol::{ExportReply, ExportRequest, Failure, InspectRequest, Inventory, Reply, Request};
use shim_core::control::{Descriptors, Limits, Operations, Phases, Server};

use crate::{boundary, op, world};

/// Where the process stands.
static PHASES: Phases = Phases::new();

/// What a forked child has to close.
pub(crate) static DESCRIPTORS: Descriptors = Descriptors::new();

const STOPPED: u8 = 0;
const STARTED: u8 = 1;

/// Whether this generation's server runs, or is being started.
static STATE: AtomicU8 = AtomicU8::new(STOPPED);

/// Starts the control server, once per process generation. Called when the program's `cuInit` has succeeded, on
/// its thread; the driver answers, and is not locked by anybody.
pub(crate) fn start() {
    if STATE.compare_exchange(STOPPED, STARTED, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    op::inspect::read_driver();
    let pid = std::process::id().cast_signed();
    match Server::start(pid, &Verbs, &PHASES, &DESCRIPTORS, Limits::DEFAULT) {
        Ok(name) => log!("listening on @{name}"),
        Err(error) => {
            // The program goes on; its next `cuInit` tries again.
            log!("no control server, so this process cannot be suspended: {error}");
            STATE.store(STOPPED, Ordering::Release);
        }
    }
}

/// Lets go of the parent's threads and sockets: called in a forked child, where the threads do not exist. Takes no
/// lock and allocates nothing.
pub(crate) fn forked() {
    DESCRIPTORS.forked();
    PHASES.forked();
    op::inspect::forked();
    STATE.store(STOPPED, Ordering::Release);
}

struct Verbs;

impl Operations for Verbs {
    fn inspect(&self, request: InspectRequest) -> Result<Inventory, Failure> {
        Ok(op::inspect::run(&request, &PHASES))
    }

    fn change(&self, request: &Request, phases: &Phases) -> Result<Reply, Failure> {
        op::change(request, phases)
    }

    fn export(&self, request: ExportRequest) -> Result<(ExportReply, OwnedFd), Failure> {
        op::export::run(&request, &PHASES)
    }

    fn has(&self, request: &ExportRequest) -> Result<(), Failure> {
        op::export::has(request, &PHASES)
    }

    fn tend(&self) -> bool {
        world::tend()
    }

    fn poisoned(&self) -> bool {
        boundary::poisoned().is_some()
    }

    fn poison(&self) {
        // The panic hook has done it, and has logged where.
    }

    fn note(&self, line: fmt::Arguments<'_>) {
        log!("{line}");
    }
}
