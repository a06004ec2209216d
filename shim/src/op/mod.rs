//! What the verbs do: one module each.
//!
//! The control server ([`shim_core::control`]) sees to their order, to the phase before and after, and to it that one
//! runs at a time. A verb acts on what is marked, so it may be repeated; the reverse verbs are the rollback.

mod ahead;
pub(crate) mod export;
pub(crate) mod inspect;
pub(crate) mod load;
mod pinned;
pub(crate) mod quiesce;
mod register;
pub(crate) mod release;
pub(crate) mod remap;
mod reopen;
mod step;
mod storage;
mod team;
mod trouble;
mod views;

use protocol::{Cause, Extent, Failure, Reply, Request, Transferred};
pub(crate) use shim_core::control::Phases;

/// Carries out a verb that changes the process. Runs on the worker thread.
pub(crate) fn change(request: &Request, phases: &Phases) -> Result<Reply, Failure> {
    match request {
        Request::Quiesce(request) => quiesce::run(request, phases).map(Reply::Quiesce),
        Request::Step(request) => step::run(request, phases).map(Reply::Step),
        Request::Release(request) => match request.extent {
            Extent::Save => release::save(request, phases).map(|bytes| Transferred { bytes, mappings: 0 }),
            Extent::Drop => release::run(request, phases),
        }
        .map(Reply::Release),
        Request::Stage(request) => storage::stage(&request.from, request.limits)
            .map(Reply::Stage)
            .map_err(|trouble| trouble.failure("stage", phases.get())),
        Request::Load(request) => load::run(request, phases).map(Reply::Load),
        Request::Remap(request) => remap::run(request, phases).map(Reply::Remap),
        Request::Reopen(request) => reopen::run(request, phases).map(Reply::Reopen),
        Request::Inspect(_) | Request::Export(_) => Err(Failure {
            cause: Cause::BadRequest,
            message: format!("{} changes nothing", request.verb().name()),
            phase: phases.get(),
        }),
    }
}
