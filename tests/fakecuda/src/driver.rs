//! The driver of this process: made by `cuInit`, and never freed, so that calls at exit still find it.
//!
//! A forked child of a process that has called `cuInit` can never use the driver: every call answers NOT_INITIALIZED, `cuInit` too (as
//! measured). `FAKECUDA_FORK=anew` stands for drivers on which such a child can start anew as long as its parent had no
//! context (docs/DRIVER-VERSIONS.md, workers of vLLM).

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use cuda_sys::{CuError, CuResult};

use crate::checkpoint::save::Saved;
use crate::checkpoint::service;
use crate::config::{MAX_DEVICES, config};
use crate::context::Contexts;
use crate::device;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::slab::Slab;
use crate::work::capture::Captures;
use crate::work::event::Event;
use crate::work::graph::Graphs;
use crate::work::module::Modules;
use crate::work::stream::Stream;
use crate::{hold, trace};

/// All that `cuInit` brings about.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) machine: Machine,
    pub(crate) memory: Memory,
    pub(crate) contexts: Contexts,
    pub(crate) streams: Slab<Stream>,
    pub(crate) events: Slab<Event>,
    pub(crate) captures: Captures,
    pub(crate) graphs: Graphs,
    pub(crate) modules: Modules,
    pub(crate) saved: Saved,
    next_stream: AtomicU64,
    /// Which of the process's drivers this is: thread-locals of a forked child may come from its parent's.
    pub(crate) generation: u32,
    /// The device of the machine behind each ordinal. A restore may change it.
    physical: [AtomicUsize; MAX_DEVICES],
    ordinals: usize,
}

static DRIVER: AtomicPtr<Driver> = AtomicPtr::new(std::ptr::null_mut());
static BROKEN: AtomicBool = AtomicBool::new(false);
static GENERATION: AtomicU32 = AtomicU32::new(0);
static START: Mutex<()> = Mutex::new(());

/// The driver, if the process has initialised it.
#[inline]
pub(crate) fn driver() -> CuResult<&'static Driver> {
    let driver = DRIVER.load(Ordering::Acquire);
    // SAFETY: null or leaked by `start`.
    unsafe { driver.as_ref() }.ok_or(CuError::NOT_INITIALIZED)
}

/// Starts the driver, once.
pub(crate) fn start() -> CuResult {
    let _starting = crate::lock(&START);
    if driver().is_ok() {
        return Ok(());
    }
    if BROKEN.load(Ordering::Acquire) {
        return Err(CuError::NOT_INITIALIZED);
    }
    hold::start();
    let machine = Machine::join().map_err(|error| {
        trace::complain(&format!("{}: {error}", config().dir.display()));
        CuError::OPERATING_SYSTEM
    })?;
    let visible = device::visible(machine.devices(), config().visible.as_deref());
    if visible.is_empty() {
        return Err(CuError::NO_DEVICE);
    }
    let memory = Memory::new()?;
    let driver: &'static Driver = Box::leak(Box::new(Driver {
        machine,
        memory,
        contexts: Contexts::new(),
        streams: Slab::new(),
        events: Slab::new(),
        captures: Captures::default(),
        graphs: Graphs::new(),
        modules: Modules::new(),
        saved: Saved::default(),
        next_stream: AtomicU64::new(1),
        generation: GENERATION.fetch_add(1, Ordering::Relaxed) + 1,
        physical: std::array::from_fn(|ordinal| AtomicUsize::new(visible.get(ordinal).copied().unwrap_or(0))),
        ordinals: visible.len(),
    }));
    DRIVER.store(std::ptr::from_ref(driver).cast_mut(), Ordering::Release);
    service::start(driver);
    Ok(())
}

/// The process is a forked child: it has no driver.
pub(crate) fn forked() {
    let parents = DRIVER.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: null or leaked by the parent's `start`; only an atomic of it is read, since its locks may be held.
    if unsafe { parents.as_ref() }.is_some_and(|driver| !config().fork_anew || driver.contexts.any_was_made())
    {
        BROKEN.store(true, Ordering::Release);
    }
}

impl Driver {
    /// A number for a new stream.
    pub(crate) fn new_stream_id(&self) -> u64 {
        self.next_stream.fetch_add(1, Ordering::Relaxed)
    }

    /// How many devices the process sees.
    pub(crate) fn ordinals(&self) -> usize {
        self.ordinals
    }

    /// The device of the machine behind an ordinal.
    pub(crate) fn physical(&self, ordinal: usize) -> CuResult<usize> {
        let physical = self.physical.get(ordinal).filter(|_| ordinal < self.ordinals);
        Ok(physical.ok_or(CuError::INVALID_DEVICE)?.load(Ordering::Acquire))
    }

    /// The ordinal of a device of the machine, if the process sees it.
    pub(crate) fn ordinal_of(&self, physical: usize) -> Option<usize> {
        (0..self.ordinals).find(|&ordinal| self.physical(ordinal) == Ok(physical))
    }

    /// Moves an ordinal to another device of the machine.
    pub(crate) fn move_ordinal(&self, ordinal: usize, physical: usize) {
        if let Some(place) = self.physical.get(ordinal) {
            place.store(physical, Ordering::Release);
        }
    }
}
