//! A few slots of host memory through which bytes pass on their way between device and crew.

use core::{ptr, slice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cuda_sys::{Device, Stream};

use super::digest::{self, Digest, Hasher, Span};
use super::own_stream::{end_stream, own_stream};
use super::{Current, GRAIN, TransferError, certain};
use crate::driver::real;

/// Bytes of a slot: a grain, so that many threads have something to copy at once, and long enough that starting a
/// copy costs little against it.
const SLOT: usize = GRAIN;
/// Slots: a few with the device, and two for each thread of a large crew. With 40 of 2 MiB and 16 threads, an H200
/// host saves 21 to 26 GiB/s and loads 33; with 6 of 8 MiB and 8 threads, 11.6 and 22 (`docs/BENCHMARKS.md`).
const SLOTS: usize = 40;
/// Slots of all rings together, however many devices there are.
const SLOTS_IN_ALL: usize = 4 * SLOTS;
/// How many parts of memory that needs no ring a lane has the crew look at or fill at once.
pub(super) const PARTS: usize = SLOTS;
/// How many copies are under way at once: enough to keep the bus busy while one of them is waited for.
pub(super) const FLYING: usize = 4;

/// How large rings may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rings {
    /// How many there are at once.
    pub(super) count: usize,
    /// Slots of each.
    pub(super) slots: usize,
}

impl Rings {
    /// For so many at once, where host memory has room for `spare` bytes beside what is saved. One ring has its room in
    /// any case; together they take no more than one would, unless there is room for it.
    pub(crate) fn new(count: usize, spare: Option<u64>) -> Self {
        let fit = |spare: u64| usize::try_from(spare).unwrap_or(usize::MAX) / SLOT;
        let slots = spare.map_or(SLOTS_IN_ALL, fit).clamp(SLOTS, SLOTS_IN_ALL);
        // More than can be under way, so that there is always one that comes back from the crew.
        Self { count, slots: (slots / count.max(1)).clamp(FLYING + 1, SLOTS) }
    }
}

/// `size` bytes in slices of a slot: offset and length of each.
pub(super) fn slices(size: u64) -> impl Iterator<Item = (u64, usize)> {
    let whole = usize::try_from(size).unwrap_or(usize::MAX);
    (0..whole).step_by(SLOT).map(move |at| (u64::try_from(at).unwrap_or_default(), SLOT.min(whole - at)))
}

/// Room for one copy.
#[derive(Debug)]
pub(super) struct Slot {
    memory: *mut u8,
    shared: Arc<Shared>,
    /// On which its last copy was made.
    stream: Stream,
}

/// What all slots of a ring share; it goes with the last of them.
#[derive(Debug)]
struct Shared {
    room: Room,
    /// The streams on which copies are made, one for each copy that is under way.
    lanes: [Stream; FLYING],
    next: AtomicUsize,
}

/// The memory of all slots.
#[derive(Debug)]
struct Room {
    start: *mut u8,
    len: usize,
    pinned: bool,
    /// A copy may still write to it: better lost than somebody else's.
    lost: AtomicBool,
}

// SAFETY: each slot has a part of its own.
unsafe impl Send for Room {}
// SAFETY: as above.
unsafe impl Sync for Room {}

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

/// Those of one device, and its context, current as long as the ring lives.
#[derive(Debug)]
pub(super) struct Ring {
    device: Device,
    slots: usize,
    /// Before the context: a slot is given back while it is current.
    pub(super) idle: Vec<Slot>,
    hasher: Asked,
    _current: Current,
}

impl Ring {
    /// A ring for copies of `device`, of `bytes` in all: with few bytes it has few slots.
    pub(super) fn new(device: Device, bytes: u64, allowed: Rings) -> Result<Self, TransferError> {
        let current = Current::on(device)?;
        let wanted = usize::try_from(bytes).unwrap_or(usize::MAX).div_ceil(SLOT);
        let slots = wanted.clamp(FLYING + 1, allowed.slots);
        let shared = Arc::new(Shared {
            room: Room::new(slots * SLOT)?,
            lanes: [(); FLYING].map(|()| own_stream()),
            next: AtomicUsize::new(0),
        });
        let slot = |number: usize| Slot {
            memory: shared.room.start.wrapping_add(number * SLOT),
            shared: Arc::clone(&shared),
            stream: Stream::NULL,
        };
        let idle = (0..slots).map(slot).collect();
        Ok(Self { device, slots, idle, hasher: Asked::NotYet, _current: current })
    }

