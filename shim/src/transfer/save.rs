//! From memory to a sink.
//!
//! The lead reaches one object after the other and starts its copies; the crew puts the bytes of one
//! object away while the next one is already being copied.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use cuda_sys::{Device, DevicePtr};
use shim_core::world::{Piece, Place, Saved};

use super::crew::with_crew;
use super::digest::Digest;
use super::look::{Look, parts, runs};
use super::queue::Queue;
use super::reach::{Reach, Subject};
use super::ring::{FLYING, Ring, SLOTS, Slot};
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
    /// For each object a piece per grain; the lead makes room.
    kept: Mutex<BTreeMap<usize, Vec<Piece>>>,
    trouble: Trouble,
}

/// The lead's side of saving. Copies may still be on their way to the sink when [`Saver::copy`] returns.
pub(crate) struct Saver<'a> {
    desk: &'a Desk<'a>,
    reach: Reach,
    ring: Option<Ring>,
    look: Look,
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
    let desk = Desk::new(sink, phases);
    let mut saver = Saver { desk: &desk, reach: Reach::new(largest), ring: None, look: Look::default() };
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
    let kept = desk.kept.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(kept.into_iter().map(|(object, pieces)| (object, joined(pieces))).collect())
}

/// Pieces in their order.
fn joined(pieces: Vec<Piece>) -> Saved {
    let mut saved = Saved::default();
    pieces.into_iter().for_each(|piece| saved.push(piece));
    saved
}

