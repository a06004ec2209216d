//! From memory to a sink.
//!
//! The lead of a lane reaches one object after the other and starts its copies; the crew, which serves all lanes, puts the
//! bytes of one object away while the next one is already being copied.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use cuda_sys::{Device, DevicePtr};
use shim_core::world::{Piece, Place, Saved};

use super::crew::{strength, with_crew};
use super::digest::Digest;
use super::lanes::{self, Stop};
use super::look::{Look, parts, runs};
use super::queue::Queue;
use super::reach::{Reach, Subject};
use super::ring::{FLYING, PARTS, Ring, Rings, Slot};
use super::{GRAIN, Memory, Shown, Sink, TransferError, Trouble};
use crate::driver::real;
use crate::op::Phases;

/// Bytes for the crew to put away.
struct Parcel {
    lane: usize,
    object: usize,
    at: u64,
    len: usize,
    bytes: Bytes,
}

enum Bytes {
    Slot(Slot),
    Memory(Memory),
}

/// What leads and crew share.
struct Desk<'a> {
    sink: &'a dyn Sink,
    phases: &'a Phases,
    full: Queue<Parcel>,
    lanes: Vec<Lane>,
    /// For each object a piece per grain; the leads make room.
    kept: Mutex<BTreeMap<usize, Vec<Piece>>>,
    trouble: Trouble,
}

/// What comes back from the crew to the lead of one lane.
struct Lane {
    /// Slots the crew has emptied.
    free: Queue<Slot>,
    /// One for each part of memory that the crew has read.
    read: Queue<()>,
}

/// A lead. Copies may still be on their way to the sink when [`Saver::copy`] returns.
struct Saver<'a> {
    desk: &'a Desk<'a>,
    lane: usize,
    rings: Rings,
    /// Bytes of all its objects.
    bytes: u64,
    reach: Reach,
    ring: Option<Ring>,
    look: Look,
}

/// An object, by the number that the caller gives it.
pub(crate) type Numbered = (usize, Subject);

/// Saves the objects of some lanes, all lanes at the same time, and gives each object's bytes as they were put away. An
/// error names its object where it is about one.
pub(crate) fn save(
    lanes: &[Vec<Numbered>],
    sink: &dyn Sink,
    phases: &Phases,
    rings: Rings,
) -> Result<BTreeMap<usize, Saved>, (Option<usize>, TransferError)> {
    let of_none = |error| (None, error);
    let desk = Desk::new(sink, phases, lanes.len(), rings);
    let run = |lane: usize, stop: &Stop| {
        let objects = lanes.get(lane).map(Vec::as_slice).unwrap_or_default();
        // For the others, and told before what they make of it.
        lead(&desk, lane, objects, rings, stop).map_err(|(object, error)| desk.trouble.note(object, error))
    };
    let led = with_crew(strength(rings.count), &|| desk.work(), &|| desk.full.close(), || {
        lanes::each(lanes.len(), rings.count, &run)
    });
    let led = led.and_then(|led| led).map_err(of_none)?;
    if let Some((object, error)) = desk.trouble.first() {
        return Err((Some(object), error));
    }
    led.map_err(|()| (None, TransferError::Panicked))?;
    let kept = desk.kept.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(kept.into_iter().map(|(object, pieces)| (object, joined(pieces))).collect())
}

/// Saves the objects of one lane. An error names its object.
fn lead(
    desk: &Desk<'_>,
    lane: usize,
    objects: &[Numbered],
    rings: Rings,
    stop: &Stop,
) -> Result<(), (usize, TransferError)> {
    let sizes = || objects.iter().map(|(_, subject)| subject.size());
    let reach = Reach::new(sizes().max().unwrap_or(0));
    let (bytes, look) = (sizes().sum(), Look::default());
    let mut saver = Saver { desk, lane, rings, bytes, reach, ring: None, look };
    objects.iter().for_each(|(number, subject)| saver.announce(*number, subject));
    let led = objects.iter().try_for_each(|(number, subject)| {
        let copied = stop.check().and_then(|()| saver.copy(*number, subject));
        copied.map_err(|error| (*number, error))
    });
    saver.collect();
    led
}

/// Pieces in their order.
fn joined(pieces: Vec<Piece>) -> Saved {
    let mut saved = Saved::default();
    pieces.into_iter().for_each(|piece| saved.push(piece));
    saved
}

