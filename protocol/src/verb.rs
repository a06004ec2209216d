//! The verbs as pairs of request and reply.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize as DeriveSerialize};

use crate::frame::Frame;
use crate::inventory::{Drain, Inventory};
use crate::message::{BodyError, EncodeError, decode_request, encode_reply, verb_of};
use crate::phase::{Phase, VerbKind};
use crate::storage::{ReadFrom, SaveTo};
use crate::turn::{Extent, LoadExtent, Turn};

extern crate alloc;

/// The name of an allocation: 128 random bits, the same for exporter and importers, stable for its whole life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, DeriveSerialize, Deserialize)]
pub struct AllocationId(pub [u8; 16]);

impl fmt::Display for AllocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for AllocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a ticket holder knows and a stranger does not. Never printed.
#[derive(Clone, Copy, PartialEq, Eq, DeriveSerialize, Deserialize)]
pub struct Secret(pub [u8; 16]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Where memory is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, DeriveSerialize, Deserialize)]
pub enum Location {
    /// On the device with this ordinal in its process.
    Device(i32),
    /// On the host.
    Host,
    /// On this NUMA node of the host.
    HostNuma(i32),
    /// On the NUMA node of the thread that made it.
    HostNumaCurrent,
    /// Somewhere we have no name for: type and id as the program gave them.
    Other(u32, i32),
}

/// A verb: what is asked, and what is answered.
pub trait Verb {
    /// Which verb.
    const KIND: VerbKind;
    /// What is asked.
    type Request: Serialize + DeserializeOwned + fmt::Debug;
    /// What is answered when it succeeds.
    type Reply: Serialize + DeserializeOwned + fmt::Debug;
}