    /// Whether some of its slots are elsewhere.
    pub(super) fn is_short(&self) -> bool {
        self.idle.len() < self.slots
    }

    /// The digests of memory that the device can read. `None` where it cannot be asked: then the processor looks at
    /// the bytes when they have come.
    pub(super) fn digests(&mut self, spans: &[Span]) -> Option<Vec<Digest>> {
        if matches!(self.hasher, Asked::NotYet) {
            self.hasher = match Hasher::new(self.device) {
                Ok(hasher) => Asked::Loaded(hasher),
                Err(error) => {
                    digest::cannot(self.device, &error);
                    Asked::CannotBe
                }
            };
        }
        let Asked::Loaded(hasher) = &mut self.hasher else { return None };
        match hasher.digests(spans) {
            Ok(digests) => Some(digests),
            Err(error) => {
                digest::cannot(self.device, &error);
                self.hasher = Asked::CannotBe;
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
    /// A stream for the slot's next copies, which [`Slot::wait`] then waits for.
    pub(super) fn depart(&mut self) -> Stream {
        self.stream = self.shared.lane();
        self.stream
    }

    /// The slot's first `len` bytes.
    pub(super) fn bytes(&mut self, len: usize) -> &mut [u8] {
        // SAFETY: initialised by the system with zeros, `SLOT` bytes long, and ours alone.
        unsafe { slice::from_raw_parts_mut(self.memory, len.min(SLOT)) }
    }

    /// Waits until the slot's copies are done.
    pub(super) fn wait(&self) -> Result<(), TransferError> {
        certain::wait(self.stream)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // A copy that still writes to the memory must not outlive it.
        if let Err(error) = self.wait() {
            log!("the ring is lost: {error}");
            self.shared.room.lost.store(true, Ordering::Relaxed);
        }
    }
}

impl Shared {
    /// The lane whose last copy is the oldest.
    fn lane(&self) -> Stream {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % FLYING;
        self.lanes.get(turn).copied().unwrap_or(Stream::NULL)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // No slot uses them any more.
        self.lanes.into_iter().for_each(end_stream);
    }
}

impl Room {
    /// Page-locked memory, or plain memory where the driver has none for us: slower, and just as right.
    fn new(len: usize) -> Result<Self, TransferError> {
        let mut start = ptr::null_mut();
        // SAFETY: `start` is writable.
        let pinned = unsafe { real::cuMemHostAlloc(&raw mut start, len, 0) }.is_ok();
        if !pinned {
            start = plain(len)?;
        }
        Ok(Self { start: start.cast(), len, pinned, lost: AtomicBool::new(false) })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if *self.lost.get_mut() {
            return;
        }
        if self.pinned {
            // SAFETY: from `cuMemHostAlloc`, and no copy uses it.
            if let Err(error) = unsafe { real::cuMemFreeHost(self.start.cast()) } {
                log!("the ring is not given back: {error}");
            }
        } else {
            // SAFETY: from `plain`, of that size, and no copy uses it.
            unsafe { libc::munmap(self.start.cast(), self.len) };
        }
    }
}

fn plain(len: usize) -> Result<*mut libc::c_void, TransferError> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let memory = unsafe { libc::mmap(ptr::null_mut(), len, access, kind, -1, 0) };
    if memory == libc::MAP_FAILED { Err(TransferError::system("mmap")) } else { Ok(memory) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_share_what_there_is_room_for_and_one_has_its_room_in_any_case() {
        let slots = |count, spare| Rings::new(count, spare).slots;
        let whole = |rings: u64| Some(rings * (SLOTS * SLOT) as u64);
        assert_eq!([1, 2, 4].map(|count| slots(count, None)), [SLOTS; 3]);
        assert_eq!([8, 16].map(|count| slots(count, None) * count), [SLOTS_IN_ALL; 2]);
        assert_eq!([1, 2, 4].map(|count| slots(count, Some(0)) * count), [SLOTS; 3]);
        assert_eq!(slots(4, whole(2)), SLOTS / 2);
        assert_eq!(slots(16, Some(0)), FLYING + 1);
    }
}
