//! Why a verb that moves memory failed, and the sentence a user gets.

use core::fmt;

use cuda_sys::CuError;
use protocol::{Cause, Failure, Phase, VerbKind};
use shim_core::world::{Description, Origin};

use crate::peer::PeerError;
use crate::transfer::TransferError;

/// What went wrong with what.
#[derive(Debug)]
pub(crate) struct Trouble {
    object: String,
    why: Why,
}

/// What went wrong.
#[derive(Debug)]
pub(crate) enum Why {
    /// The driver, the system, or a bound, while calls were made or bytes moved.
    Transfer(TransferError),
    /// A peer did not hand out what was asked.
    Peer(PeerError),
    /// A call of the program still uses it.
    InUse,
    /// It cannot be carried.
    Foreign,
    /// This process was named its heir, and does not have it.
    NotHeld,
    /// Memory that is bound to it is not back.
    NotBack,
    /// A device reaches it at another address than before.
    Moved {
        /// Where it was.
        from: u64,
        /// Where it would be, if anywhere.
        to: Option<u64>,
    },
}

impl Trouble {
    /// Trouble with an allocation.
    pub(super) fn with(what: &Description, why: Why) -> Self {
        Self { object: object(what), why }
    }

    /// Trouble with something else.
    pub(super) fn of(object: impl Into<String>, why: Why) -> Self {
        Self { object: object.into(), why }
    }

    /// What the asker is told.
    pub(super) fn failure(&self, verb: &str, phase: Phase) -> Failure {
        let cause = match &self.why {
            Why::Transfer(TransferError::Driver { error, .. }) => Cause::Driver(error.raw()),
            Why::Transfer(TransferError::System { errno, .. }) => Cause::System(*errno),
            Why::Transfer(TransferError::OverLimit { .. }) => Cause::System(libc::ENOMEM),
            Why::Transfer(TransferError::Storage { errno, .. }) => {
                errno.map_or(Cause::Storage, Cause::System)
            }
            Why::Transfer(TransferError::Panicked) => Cause::Poisoned,
            // Of the lane that has failed.
            Why::Transfer(TransferError::Stopped) => Cause::Unknown,
            Why::Peer(_) | Why::Moved { .. } => Cause::Unknown,
            Why::InUse | Why::NotBack => Cause::Busy,
            Why::Foreign => Cause::Blocked,
            Why::NotHeld => Cause::BadRequest,
        };
        let pid = std::process::id();
        let message = format!("process {pid}: {verb} of {}: {}{}", self.object, self.why, self.advice(verb));
        Failure { cause, message, phase }
    }

    /// What to do about it, where that is known.
    fn advice(&self, verb: &str) -> &'static str {
        match &self.why {
            Why::Transfer(TransferError::Driver { error, .. }) if *error == CuError::OUT_OF_MEMORY => {
                "; free memory of the GPU and repeat the command"
            }
            Why::Transfer(TransferError::OverLimit { .. }) => {
                "; free host memory or raise the limit of the cgroup, save to a store with --store, or suspend fewer processes at a time"
            }
            Why::Transfer(TransferError::Storage { .. }) if verb == VerbKind::Load.name() => {
                "; put back what is missing, or name with --store where the store is now"
            }
            Why::Peer(PeerError::TimedOut { .. } | PeerError::Silent { .. }) => {
                "; repeat the command when that process is back"
            }
            _ => "",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transfer(error) => error.fmt(f),
            Self::Peer(error) => error.fmt(f),
            Self::InUse => f.write_str("a call of the program still uses it"),
            Self::Foreign => f.write_str(
                "it was imported from a process without libnvsnap_gpushare.so, and nobody can make it again",
            ),
            Self::NotBack => f.write_str("memory that is to be bound to it is not back"),
            Self::Moved { from, to: Some(to) } => {
                write!(f, "the device would reach it at {to:#x}, and the program has {from:#x}")
            }
            Self::Moved { from, to: None } => {
                write!(f, "the device would not reach it, and the program has {from:#x}")
            }
            Self::NotHeld => f.write_str("this process is to save it, and does not have it"),
        }
    }
}

impl From<TransferError> for Trouble {
    /// Trouble with no object in particular.
    fn from(error: TransferError) -> Self {
        Self::of("all allocations", error.into())
    }
}

impl From<TransferError> for Why {
    fn from(error: TransferError) -> Self {
        Self::Transfer(error)
    }
}

fn object(what: &Description) -> String {
    let origin = match what.origin {
        Origin::Created => "",
        Origin::Imported { .. } => " imported",
        Origin::Foreign => " foreign",
    };
    if let Some(team) = what.multicast {
        return format!(
            "the{origin} multicast object {} ({} devices, {} bytes)",
            what.id, team.devices, what.size
        );
    }
    format!("the{origin} allocation {} ({} bytes on {:?})", what.id, what.size, what.location())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_more_host_memory_than_allowed_ends_with_what_to_do() {
        let trouble = Trouble::from(TransferError::OverLimit { limit: 4096 });
        let failure = trouble.failure("release", Phase::Quiesced);
        assert_eq!(failure.cause, Cause::System(libc::ENOMEM));
        let said = "release of all allocations: more than the allowed 4096 bytes of host memory are needed; free host memory \
                    or raise the limit of the cgroup, save to a store with --store, or suspend fewer processes at a time";
        assert_eq!(failure.message, format!("process {}: {said}", std::process::id()));
    }
}
