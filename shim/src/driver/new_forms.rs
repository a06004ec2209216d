//! Calls of which the program has obtained a form that this library does not know: a driver newer than the list.
//!
//! What such a call allocates or shares is not tracked, so it stands in the way of a suspend. Noting it takes one atomic
//! store: `dlsym` does it too.

use std::sync::atomic::{AtomicBool, Ordering};

use cuda_sys::Class;
use protocol::{Blocker, BlockerKind};
use shim_core::calls::CallId;

/// By place in the list, at the newest form that is known.
static OBTAINED: [AtomicBool; CallId::COUNT] = [const { AtomicBool::new(false) }; CallId::COUNT];

/// Notes that the program has obtained a form of a call that is newer than `known`. Reachable from `resolve`.
pub(crate) fn note(known: CallId) {
    if let Some(obtained) = OBTAINED.get(known.index()) {
        obtained.store(true, Ordering::Release);
    }
}

/// What stands in the way of a suspend: the calls obtained in a newer form, of those that allocate or share.
pub(crate) fn blocker() -> Option<Blocker> {
    let all = CallId::ALL.iter().zip(&OBTAINED);
    let mut calls = all
        .filter(|(call, obtained)| obtained.load(Ordering::Acquire) && allocates_or_shares(**call))
        .map(|(call, _)| call);
    let first = calls.next()?;
    let count = 1 + u64::try_from(calls.count()).unwrap_or(u64::MAX - 1);
    Some(Blocker { kind: BlockerKind::UnknownAbi, count, example: format!("a newer form of {first}") })
}

fn allocates_or_shares(call: CallId) -> bool {
    call.class() == Class::Object || call.name().starts_with("cuMemAlloc")
}
