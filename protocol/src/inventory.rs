//! What a process says about itself: the answer to `inspect`.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::phase::{Phase, VerbKind};
use crate::verb::{AllocationId, Location, Moved};

extern crate alloc;

/// Everything the tool needs to know about one process.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Inventory {
    /// The version of the shim (`CARGO_PKG_VERSION`).
    pub shim_version: String,
    /// The process as it sees itself.
    pub pid: i32,
    /// Where it stands.
    pub phase: Phase,
    /// Whether a panic was caught in the shim.
    pub poisoned: bool,
    /// `cuDriverGetVersion`.
    pub driver_version: i32,
    /// The devices the process sees, in ordinal order.
    pub devices: Vec<DeviceInfo>,
    /// Contexts known.
    pub contexts: u32,
    /// The state of the gates and of the work behind them.
    pub drain: Drain,
    /// Allocations, if asked for.
    pub allocations: Vec<Allocation>,
    /// Tickets that have outlived their exporter: asked for with the allocations.
    pub unclaimed: Vec<Unclaimed>,
    /// Memory the shim does not move, which the driver saves itself.
    pub driver_memory: DriverMemory,
    /// Events that other processes may have opened, or that were opened of theirs. The driver carries them.
    pub shared_events: u64,
    /// What cannot be carried, by kind.
    pub blockers: Vec<Blocker>,
    /// The verb that is being carried out, if one is.
    pub progress: Option<Progress>,
    /// The shim's own threads: whoever stops the process's threads leaves these alone.
    pub threads: Vec<i32>,
    /// Host memory that is kept for the next release.
    pub kept_bytes: u64,
    /// What became of the bytes at the last release.
    pub last_save: Moved,
}

/// How far a verb has come. Whoever waits for one that moves bytes gives up when these stand still, not after a
/// total time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Progress {
    /// Which verb.
    pub verb: VerbKind,
    /// Bytes it has dealt with.
    pub bytes: u64,
    /// Bytes it has to deal with, as far as it knows; 0 before it knows.
    pub total: u64,
}

/// A device as the process sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Its ordinal in the process.
    pub ordinal: i32,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Why memory of `cuMemAlloc` stays the driver's own there, if it does.
    pub native: Option<Native>,
}

/// Why memory of the shim cannot stand in for `cuMemAlloc` on a device. The driver then saves what it gave, slowly.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Native {
    /// It has no virtual memory management.
    NoVirtualMemory,
    /// Its memory cannot be exported as a descriptor.
    NoDescriptors,
    /// Such memory comes in pieces of so many bytes, which small blocks cannot share; 0 where the driver does not say.
    Granularity(u64),
}

impl fmt::Display for Native {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoVirtualMemory => f.write_str("it has no virtual memory management"),
            Self::NoDescriptors => f.write_str("its memory cannot be exported as a descriptor"),
            Self::Granularity(0) => f.write_str("the driver does not say how large a piece of its memory is"),
            Self::Granularity(bytes) => write!(f, "a piece of its memory has {bytes} bytes"),
        }
    }
}

/// One allocation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Allocation {
    /// Its name, the same in all processes.
    pub id: AllocationId,
    /// Where it is.
    pub location: Location,
    /// Bytes.
    pub size: u64,
    /// Made here or imported.
    pub origin: Origin,
    /// Whether a ticket of it may be in somebody's hands.
    pub exported: bool,
    /// Virtual handles held, counted as the driver counts.
    pub handles: u32,
    /// Mappings.
    pub mappings: u32,
    /// Where its bytes are.
    pub contents: Contents,
    /// Whether the driver has memory for it here, be it not filled yet.
    pub has_memory: bool,
    /// What the process has done with it, if it is a multicast object: that has no bytes.
    pub multicast: Option<Team>,
}

/// Memory whose exporter is gone and of which a process holds a ticket. It and others may have imported it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unclaimed {
    /// Its name.
    pub id: AllocationId,
    /// Bytes.
    pub size: u64,
    /// The exporter, as the ticket names it.
    pub exporter: i32,
    /// The process's descriptor of the ticket.
    pub descriptor: i32,
    /// Whether the ticket keeps the memory. If not, it leads to those who have imported it.
    pub kept: bool,
}

