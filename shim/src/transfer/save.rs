//! From memory to a sink.
//!
//! The lead shows one object after the other in the window and starts its copies; the crew puts the bytes of one
//! object away while the next one is already being copied.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use cuda_sys::{AllocationProp, Device, DevicePtr, MemHandle};
use shim_core::world::{Piece, Saved};

use super::crew::with_crew;
use super::queue::Queue;
use super::ring::{FLYING, Ring, Slot, slices};
use super::window::Window;
use super::{GRAIN, Memory, Shown, Sink, TransferError, Trouble};
use crate::driver::real;
use crate::op::Phases;

/// Bytes for the crew to put away.
struct Parcel {
    object: usize,
    at: u64,
    len: usize,
    bytes: Bytes,
}

enum Bytes {
    Slot(Slot),
    Memory(Memory),
}

/// What lead and crew share.
struct Desk<'a> {
    sink: &'a dyn Sink,
    phases: &'a Phases,
    full: Queue<Parcel>,
    /// Slots the crew has emptied.
    free: Queue<Slot>,
    /// One for each part of memory that the crew has read.
    read: Queue<()>,
    kept: Mutex<BTreeMap<(usize, u64), Vec<Piece>>>,
    trouble: Trouble,
}

/// The lead's side of saving. Copies may still be on their way to the sink when [`Saver::copy`] returns.
pub(crate) struct Saver<'a> {
    desk: &'a Desk<'a>,
    window: Window,
    ring: Option<Ring>,
}

