//! `reopen`: opens all gates.

use protocol::{Failure, ReopenReply, ReopenRequest};
use shim_core::gate;

use super::{Phases, release};
use crate::{answers, callers};

/// Opens the gates.
pub(crate) fn run(_: &ReopenRequest, _: &Phases) -> Result<ReopenReply, Failure> {
    let mut waiting = 0_u32;
    let standing = gate::waiting(|_| waiting += 1);
    release::forget_copies();
    gate::open();
    answers::forget();
    callers::forget();
    Ok(ReopenReply { waiting: waiting + standing })
}
