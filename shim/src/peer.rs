//! What this process asks of its peers: a descriptor for an allocation. See [`shim_core::peer`].

use std::os::fd::OwnedFd;
use std::time::Instant;

use protocol::{AllocationId, Secret};
pub(crate) use shim_core::peer::PeerError;

use crate::control::DESCRIPTORS;

/// Asks process `pid` for a descriptor of an allocation; asks again while it answers "not now".
pub(crate) fn export(
    pid: i32,
    allocation: AllocationId,
    secret: Secret,
    deadline: Instant,
) -> Result<OwnedFd, PeerError> {
    shim_core::peer::export(pid, allocation, secret, deadline, &DESCRIPTORS)
}

/// Asks every process that listens here for an allocation whose exporter is gone.
pub(crate) fn find(
    allocation: AllocationId,
    secret: Secret,
    deadline: Instant,
) -> Result<OwnedFd, PeerError> {
    shim_core::peer::find(allocation, secret, deadline, &DESCRIPTORS).map(|(_, descriptor)| descriptor)
}
