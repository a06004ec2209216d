//! Tickets among the program's descriptors that have outlived their exporter.

use std::os::fd::{BorrowedFd, RawFd};

use protocol::Unclaimed;
use shim_core::control::socket;

use super::{Claim, read};

/// The memory of such tickets, each once. Descriptors that the program opens or closes meanwhile may be missed.
pub(crate) fn unclaimed() -> Vec<Unclaimed> {
    let mut found: Vec<Unclaimed> = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        let descriptor = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(one) = descriptor.and_then(left_behind) else { continue };
        if found.iter().all(|other| other.id != one.id) {
            found.push(one);
        }
    }
    found
}

/// What a descriptor leads to, if it is such a ticket.
fn left_behind(descriptor: RawFd) -> Option<Unclaimed> {
    let (Claim { id, size, exporter, .. }, vault) = read(descriptor)?;
    // SAFETY: it was a ticket a moment ago; whatever it is now is only asked whether its other end is closed.
    let ticket = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let kept = vault?.look().is_some();
    socket::has_hung_up(ticket).then_some(Unclaimed { id, size, exporter, descriptor, kept })
}
