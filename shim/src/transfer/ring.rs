//! A few slots of host memory through which bytes pass on their way between device and crew.

use core::{ptr, slice};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cuda_sys::{Device, Stream};

use super::digest::{Digest, Hasher, Span};
use super::{Current, GRAIN, TransferError};
use crate::driver::real;

/// Bytes of a slot: a grain, so that many threads have something to copy at once, and long enough that starting a
/// copy costs little against it.
const SLOT: usize = GRAIN;
/// Slots: a few with the device, and two for each thread of a large crew. With 40 of 2 MiB and 16 threads, an H200
/// host saves 21 to 26 GiB/s and loads 33; with 6 of 8 MiB and 8 threads, 11.6 and 22 (docs/BENCHMARKS.md).
pub(super) const SLOTS: usize = 40;
/// How many copies are under way at once: enough to keep the bus busy while one of them is waited for.
pub(super) const FLYING: usize = 4;

/// `size` bytes in slices of a slot: offset and length of each.
pub(super) fn slices(size: u64) -> impl Iterator<Item = (u64, usize)> {
    let whole = usize::try_from(size).unwrap_or(usize::MAX);
    (0..whole).step_by(SLOT).map(move |at| (u64::try_from(at).unwrap_or_default(), SLOT.min(whole - at)))
}

/// `CU_STREAM_NON_BLOCKING`
const NON_BLOCKING: u32 = 1;

/// Memory for one copy.
#[derive(Debug)]
pub(super) struct Slot {
    memory: *mut u8,
    pinned: bool,
    lanes: Arc<Lanes>,
    /// On which its last copy was made.
    stream: Stream,
}

/// The streams on which copies are made, one for each copy that is under way.
#[derive(Debug)]
struct Lanes {
    streams: [Stream; FLYING],
    next: AtomicUsize,
}

// SAFETY: memory of ours that only the slot's owner touches.
unsafe impl Send for Slot {}

/// The kernels that look at memory.
#[derive(Debug)]
enum Asked {
    NotYet,
    Loaded(Hasher),
    /// The device cannot be asked, and that was said.
    CannotBe,
}

/// The slots for one device, and its context, current as long as the ring lives.
#[derive(Debug)]
pub(super) struct Ring {
    device: Device,
    /// Before the context: a slot is given back while it is current.
    pub(super) idle: Vec<Slot>,
    hasher: Asked,
    _current: Current,
}

impl Ring {
    /// A ring for copies of `device`.
    pub(super) fn new(device: Device) -> Result<Self, TransferError> {
        let current = Current::on(device)?;
        let lanes = Arc::new(Lanes::new());
        let idle = (0..SLOTS).map(|_| Slot::new(&lanes)).collect::<Result<_, _>>()?;
        Ok(Self { device, idle, hasher: Asked::NotYet, _current: current })
    }

    /// Whether some of its slots are elsewhere.
    pub(super) fn is_short(&self) -> bool {
        self.idle.len() < SLOTS
    }

    /// The digests of memory that the device can read. `None` where it cannot be asked: then the processor looks at
    /// the bytes when they have come.
    pub(super) fn digests(&mut self, spans: &[Span]) -> Option<Vec<Digest>> {
        if matches!(self.hasher, Asked::NotYet) {
            self.hasher = match Hasher::new(self.device) {
                Ok(hasher) => Asked::Loaded(hasher),
                Err(error) => cannot(self.device, error),
            };
        }
        let Asked::Loaded(hasher) = &mut self.hasher else { return None };
        match hasher.digests(spans) {
            Ok(digests) => Some(digests),
            Err(error) => {
                self.hasher = cannot(self.device, error);
                None
            }
        }
    }

    /// Which device.
    pub(super) fn device(&self) -> Device {
        self.device
    }
}

impl Slot {
    /// Page-locked memory. A card with no byte free may have none for us: then plain memory does, more slowly.
    fn new(lanes: &Arc<Lanes>) -> Result<Self, TransferError> {
        let mut memory = ptr::null_mut();
        // SAFETY: `memory` is writable.
        let pinned = unsafe { real::cuMemHostAlloc(&raw mut memory, SLOT, 0) }.is_ok();
        if !pinned {
            memory = plain()?;
        }
        Ok(Self { memory: memory.cast(), pinned, lanes: Arc::clone(lanes), stream: Stream::NULL })
    }

    /// A stream for the slot's next copies, which [`Slot::wait`] then waits for.
    pub(super) fn depart(&mut self) -> Stream {
        self.stream = self.lanes.next();
        self.stream
    }

    /// The slot's first `len` bytes.
    pub(super) fn bytes(&mut self, len: usize) -> &mut [u8] {
        // SAFETY: initialised by the system with zeros, `SLOT` bytes long, and ours alone.
        unsafe { slice::from_raw_parts_mut(self.memory, len.min(SLOT)) }
    }

    /// Waits until the slot's copies are done.
    pub(super) fn wait(&self) -> Result<(), TransferError> {
        // SAFETY: a stream of ours that lives as long as `lanes`, or the default one.
        unsafe { real::cuStreamSynchronize(self.stream) }
            .map_err(TransferError::driver("cuStreamSynchronize"))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // A copy that still writes to the memory must not outlive it.
        let idle = self.wait();
        let freed = if self.pinned {
            // SAFETY: from `cuMemHostAlloc`.
            unsafe { real::cuMemFreeHost(self.memory.cast()) }
        } else if idle.is_ok() {
            // SAFETY: from `plain`, of that size.
            unsafe { libc::munmap(self.memory.cast(), SLOT) };
            Ok(())
        } else {
            // Better lost than written to by a device when it is somebody else's.
            Ok(())
        };
        if let Err(error) = freed {
            log!("a slot of the ring is not given back: {error}");
        }
    }
}

impl Lanes {
    /// A card with no byte free may have no stream for us: then the default one does.
    fn new() -> Self {
        let streams = [(); FLYING].map(|()| {
            let mut stream = Stream::NULL;
            // SAFETY: `stream` is writable.
            match unsafe { real::cuStreamCreate(&raw mut stream, NON_BLOCKING) } {
                Ok(()) => stream,
                Err(error) => {
                    log!("cuStreamCreate: {error}; the default stream does");
                    Stream::NULL
                }
            }
        });
        Self { streams, next: AtomicUsize::new(0) }
    }

    /// The lane whose last copy is the oldest.
    fn next(&self) -> Stream {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % FLYING;
        self.streams.get(turn).copied().unwrap_or(Stream::NULL)
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for stream in self.streams.into_iter().filter(|stream| !stream.is_null()) {
            // SAFETY: our own stream; no slot uses it any more.
            if let Err(error) = unsafe { real::cuStreamDestroy_v2(stream) } {
                log!("cuStreamDestroy_v2: {error}");
            }
        }
    }
}

fn cannot(device: Device, error: TransferError) -> Asked {
    log!("device {} does not hash its memory: {error}; all of it is copied", device.0);
    Asked::CannotBe
}

fn plain() -> Result<*mut libc::c_void, TransferError> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let memory = unsafe { libc::mmap(ptr::null_mut(), SLOT, access, kind, -1, 0) };
    if memory == libc::MAP_FAILED { Err(TransferError::system("mmap")) } else { Ok(memory) }
}