/// A process's part in a multicast object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Team {
    /// Devices the object was made for.
    pub devices: u32,
    /// Devices that this process has added.
    pub joined: u32,
    /// Pieces of memory that this process has bound.
    pub bound: u32,
}

/// Where an allocation came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Origin {
    /// Made by this process.
    Created,
    /// Imported by a ticket of the process with this pid.
    Imported {
        /// The exporter, as the ticket names it.
        exporter: i32,
    },
}

/// Where the bytes of an allocation are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Contents {
    /// On the GPU, or wherever it is located.
    Live,
    /// Dropped; another process has them.
    Elsewhere,
    /// Dropped; all zero.
    Zero,
    /// Dropped; in host memory of this process.
    Host,
    /// Dropped; in a chunk store.
    Chunks,
}

/// Whether work has drained, and what is in the way.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Drain {
    /// Nothing runs and nobody is inside a gated call.
    pub drained: bool,
    /// Contexts with their state.
    pub contexts: Vec<ContextState>,
    /// Streams whose work has not ended, where that was asked and could be found out.
    pub streams: Vec<BusyStream>,
    /// Threads that wait at a gate.
    pub waiting: Vec<WaitingThread>,
    /// Threads inside a gated call.
    pub inside: u32,
    /// Captures under way.
    pub captures: u32,
    /// An error that a context answered with when asked whether it is idle: a sticky error of the program.
    pub error: Option<u32>,
}

/// A context.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ContextState {
    /// The device's ordinal.
    pub device: i32,
    /// Whether it has work that is not done.
    pub busy: bool,
}

/// A stream with work that has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BusyStream {
    /// The ordinal of its device.
    pub device: i32,
    /// Its handle, as the program has it; 0 is the default stream.
    pub handle: u64,
}

/// A thread at a gate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WaitingThread {
    /// The kernel's thread id.
    pub tid: i32,
    /// The call it wants to make.
    pub call: String,
    /// Whether the stream that the call is for has work that has not ended; nothing where that is not known.
    pub unfinished: Option<bool>,
}

/// Memory the driver saves itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DriverMemory {
    /// `cuMemAlloc` and its family.
    pub malloc_bytes: u64,
    /// Stream-ordered allocations.
    pub async_bytes: u64,
    /// `cuMemHostAlloc` and `cuMemAllocHost`.
    pub host_bytes: u64,
}

/// Something that cannot be carried.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Blocker {
    /// What kind.
    pub kind: BlockerKind,
    /// How many of it are alive.
    pub count: u64,
    /// An example: a name, an address, a size.
    pub example: String,
}

/// Kinds of things that cannot be carried.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum BlockerKind {
    /// Memory opened by a legacy CUDA IPC handle.
    IpcOpened,
    /// Memory for which a legacy CUDA IPC handle was handed out.
    IpcExported,
    /// A memory pool that can be shared.
    SharedPool,
    /// Managed memory.
    Managed,
    /// A multicast object.
    Multicast,
    /// A handle imported from a process without the shim.
    ForeignImport,
    /// A raw descriptor handed out (fabric, dma-buf, or the raw mode of the shim).
    RawHandle,
    /// A sparse array mapping.
    SparseMapping,
    /// External memory of a graphics API.
    ExternalMemory,
    /// A graphics resource that is mapped.
    Graphics,
    /// A call that allocates or shares was obtained in an ABI the shim does not know.
    UnknownAbi,
    /// A call of the driver that a library reaches without the shim.
    BoundPast,
    /// Drivers, of which more than one is loaded.
    SecondDriver,
    /// Memory that can be shared over a fabric.
    Fabric,
    /// Memory that a device has pinned.
    Pinned,
    /// A memory pool of the host, or an allocation out of one.
    HostPool,
    /// An event of several processes, on a driver that is not known to carry those.
    SharedEvent,
}