/// Why a verb failed.
#[derive(Clone, PartialEq, Eq, Debug, DeriveSerialize, Deserialize)]
pub struct Failure {
    /// What kind of failure.
    pub cause: Cause,
    /// A sentence: object, cause, and where it helps what to do.
    pub message: String,
    /// Where the process stands after it.
    pub phase: Phase,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl core::error::Error for Failure {}

/// Kinds of failure that an asker treats differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug, DeriveSerialize, Deserialize)]
pub enum Cause {
    /// The verb is not allowed in this phase.
    WrongPhase,
    /// Not in this phase, but later: ask again.
    NotNow,
    /// The allocation is not known here, or the secret is wrong.
    Unknown,
    /// The driver answered with this error.
    Driver(u32),
    /// The system answered with this errno.
    System(i32),
    /// Something the process holds cannot be carried.
    Blocked,
    /// Another verb is being carried out.
    Busy,
    /// A panic was caught in the shim earlier; it does nothing more.
    Poisoned,
    /// The request made no sense.
    BadRequest,
    /// The other end speaks another version.
    Version,
    /// The asker is not served here: another user, or another pid namespace.
    Refused,
    /// A chunk store or cache failed, or does not have what was saved to it.
    Storage,
}

/// Asks for the inventory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, DeriveSerialize, Deserialize)]
pub struct InspectRequest {
    /// Whether to list every allocation, or only totals.
    pub allocations: bool,
}

/// How far to close.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, DeriveSerialize, Deserialize)]
pub enum GateLevel {
    /// Launches are held.
    Launch,
    /// Launches, memory and object calls are held.
    Memory,
}

/// Closes gates up to `level` and looks whether all work has drained, for at most `wait_ms`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, DeriveSerialize, Deserialize)]
pub struct QuiesceRequest {
    /// How far to close. A gate that is closed already stays closed.
    pub level: GateLevel,
    /// How long to wait for the drain, in milliseconds. 0 looks once.
    pub wait_ms: u32,
    /// Whether to find out which streams have work that has not ended, if some has not. Needs level `Memory`.
    pub name_streams: bool,
}

/// Whether the process has drained, and if not what is in the way. At level `Memory` and drained, the phase is
/// `Quiesced`; else it stays `Quiescing`.
#[derive(Clone, PartialEq, Eq, Debug, DeriveSerialize, Deserialize)]
pub struct QuiesceReply {
    /// What was found at the end of the wait.
    pub drain: Drain,
}

/// Lets one held call through, then waits as `quiesce`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, DeriveSerialize, Deserialize)]
pub struct StepRequest {
    /// What is let through.
    pub held: Held,
    /// How long to wait for the drain after it, in milliseconds.
    pub wait_ms: u32,
}

/// What a step lets through.
#[derive(Clone, Copy, PartialEq, Eq, Debug, DeriveSerialize, Deserialize)]
pub enum Held {
    /// The call that has waited longest.
    One,
    /// The call of the thread with this id.
    Thread(i32),
    /// All calls of the memory level, from now on: its gate is opened again.
    Memory,
}

/// Saves and frees.
#[derive(Clone, PartialEq, Eq, Debug, DeriveSerialize, Deserialize)]
pub struct ReleaseRequest {
    /// How far.
    pub extent: Extent,
    /// Imported allocations that this process saves in place of their exporter, which is gone.
    pub heir_of: Vec<AllocationId>,
    /// Bounds on what host memory may be used.
    pub limits: HostLimits,
    /// Where the bytes go.
    pub to: SaveTo,
}

/// Bounds that the tool has found out for one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, DeriveSerialize, Deserialize)]
pub struct HostLimits {
    /// Bytes of host memory this process may fill, or `None` for no bound beyond what the system has.
    pub arena_bytes: Option<u64>,
}

/// Bytes by fate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, DeriveSerialize, Deserialize)]
pub struct Moved {
    /// Allocations concerned.
    pub objects: u64,
    /// Bytes that were put away, or fetched.
    pub moved: u64,
    /// Bytes that were zero.
    pub zero: u64,
    /// Bytes that were where they had to go already.
    pub deduplicated: u64,
}

/// What `release` and `load` did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, DeriveSerialize, Deserialize)]
pub struct Transferred {
    /// Bytes by fate.
    pub bytes: Moved,
    /// Mappings taken apart or rebuilt.
    pub mappings: u64,
}

/// Starts reading saved bytes. No driver call.
#[derive(Clone, PartialEq, Eq, Debug, Default, DeriveSerialize, Deserialize)]
pub struct StageRequest {
    /// Where the bytes are.
    pub from: ReadFrom,
    /// Bounds on what host memory may be used.
    pub limits: HostLimits,
}

/// Re-creates own allocations with their bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default, DeriveSerialize, Deserialize)]
pub struct LoadRequest {
    /// How far.
    pub extent: LoadExtent,
    /// Where the bytes are that were saved to a store.
    pub from: ReadFrom,
    /// Bounds on what host memory may be used on the way.
    pub limits: HostLimits,
}

/// Who hands out an allocation at `remap`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, DeriveSerialize, Deserialize)]
pub struct Source {
    /// The allocation.
    pub allocation: AllocationId,
    /// The process to ask.
    pub pid: i32,
}

/// Imports again from the processes named.
#[derive(Clone, PartialEq, Eq, Debug, DeriveSerialize, Deserialize)]
pub struct RemapRequest {
    /// Where to ask for each allocation that was imported and whose exporter is not the one it was.
    pub sources: Vec<Source>,
    /// How long to ask a peer that answers "not now", in milliseconds.
    pub wait_ms: u32,
    /// How far.
    pub turn: Turn,
}

/// What `remap` did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, DeriveSerialize, Deserialize)]
pub struct RemapReply {
    /// Imports made again.
    pub imports: u64,
    /// Mappings rebuilt.
    pub mappings: u64,
}

/// Opens all gates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, DeriveSerialize, Deserialize)]
pub struct ReopenRequest {}

/// What `reopen` found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, DeriveSerialize, Deserialize)]
pub struct ReopenReply {
    /// Calls that had been waiting at a gate.
    pub waiting: u32,
}

/// A peer asks for a descriptor of an allocation; it travels beside the reply as `SCM_RIGHTS`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, DeriveSerialize, Deserialize)]
pub struct ExportRequest {
    /// Which.
    pub allocation: AllocationId,
    /// The ticket's secret.
    pub secret: Secret,
}

/// The descriptor comes beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, DeriveSerialize, Deserialize)]
pub struct ExportReply {
    /// Size of the allocation in bytes.
    pub size: u64,
}

macro_rules! verbs {
    ($($name:ident: $request:ty => $reply:ty;)+) => {
        /// One type per verb, which ties its request to its reply.
        pub mod verbs {
            use super::*;
            $(
                #[doc = concat!("The verb `", stringify!($name), "`.")]
                #[derive(Debug)]
                pub struct $name;

                impl Verb for $name {
                    const KIND: VerbKind = VerbKind::$name;
                    type Request = $request;
                    type Reply = $reply;
                }
            )+
        }

        /// Any request, as a server takes it.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum Request {
            $(#[doc = concat!("Asks for `", stringify!($name), "`.")] $name($request),)+
        }

        impl Request {
            /// Which verb.
            pub const fn verb(&self) -> VerbKind {
                match self {
                    $(Self::$name(_) => VerbKind::$name,)+
                }
            }

            /// Reads the request in a frame.
            pub fn decode(frame: &Frame) -> Result<Self, BodyError> {
                Ok(match verb_of(frame)? {
                    $(VerbKind::$name => Self::$name(decode_request::<verbs::$name>(&frame.body)?),)+
                })
            }
        }

        /// Any reply, as a server gives it.
        #[allow(clippy::large_enum_variant, reason = "there is one of them at a time, and it is sent at once")]
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum Reply {
            $(#[doc = concat!("Answers `", stringify!($name), "`.")] $name($reply),)+
        }

        impl Reply {
            /// Which verb.
            pub const fn verb(&self) -> VerbKind {
                match self {
                    $(Self::$name(_) => VerbKind::$name,)+
                }
            }

            /// The frame that answers request `id`.
            pub fn encode(&self, id: u32) -> Result<Vec<u8>, EncodeError> {
                match self {
                    $(Self::$name(reply) => encode_reply::<verbs::$name>(id, reply),)+
                }
            }
        }
    };
}

verbs! {
    Inspect: InspectRequest => Inventory;
    Quiesce: QuiesceRequest => QuiesceReply;
    Step: StepRequest => QuiesceReply;
    Release: ReleaseRequest => Transferred;
    Stage: StageRequest => ();
    Load: LoadRequest => Transferred;
    Remap: RemapRequest => RemapReply;
    Reopen: ReopenRequest => ReopenReply;
    Export: ExportRequest => ExportReply;
}
