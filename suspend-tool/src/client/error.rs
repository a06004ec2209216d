//! Why a shim could not be asked, or did not do what it was asked.

use std::io;
use std::time::Duration;

use protocol::{BodyError, Cause, EncodeError, Failure, FrameError, Phase, Reason, Unreachable};

use crate::pid::Pid;

/// Why a request to a process came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    /// No shim of that process was reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// The process ended while it was asked.
    #[error("process {pid} ended during `{verb}`")]
    Died {
        /// The process.
        pid: Pid,
        /// The verb.
        verb: &'static str,
    },
    /// It did not answer in time.
    #[error("process {pid} did not answer `{verb}` within {:.1} s", .limit.as_secs_f32())]
    Late {
        /// The process.
        pid: Pid,
        /// The verb.
        verb: &'static str,
        /// How long was waited.
        limit: Duration,
    },
    /// It came to a standstill.
    #[error("`{verb}` in process {pid} moved no byte for {} s", .limit.as_secs())]
    Stalled {
        /// The process.
        pid: Pid,
        /// The verb.
        verb: &'static str,
        /// For how long.
        limit: Duration,
    },
    /// The connection failed.
    #[error("the connection to process {pid} failed at `{verb}`")]
    Connection {
        /// The process.
        pid: Pid,
        /// The verb.
        verb: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// What came back is no answer.
    #[error("the answer of process {pid} to `{verb}` cannot be used")]
    Frame {
        /// The process.
        pid: Pid,
        /// The verb.
        verb: &'static str,
        /// What is wrong.
        source: FrameError,
    },
    /// The answer has no meaning.
    #[error("the answer of process {pid} to `{verb}` cannot be read")]
    Malformed {
        /// The process.
        pid: Pid,
        /// The verb.
        verb: &'static str,
        /// What is wrong.
        source: BodyError,
    },
    /// The answer is to something else.
    #[error("process {pid} answered something else than `{verb}`")]
    Unasked {
        /// The process.
        pid: Pid,
        /// The verb.
        verb: &'static str,
    },
    /// The request cannot be put into a frame.
    #[error("the request `{verb}` for process {pid} cannot be sent")]
    Unsendable {
        /// The process.
        pid: Pid,
        /// The verb.
        verb: &'static str,
        /// What is wrong.
        source: EncodeError,
    },
    /// The process carried the request out, and failed.
    #[error("{}", told(*.pid, .verb, .failure))]
    Refused {
        /// The process.
        pid: Pid,
        /// The verb.
        verb: &'static str,
        /// Its own words.
        failure: Failure,
    },
}

/// What a process says of itself begins with its number, which is not told twice.
fn told(pid: Pid, verb: &str, failure: &Failure) -> String {
    let words = failure.message.strip_prefix(&format!("process {pid}: ")).unwrap_or(&failure.message);
    format!("`{verb}` failed in process {pid}: {words}")
}

impl ShimError {
    /// Whether the process is gone for good.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Died { .. } | Self::Unreachable(Unreachable { reason: Reason::NoProcess, .. }))
    }

    /// Where the process says it stands after a failure.
    pub fn phase(&self) -> Option<Phase> {
        match self {
            Self::Refused { failure, .. } => Some(failure.phase),
            _ => None,
        }
    }

    /// The kind of failure that the process reports.
    pub fn cause(&self) -> Option<Cause> {
        match self {
            Self::Refused { failure, .. } => Some(failure.cause),
            _ => None,
        }
    }
}
