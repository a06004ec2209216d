//! A made-up process.

use cuda_sys::ProcessState;
use protocol::{
    Allocation, AllocationId, Blocker, Contents, ContextState, DeviceInfo, Drain, DriverMemory, Inventory,
    Location, Origin, Phase, Progress, VerbKind, WaitingThread,
};

/// The one GPU there is.
pub(crate) const GPU: [u8; 16] = [7; 16];
/// Bytes of every allocation.
pub(crate) const SIZE: u64 = 1 << 20;

/// The number of the library's thread in a process.
pub(crate) fn library_thread_of(pid: i32) -> i32 {
    pid * 1000 + 2
}

/// An allocation as a process holds it.
#[derive(Clone, Debug)]
pub(crate) struct Holding {
    pub(crate) id: AllocationId,
    pub(crate) origin: Origin,
    /// The piece of memory behind it, while there is one. Two processes share if theirs is the same.
    pub(crate) memory: Option<u64>,
    pub(crate) contents: Contents,
    /// What is in it.
    pub(crate) value: u64,
}

impl Holding {
    pub(crate) fn is_import(&self) -> bool {
        matches!(self.origin, Origin::Imported { .. })
    }
}

/// A made-up process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) phase: Phase,
    pub(crate) state: ProcessState,
    pub(crate) gates_closed: bool,
    pub(crate) memory_gate_closed: bool,
    pub(crate) holdings: Vec<Holding>,
    pub(crate) blockers: Vec<Blocker>,
    /// Launches that wait at the gate.
    pub(crate) held: u32,
    /// Launches that were let through.
    pub(crate) launched: u32,
    /// Its work ends when the process named has launched as often as said.
    pub(crate) waits_for: Option<(i32, u32)>,
    /// How often its memory gate has to be opened again before its work ends.
    pub(crate) needs_copies: u32,
    /// A load that another command began, and how often it is still seen at work.
    pub(crate) at_work: u64,
    /// A process without CUDA.
    pub(crate) idle: bool,
    /// A process with CUDA and without the library.
    pub(crate) bare: bool,
    /// A restore of it waits for a lock that one of its threads holds.
    pub(crate) restore_needs_threads: bool,
    /// Its threads are held still.
    pub(crate) frozen: bool,
    pub(crate) version: String,
}

impl Process {
    pub(crate) fn new(pid: i32) -> Self {
        Self {
            pid,
            phase: Phase::Running,
            state: ProcessState::RUNNING,
            gates_closed: false,
            memory_gate_closed: false,
            holdings: Vec::new(),
            blockers: Vec::new(),
            held: 0,
            launched: 0,
            waits_for: None,
            needs_copies: 0,
            at_work: 0,
            idle: false,
            bare: false,
            restore_needs_threads: false,
            frozen: false,
            version: env!("CARGO_PKG_VERSION").into(),
        }
    }

    fn holds(mut self, name: u8, value: u64, origin: Origin) -> Self {
        let id = AllocationId([name; 16]);
        self.holdings.push(Holding { id, origin, memory: None, contents: Contents::Live, value });
        self
    }

    /// With an allocation of its own.
    pub(crate) fn makes(self, name: u8, value: u64) -> Self {
        self.holds(name, value, Origin::Created)
    }

    /// With an allocation of another process.
    pub(crate) fn imports(self, name: u8, exporter: i32) -> Self {
        self.holds(name, u64::from(name), Origin::Imported { exporter })
    }

    /// What it says about itself.
    pub(crate) fn inventory(&self, drain: Drain) -> Inventory {
        let allocations = self.holdings.iter().map(|holding| Allocation {
            id: holding.id,
            location: Location::Device(0),
            size: SIZE,
            origin: holding.origin,
            exported: false,
            handles: 1,
            mappings: 1,
            contents: holding.contents,
            has_memory: holding.memory.is_some(),
            multicast: None,
        });
        Inventory {
            shim_version: self.version.clone(),
            pid: self.pid,
            phase: self.phase,
            devices: vec![DeviceInfo { ordinal: 0, uuid: GPU, native: None }],
            contexts: 1,
            drain,
            allocations: allocations.collect(),
            driver_memory: DriverMemory::default(),
            blockers: self.blockers.clone(),
            progress: (self.at_work > 0).then(|| Progress {
                verb: VerbKind::Load,
                bytes: 10 - self.at_work,
                total: 10,
            }),
            threads: vec![library_thread_of(self.pid)],
            ..Inventory::default()
        }
    }

    /// What it still does, given whether its work waits for somebody.
    pub(crate) fn drain(&self, busy: bool) -> Drain {
        let copies = self.needs_copies > 0 && self.memory_gate_closed;
        let launches = (0..self.held).map(|number| format!("cuLaunchKernel{number}"));
        let copy = copies.then(|| "cuMemcpyHtoDAsync_v2".to_owned());
        let waiting = launches.chain(copy).map(|call| WaitingThread { tid: 1, call, unfinished: None });
        Drain {
            drained: !busy && !copies,
            contexts: vec![ContextState { device: 0, busy: busy || copies }],
            waiting: waiting.collect(),
            ..Drain::default()
        }
    }
}