/// Runs `lead` with what it takes to save objects of up to `largest` bytes, and gives each object's bytes as they
/// were put away, by the numbers that the lead gave them. An error names its object where it is about one.
pub(crate) fn with_saver(
    largest: u64,
    sink: &dyn Sink,
    phases: &Phases,
    lead: impl FnOnce(&mut Saver<'_>) -> Result<(), (usize, TransferError)>,
) -> Result<BTreeMap<usize, Saved>, (Option<usize>, TransferError)> {
    let of_none = |error| (None, error);
    let desk = Desk {
        sink,
        phases,
        full: Queue::new(),
        free: Queue::new(),
        read: Queue::new(),
        kept: Mutex::new(BTreeMap::new()),
        trouble: Trouble::default(),
    };
    let window = Window::open(largest).map_err(of_none)?;
    let mut saver = Saver { desk: &desk, window, ring: None };
    let led = with_crew(&|| desk.work(), &|| desk.full.close(), || {
        let led = lead(&mut saver);
        saver.collect();
        led
    });
    drop(saver);
    if let Some((object, error)) = desk.trouble.first() {
        return Err((Some(object), error));
    }
    led.map_err(of_none)?.map_err(|(object, error)| (Some(object), error))?;
    let mut saved: BTreeMap<usize, Saved> = BTreeMap::new();
    for ((object, _), pieces) in desk.kept.into_inner().unwrap_or_else(PoisonError::into_inner) {
        let saved = saved.entry(object).or_default();
        pieces.into_iter().for_each(|piece| saved.push(piece));
    }
    Ok(saved)
}

impl Saver<'_> {
    /// Copies the bytes of one object.
    pub(crate) fn copy(
        &mut self,
        object: usize,
        real: MemHandle,
        prop: &AllocationProp,
        size: u64,
    ) -> Result<(), TransferError> {
        let copied = match self.window.show(real, prop, size)? {
            Shown::Processor(memory) => {
                self.read(object, memory);
                Ok(())
            }
            Shown::Device(device, address) => self.copy_from(device, object, address, size),
        };
        // Also after an error: a mapping left behind keeps the memory.
        let hidden = self.window.hide();
        copied.and(hidden)
    }

    /// Has the crew read memory that the processor reaches, and waits until it has.
    fn read(&self, object: usize, mut memory: Memory) {
        let mut count = 0_usize;
        for at in (0_u64..).step_by(GRAIN) {
            let part = memory.split(GRAIN);
            if part.len == 0 {
                break;
            }
            self.desk.full.push(Parcel { object, at, len: part.len, bytes: Bytes::Memory(part) });
            count += 1;
        }
        (0..count).for_each(|_| drop(self.desk.read.pop()));
    }

    /// Copies from a device; all copies have landed when it returns.
    fn copy_from(
        &mut self,
        device: Device,
        object: usize,
        address: u64,
        size: u64,
    ) -> Result<(), TransferError> {
        if self.ring.as_ref().is_none_or(|ring| ring.device() != device) {
            self.collect();
            self.ring = None;
            self.ring = Some(Ring::new(device)?);
        }
        let mut flying = VecDeque::new();
        let mut done = Ok(());
        for (at, len) in slices(size) {
            done = self.start(object, address, at, len, &mut flying);
            if done.is_ok()
                && flying.len() >= FLYING
                && let Some(oldest) = flying.pop_front()
            {
                done = self.land(oldest);
            }
            if done.is_err() {
                break;
            }
        }
        // Whatever happened: the window is about to close.
        let landed: Vec<_> = flying.into_iter().map(|copy| self.land(copy)).collect();
        landed.into_iter().fold(done, Result::and)
    }

    /// Starts the copy of one slice.
    fn start(
        &mut self,
        object: usize,
        address: u64,
        at: u64,
        len: usize,
        flying: &mut VecDeque<Parcel>,
    ) -> Result<(), TransferError> {
        self.desk.trouble.outcome()?;
        let idle = self.ring.as_mut().and_then(|ring| ring.idle.pop());
        // At most `FLYING` slots are with the device, so one comes back from the crew.
        let Some(mut slot) = idle.or_else(|| self.desk.free.pop()) else {
            return Err(TransferError::Panicked);
        };
        let (stream, to) = (slot.stream(), slot.bytes(len).as_mut_ptr());
        // SAFETY: `len` bytes of the slot, which is ours until the copy has landed, and of the window.
        let started = unsafe { real::cuMemcpyDtoHAsync_v2(to.cast(), DevicePtr(address + at), len, stream) };
        flying.push_back(Parcel { object, at, len, bytes: Bytes::Slot(slot) });
        started.map_err(TransferError::driver("cuMemcpyDtoHAsync_v2"))
    }

    /// Waits for a copy and hands its bytes to the crew.
    fn land(&mut self, copy: Parcel) -> Result<(), TransferError> {
        let Bytes::Slot(slot) = &copy.bytes else { return Ok(()) };
        let waited = slot.wait();
        // After an error as well: the crew gives the slot back, and nobody uses what it has kept.
        self.desk.full.push(copy);
        waited
    }

    /// Waits until the crew has given all slots back.
    fn collect(&mut self) {
        let Some(ring) = &mut self.ring else { return };
        while ring.is_short()
            && let Some(slot) = self.desk.free.pop()
        {
            ring.idle.push(slot);
        }
    }
}

impl Desk<'_> {
    /// What a thread of the crew does.
    fn work(&self) {
        while let Some(Parcel { object, at, len, mut bytes }) = self.full.pop() {
            let grains = match &mut bytes {
                Bytes::Slot(slot) => slot.bytes(len),
                // SAFETY: the lead keeps the window open until this part was counted as read.
                Bytes::Memory(memory) => unsafe { memory.bytes() },
            };
            if let Some(pieces) = self.trouble.unless(object, || keep(self.sink, object, at, grains)) {
                self.kept.lock().unwrap_or_else(PoisonError::into_inner).insert((object, at), pieces);
                self.phases.advance(u64::try_from(len).unwrap_or_default());
            }
            match bytes {
                Bytes::Slot(slot) => self.free.push(slot),
                Bytes::Memory(_) => self.read.push(()),
            }
        }
    }
}

/// Puts bytes away, grain by grain.
fn keep(sink: &dyn Sink, object: usize, at: u64, bytes: &[u8]) -> Result<Vec<Piece>, TransferError> {
    (at..)
        .step_by(GRAIN)
        .zip(bytes.chunks(GRAIN))
        .map(|(at, grain)| {
            let len = u64::try_from(grain.len()).unwrap_or_default();
            Ok(Piece { len, place: sink.keep(object, at, grain)? })
        })
        .collect()
}