impl Saver<'_> {
    /// Says that an object is going to be copied. All that is announced before the first copy is looked at in one go.
    pub(crate) fn announce(&mut self, object: usize, subject: &Subject) {
        if let Some((device, address)) = subject.on_device() {
            self.look.announce(object, device, address, subject.size());
        }
    }

    /// Copies the bytes of one object.
    pub(crate) fn copy(&mut self, object: usize, subject: &Subject) -> Result<(), TransferError> {
        let size = subject.size();
        self.desk.make_room(object, size);
        let copied = match self.reach.open(subject)? {
            Shown::Processor(memory) => {
                self.desk.read(object, memory);
                Ok(())
            }
            Shown::Device(device, address) => self.copy_from(device, object, address, size),
        };
        let closed = self.reach.close();
        copied.and(closed)
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
            self.ring = Some(Ring::new(device, self.desk.phases.expected())?);
        }
        let Some(ring) = &mut self.ring else { return Ok(()) };
        let digests = self.look.at(ring, object, address, size);
        let rest =
            runs(size, &digests, |grain, digest| self.desk.settle(object, grain.address, grain.len, digest));
        let mut flying = VecDeque::new();
        let mut done = Ok(());
        for (at, len) in rest.into_iter().flat_map(|(at, len)| parts(at, len)) {
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
        // Whatever happened: the memory is about to be unmapped.
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
        let (stream, to) = (slot.depart(), slot.bytes(len).as_mut_ptr());
        // SAFETY: `len` bytes of the slot, which is ours until the copy has landed, and of the object.
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

impl<'a> Desk<'a> {
    fn new(sink: &'a dyn Sink, phases: &'a Phases) -> Self {
        Self {
            sink,
            phases,
            full: Queue::new(SLOTS),
            free: Queue::new(SLOTS),
            read: Queue::new(0),
            kept: Mutex::new(BTreeMap::new()),
            trouble: Trouble::default(),
        }
    }

    /// Has the crew read memory that the processor reaches, and waits until it has.
    fn read(&self, object: usize, mut memory: Memory) {
        let mut count = 0_usize;
        for at in (0_u64..).step_by(GRAIN) {
            let part = memory.split(GRAIN);
            if part.len == 0 {
                break;
            }
            self.full.push(Parcel { object, at, len: part.len, bytes: Bytes::Memory(part) });
            count += 1;
        }
        (0..count).for_each(|_| self.read.pop().unwrap_or_default());
    }

    /// What a thread of the crew does.
    fn work(&self) {
        while let Some(Parcel { object, at, len, mut bytes }) = self.full.pop() {
            let grains = match &mut bytes {
                Bytes::Slot(slot) => slot.bytes(len),
                // SAFETY: the lead keeps the memory mapped until this part was counted as read.
                Bytes::Memory(memory) => unsafe { memory.bytes() },
            };
            if self.trouble.unless(object, || self.keep(object, at, grains)).is_some() {
                self.phases.advance(u64::try_from(len).unwrap_or_default());
            }
            match bytes {
                Bytes::Slot(slot) => self.free.push(slot),
                Bytes::Memory(_) => self.read.push(()),
            }
        }
    }

    /// Puts bytes away, grain by grain.
    fn keep(&self, object: usize, at: u64, bytes: &[u8]) -> Result<(), TransferError> {
        for (at, grain) in (at..).step_by(GRAIN).zip(bytes.chunks(GRAIN)) {
            let len = u64::try_from(grain.len()).unwrap_or_default();
            self.note(object, at, Piece { len, place: self.sink.keep(object, at, grain)? });
        }
        Ok(())
    }

    /// Whether a grain of that digest need not be moved: it is zero, or where it has to go already.
    fn settle(&self, object: usize, at: u64, len: u64, digest: &Digest) -> bool {
        let place =
            if digest.is_zero { Some(Place::Zero) } else { self.sink.has(object, at, len, digest.hash) };
        if let Some(place) = place {
            self.note(object, at, Piece { len, place });
            self.phases.advance(len);
        }
        place.is_some()
    }

    /// Where a grain is now.
    fn note(&self, object: usize, at: u64, piece: Piece) {
        let number = usize::try_from(at).unwrap_or(usize::MAX) / GRAIN;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = kept.get_mut(&object).and_then(|pieces| pieces.get_mut(number)) {
            *place = piece;
        }
    }

    /// Makes room for what will be known of an object.
    fn make_room(&self, object: usize, size: u64) {
        let grains = usize::try_from(size).unwrap_or(usize::MAX).div_ceil(GRAIN);
        let pieces = vec![Piece { len: 0, place: Place::Zero }; grains];
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).insert(object, pieces);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::arena::{HostMemory, Parts};
    use crate::transfer::load::tests::load;

    /// Bytes with zero grains at the start and in the middle, and an odd end.
    fn bytes() -> Vec<u8> {
        let byte = |at: usize| match at / GRAIN {
            0 | 3 => 0,
            _ => u8::try_from(at % 251).unwrap(),
        };
        (0..5 * GRAIN + 12345).map(byte).collect()
    }

    fn save(bytes: &mut [u8], sink: &dyn Sink) -> Result<Saved, TransferError> {
        let phases = Phases::new();
        let desk = Desk::new(sink, &phases);
        let size = u64::try_from(bytes.len()).unwrap();
        desk.make_room(0, size);
        let memory = Memory { start: bytes.as_mut_ptr(), len: bytes.len() };
        with_crew(&|| desk.work(), &|| desk.full.close(), || desk.read(0, memory))?;
        desk.trouble.outcome()?;
        Ok(joined(desk.kept.into_inner().unwrap().remove(&0).unwrap()))
    }

    #[test]
    fn what_was_saved_is_loaded_and_zeros_are_told() {
        let mut bytes = bytes();
        let size = u64::try_from(bytes.len()).unwrap();
        let parts = Parts::new([size], None).unwrap();
        let saved = save(&mut bytes, &parts).unwrap();
        assert_eq!((saved.len(), saved.zero()), (size, 2 * u64::try_from(GRAIN).unwrap()));
        assert_eq!(saved.pieces().len(), 4, "neighbours are one piece");
        let mut back = vec![0xaa; bytes.len()];
        load(&mut back, &saved, &HostMemory).unwrap();
        assert!(back == bytes);
    }

    #[test]
    fn an_error_of_the_sink_ends_it() {
        let mut bytes = bytes();
        let limit = 2 * u64::try_from(GRAIN).unwrap();
        let parts = Parts::new([u64::try_from(bytes.len()).unwrap()], Some(limit)).unwrap();
        assert_eq!(save(&mut bytes, &parts), Err(TransferError::OverLimit { limit }));
    }

    #[test]
    fn a_panic_in_the_sink_ends_it() {
        struct Panics;
        impl Sink for Panics {
            fn keep(&self, _: usize, _: u64, _: &[u8]) -> Result<Place, TransferError> {
                std::panic::resume_unwind(Box::new(()))
            }
        }
        assert_eq!(save(&mut bytes(), &Panics), Err(TransferError::Panicked));
    }
}
