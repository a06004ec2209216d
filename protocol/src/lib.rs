//! The control protocol between the command, the shims, and the shims among each other.
//!
//! Verbs are pairs of types, [`Phase`] has one transition table, a frame has one header. There are no threads
//! and no sockets here: who reads and writes bytes is the business of the two ends.

mod inventory;
mod phase;
mod verb;

pub use inventory::{
    Allocation, Blocker, BlockerKind, Contents, ContextState, DeviceInfo, Drain, DriverMemory, Inventory,
    Origin, WaitingThread,
};
pub use phase::{Phase, VerbKind};
pub use verb::{
    AllocationId, Cause, ExportReply, ExportRequest, Failure, GateLevel, HostLimits, InspectRequest,
    LoadRequest, Location, Moved, QuiesceReply, QuiesceRequest, ReleaseRequest, RemapReply, RemapRequest,
    ReopenReply, ReopenRequest, Secret, Source, StageRequest, StepRequest, Transferred, Verb, verbs,
};

/// Version of frames and bodies. Two ends of different versions refuse each other, naming both.
pub const VERSION: u16 = 1;
