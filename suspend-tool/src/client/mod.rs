//! The other end of the control protocol: one request to one process, and its reply.
//!
//! [`Shims`] carries frames, so that tests stand in for processes; [`Ask`] ties the frames to the types of a verb.
//! The real carrier is [`Sockets`].

mod error;
mod patience;
mod socket;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use protocol::{Frame, FrameKind, Verb, VerbKind};

pub use error::ShimError;
pub use patience::Patience;
pub use socket::{Sockets, Watcher};

use crate::pid::Target;

/// Carries requests to the shims of processes.
pub trait Shims: Send + Sync {
    /// Sends the frame of a request and waits for the frame that answers it.
    fn exchange(
        &self,
        target: Target,
        verb: VerbKind,
        request: &[u8],
        patience: Patience,
    ) -> Result<Frame, ShimError>;
}

/// Asks for a verb by its types.
pub trait Ask {
    /// Sends the request of `V` and waits for its reply.
    fn ask<V: Verb>(
        &self,
        target: Target,
        request: &V::Request,
        patience: Patience,
    ) -> Result<V::Reply, ShimError>;

    /// The same for a verb that does not take long by its nature.
    fn ask_within<V: Verb>(
        &self,
        target: Target,
        request: &V::Request,
        limit: Duration,
    ) -> Result<V::Reply, ShimError> {
        self.ask::<V>(target, request, Patience::For(limit))
    }
}

/// The id of the next request. 0 would be nobody's.
static NEXT: AtomicU32 = AtomicU32::new(1);

impl<S: Shims + ?Sized> Ask for S {
    fn ask<V: Verb>(
        &self,
        target: Target,
        request: &V::Request,
        patience: Patience,
    ) -> Result<V::Reply, ShimError> {
        let pid = target.pid;
        let verb = V::KIND.name();
        let id = NEXT.fetch_add(1, Ordering::Relaxed).max(1);
        let bytes = protocol::encode_request::<V>(id, request).map_err(|source| ShimError::Unsendable {
            pid,
            verb,
            source,
        })?;
        let frame = self.exchange(target, V::KIND, &bytes, patience)?;
        let header = frame.header;
        let refused = header.kind == FrameKind::Failure && header.id == protocol::UNASKED;
        if !refused && (header.id != id || header.verb != V::KIND as u8) {
            return Err(ShimError::Unasked { pid, verb });
        }
        let malformed = |source| ShimError::Malformed { pid, verb, source };
        match header.kind {
            FrameKind::Reply => protocol::decode_reply::<V>(&frame.body).map_err(malformed),
            FrameKind::Failure | FrameKind::Request => {
                let failure = protocol::decode_failure(&frame.body).map_err(malformed)?;
                Err(ShimError::Refused { pid, verb, failure })
            }
        }
    }
}