impl Saver<'_> {
    /// Says that an object is going to be copied. All that is announced before the first copy is looked at in one go.
    fn announce(&mut self, object: usize, subject: &Subject) {
        if let Some((device, address)) = subject.on_device() {
            self.look.announce(object, device, address, subject.size());
        }
    }

    /// Copies the bytes of one object.
    fn copy(&mut self, object: usize, subject: &Subject) -> Result<(), TransferError> {
        let size = subject.size();
        self.desk.make_room(object, size);
        let copied = match self.reach.open(subject)? {
            Shown::Processor(memory) => {
                self.desk.read(self.lane, object, memory);
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
            self.ring = Some(Ring::new(device, self.bytes, self.rings)?);
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
        let Some(mut slot) = idle.or_else(|| self.free()?.pop()) else {
            return Err(TransferError::Panicked);
        };
        let (stream, to) = (slot.depart(), slot.bytes(len).as_mut_ptr());
        // SAFETY: `len` bytes of the slot, which is ours until the copy has landed, and of the object.
        let started = unsafe { real::cuMemcpyDtoHAsync_v2(to.cast(), DevicePtr(address + at), len, stream) };
        flying.push_back(Parcel { lane: self.lane, object, at, len, bytes: Bytes::Slot(slot) });
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

    /// The slots that come back from the crew.
    fn free(&self) -> Option<&Queue<Slot>> {
        self.desk.lanes.get(self.lane).map(|lane| &lane.free)
    }

    /// Waits until the crew has given all slots back.
    fn collect(&mut self) {
        let desk = self.desk;
        let (Some(ring), Some(lane)) = (&mut self.ring, desk.lanes.get(self.lane)) else { return };
        while ring.is_short()
            && let Some(slot) = lane.free.pop()
        {
            ring.idle.push(slot);
        }
    }
}

impl<'a> Desk<'a> {
    fn new(sink: &'a dyn Sink, phases: &'a Phases, lanes: usize, rings: Rings) -> Self {
        let lane = |_| Lane { free: Queue::new(rings.slots), read: Queue::new(PARTS) };
        Self {
            sink,
            phases,
            full: Queue::new(rings.count * rings.slots.max(PARTS)),
            lanes: (0..lanes).map(lane).collect(),
            kept: Mutex::new(BTreeMap::new()),
            trouble: Trouble::default(),
        }
    }

    /// Has the crew read memory that the processor reaches, and waits until it has. No lane gets further ahead of the crew
    /// than a ring would, so that the others have their turn.
    fn read(&self, lane: usize, object: usize, mut memory: Memory) {
        let Some(Lane { read, .. }) = self.lanes.get(lane) else { return };
        let mut under_way = 0_usize;
        for at in (0_u64..).step_by(GRAIN) {
            let part = memory.split(GRAIN);
            if part.len == 0 {
                break;
            }
            if under_way == PARTS {
                read.pop().unwrap_or_default();
                under_way -= 1;
            }
            self.full.push(Parcel { lane, object, at, len: part.len, bytes: Bytes::Memory(part) });
            under_way += 1;
        }
        (0..under_way).for_each(|_| read.pop().unwrap_or_default());
    }

    /// What a thread of the crew does.
    fn work(&self) {
        while let Some(Parcel { lane, object, at, len, mut bytes }) = self.full.pop() {
            let grains = match &mut bytes {
                Bytes::Slot(slot) => slot.bytes(len),
                // SAFETY: the lead keeps the memory mapped until this part was counted as read.
                Bytes::Memory(memory) => unsafe { memory.bytes() },
            };
            if self.trouble.unless(object, || self.keep(object, at, grains)).is_some() {
                self.phases.advance(u64::try_from(len).unwrap_or_default());
            }
            let Some(lane) = self.lanes.get(lane) else { continue };
            match bytes {
                Bytes::Slot(slot) => lane.free.push(slot),
                Bytes::Memory(_) => lane.read.push(()),
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
        let desk = Desk::new(sink, &phases, 1, Rings::new(1, None));
        let size = u64::try_from(bytes.len()).unwrap();
        desk.make_room(0, size);
        let memory = Memory { start: bytes.as_mut_ptr(), len: bytes.len() };
        with_crew(2, &|| desk.work(), &|| desk.full.close(), || desk.read(0, 0, memory))?;
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
