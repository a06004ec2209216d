//! The control protocol between the command, the shims, and the shims among each other.
//!
//! Verbs are pairs of types, [`Phase`] has one transition table, a frame has one header. There are no threads
//! and no sockets here: who reads and writes bytes is the business of the two ends.

mod exchange;
mod frame;
mod inventory;
mod message;
mod name;
mod phase;
mod reach;
mod storage;
mod turn;
mod verb;

pub use exchange::{Answer, Exchange, ExchangeError, UNASKED};
pub use frame::{Decoder, Frame, FrameError, FrameKind, Header, MAGIC, REPLY_LIMIT, REQUEST_LIMIT, Side};
pub use inventory::{
    Allocation, Blocker, BlockerKind, BusyStream, Contents, ContextState, DeviceInfo, Drain, DriverMemory,
    Inventory, Native, Origin, Progress, Team, Unclaimed, WaitingThread,
};
pub use message::{
    BodyError, EncodeError, decode_failure, decode_reply, decode_request, encode_failure, encode_reply,
    encode_request, verb_of,
};
pub use name::{SUFFIXES, listening_pids, parse_socket_name, socket_name, socket_names};
pub use phase::{Phase, VerbKind};
pub use reach::{Credentials, Facts, Reason, Unreachable, pid_depth};
pub use storage::{PathBytes, ReadFrom, SaveTo};
pub use turn::{Extent, LoadExtent, Turn};
pub use verb::{
    AllocationId, Cause, ExportReply, ExportRequest, Failure, GateLevel, Held, HostLimits, InspectRequest,
    LoadRequest, Location, Moved, QuiesceReply, QuiesceRequest, ReleaseRequest, RemapReply, RemapRequest,
    ReopenReply, ReopenRequest, Reply, Request, Secret, Source, StageRequest, StepRequest, Transferred, Verb,
    verbs,
};

/// Version of frames and bodies. Two ends of different versions refuse each other, naming both.
pub const VERSION: u16 = 1;
