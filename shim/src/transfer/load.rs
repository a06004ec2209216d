//! From a source to memory.

use std::collections::VecDeque;

use cuda_sys::{Device, DevicePtr};
use shim_core::world::{Place, Saved};

use super::crew::{strength, with_crew};
use super::lanes::{self, Stop};
use super::queue::Queue;
use super::reach::{Reach, Subject};
use super::ring::{FLYING, PARTS, Ring, Rings, Slot, slices};
use super::{GRAIN, Memory, Shown, Source, TransferError, Trouble};
use crate::driver::real;
use crate::op::Phases;

/// A slot for the crew to fill.
struct Parcel {
    lane: usize,
    slot: Slot,
    at: u64,
    len: usize,
    place: Place,
}

/// What the crew is asked.
enum Task {
    Slot(Parcel),
    Memory(usize, Memory, Place),
}

/// What leads and crew share.
struct Desk<'a> {
    source: &'a dyn Source,
    tasks: Queue<Task>,
    lanes: Vec<Lane<'a>>,
}

/// What comes back from the crew to the lead of one lane.
struct Lane<'a> {
    number: usize,
    phases: &'a Phases,
    /// Slots the crew has filled.
    ready: Queue<Parcel>,
    /// One for each part of memory that the crew has written.
    written: Queue<()>,
    trouble: Trouble,
}

/// The lead's side of loading, for one lane.
pub(crate) struct Loader<'a> {
    tasks: &'a Queue<Task>,
    lane: &'a Lane<'a>,
    stop: &'a Stop,
    rings: Rings,
    /// Bytes of all its objects.
    bytes: u64,
    reach: Reach,
    ring: Option<Ring>,
}

/// Runs `lead` for each lane, all at the same time, with what it takes to load objects of these sizes.
pub(crate) fn with_loaders<T: Send, E: Send + From<TransferError>>(
    lanes: &[Vec<u64>],
    source: &dyn Source,
    phases: &Phases,
    rings: Rings,
    lead: &(dyn Fn(usize, &mut Loader<'_>) -> Result<T, E> + Sync),
) -> Result<Result<Vec<T>, E>, TransferError> {
    let desk = Desk::new(source, phases, lanes.len(), rings);
    let run = |number: usize, stop: &Stop| {
        let (Some(lane), Some(sizes)) = (desk.lanes.get(number), lanes.get(number)) else {
            return Err(E::from(TransferError::Panicked));
        };
        let reach = Reach::new(sizes.iter().copied().max().unwrap_or(0));
        let bytes = sizes.iter().sum();
        lead(number, &mut Loader { tasks: &desk.tasks, lane, stop, rings, bytes, reach, ring: None })
    };
    with_crew(strength(rings.count), &|| desk.work(), &|| desk.tasks.close(), || {
        lanes::each(lanes.len(), rings.count, &run)
    })?
}

impl Loader<'_> {
    /// Writes saved bytes to an object's memory. They are there when it returns.
    pub(crate) fn fill(&mut self, subject: &Subject, saved: &Saved) -> Result<(), TransferError> {
        self.goes_on()?;
        let filled = match self.reach.open(subject)? {
            Shown::Processor(memory) => self.lane.write(self.tasks, memory, saved),
            Shown::Device(device, address) => self.copy_to(device, address, saved),
        };
        let closed = self.reach.close();
        filled.and(closed)
    }

    /// An error where another lane has failed.
    pub(crate) fn goes_on(&self) -> Result<(), TransferError> {
        self.stop.check()
    }

    /// Copies to a device.
    fn copy_to(&mut self, device: Device, address: u64, saved: &Saved) -> Result<(), TransferError> {
        if self.ring.as_ref().is_none_or(|ring| ring.device() != device) {
            self.ring = None;
            self.ring = Some(Ring::new(device, self.bytes, self.rings)?);
        }
        let Some(ring) = &mut self.ring else { return Ok(()) };
        zero(address, saved, ring, self.lane.phases)?;
        // No copy is under way any more when `pump` returns, whatever happened.
        pump(self.tasks, self.lane, self.stop, (address, saved), ring)
    }
}

/// Moves the parts that are not zero through the ring: from idle to the crew, to the device, to idle.
fn pump(
    tasks: &Queue<Task>,
    lane: &Lane<'_>,
    stop: &Stop,
    (address, saved): (u64, &Saved),
    ring: &mut Ring,
) -> Result<(), TransferError> {
    let mut rest = parts(saved);
    let mut flying: VecDeque<Parcel> = VecDeque::new();
    let mut fetching = 0_usize;
    loop {
        lane.trouble.unless(0, || stop.check());
        while lane.trouble.first().is_none()
            && let Some(slot) = ring.idle.pop()
        {
            let Some((at, len, place)) = rest.next() else {
                ring.idle.push(slot);
                break;
            };
            tasks.push(Task::Slot(Parcel { lane: lane.number, slot, at, len, place }));
            fetching += 1;
        }
        if fetching > 0 && flying.len() < FLYING {
            let Some(mut parcel) = lane.ready.pop() else { break };
            fetching -= 1;
            lane.trouble.unless(0, || start(address, &mut parcel));
            flying.push_back(parcel);
        } else if let Some(oldest) = flying.pop_front() {
            // Also after an error: the memory is about to be unmapped.
            let waited = oldest.slot.wait();
            lane.trouble.unless(0, || waited);
            lane.phases.advance(u64::try_from(oldest.len).unwrap_or_default());
            ring.idle.push(oldest.slot);
        } else {
            break;
        }
    }
    lane.trouble.outcome()
}

/// Starts the copy of what a slot was filled with.
fn start(address: u64, parcel: &mut Parcel) -> Result<(), TransferError> {
    let (stream, from) = (parcel.slot.depart(), parcel.slot.bytes(parcel.len).as_ptr());
    // SAFETY: as many bytes of the slot, which is ours until the copy is done, and of the object.
    unsafe { real::cuMemcpyHtoDAsync_v2(DevicePtr(address + parcel.at), from.cast(), parcel.len, stream) }
        .map_err(TransferError::driver("cuMemcpyHtoDAsync_v2"))
}

/// Fills the pieces that are zero.
fn zero(address: u64, saved: &Saved, ring: &mut Ring, phases: &Phases) -> Result<(), TransferError> {
    let Some(slot) = ring.idle.first_mut() else { return Ok(()) };
    let stream = slot.depart();
    let mut at = address;
    let mut started = Ok(());
    for piece in saved.pieces() {
        if piece.place == Place::Zero && started.is_ok() {
            let len = usize::try_from(piece.len).unwrap_or(usize::MAX);
            // SAFETY: a part of the object.
            started = unsafe { real::cuMemsetD8Async(DevicePtr(at), 0, len, stream) }
                .map_err(TransferError::driver("cuMemsetD8Async"));
            phases.advance(piece.len);
        }
        at += piece.len;
    }
    // Also after an error: the memory is about to be unmapped.
    let waited = slot.wait();
    started.and(waited)
}

/// The parts that are not zero, none larger than a slot: offset, length, and where its bytes are.
fn parts(saved: &Saved) -> impl Iterator<Item = (u64, usize, Place)> {
    let mut next = 0;
    let pieces = saved.pieces().iter().map(move |piece| {
        let at = next;
        next += piece.len;
        (at, *piece)
    });
    pieces.flat_map(|(at, piece)| {
        let len = if piece.place == Place::Zero { 0 } else { piece.len };
        slices(len).map(move |(inner, len)| (at + inner, len, piece.place.skip(inner)))
    })
}

impl<'a> Desk<'a> {
    fn new(source: &'a dyn Source, phases: &'a Phases, lanes: usize, rings: Rings) -> Self {
        let lane = |number| Lane {
            number,
            phases,
            ready: Queue::new(rings.slots),
            written: Queue::new(PARTS),
            trouble: Trouble::default(),
        };
        let tasks = Queue::new(rings.count * rings.slots.max(PARTS));
        Self { source, tasks, lanes: (0..lanes).map(lane).collect() }
    }

    /// What a thread of the crew does.
    fn work(&self) {
        while let Some(task) = self.tasks.pop() {
            match task {
                Task::Slot(mut parcel) => {
                    let Some(lane) = self.lanes.get(parcel.lane) else { continue };
                    let (place, len) = (parcel.place, parcel.len);
                    lane.trouble.unless(0, || self.source.fetch(place, parcel.slot.bytes(len)));
                    lane.ready.push(parcel);
                }
                Task::Memory(lane, mut memory, place) => {
                    let Some(lane) = self.lanes.get(lane) else { continue };
                    let len = memory.len;
                    lane.trouble.unless(0, || {
                        // SAFETY: the lead keeps the memory mapped until this part was counted as written.
                        self.source.fetch(place, unsafe { memory.bytes() })
                    });
                    lane.phases.advance(u64::try_from(len).unwrap_or_default());
                    lane.written.push(());
                }
            }
        }
    }
}

impl Lane<'_> {
    /// Has the crew write memory that the processor reaches, and waits until it has. No lane gets further ahead of the
    /// crew than a ring would, so that the others have their turn.
    fn write(&self, tasks: &Queue<Task>, mut memory: Memory, saved: &Saved) -> Result<(), TransferError> {
        let mut under_way = 0_usize;
        for piece in saved.pieces() {
            let mut rest = memory.split(usize::try_from(piece.len).unwrap_or(usize::MAX));
            for at in (0_u64..).step_by(GRAIN) {
                let part = rest.split(GRAIN);
                if part.len == 0 {
                    break;
                }
                if under_way == PARTS {
                    self.written.pop().unwrap_or_default();
                    under_way -= 1;
                }
                tasks.push(Task::Memory(self.number, part, piece.place.skip(at)));
                under_way += 1;
            }
        }
        (0..under_way).for_each(|_| self.written.pop().unwrap_or_default());
        self.trouble.outcome()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use shim_core::world::Piece;

    /// Loads into memory that the processor reaches.
    pub(crate) fn load(bytes: &mut [u8], saved: &Saved, source: &dyn Source) -> Result<(), TransferError> {
        let phases = Phases::new();
        let desk = Desk::new(source, &phases, 1, Rings::new(1, None));
        let memory = Memory { start: bytes.as_mut_ptr(), len: bytes.len() };
        let write = || desk.lanes[0].write(&desk.tasks, memory, saved);
        with_crew(2, &|| desk.work(), &|| desk.tasks.close(), write)?
    }

    #[test]
    fn parts_leave_zeros_out_and_fit_a_slot() {
        let (mut saved, slot) = (Saved::default(), 2 << 20);
        for (len, place) in [(5, Place::Zero), (2 * slot + 3, Place::Host(100)), (7, Place::Zero)] {
            saved.push(Piece { len, place });
        }
        let told: Vec<_> = parts(&saved).collect();
        let whole = usize::try_from(slot).unwrap();
        assert_eq!(
            told,
            [
                (5, whole, Place::Host(100)),
                (5 + slot, whole, Place::Host(100 + slot)),
                (5 + 2 * slot, 3, Place::Host(100 + 2 * slot)),
            ]
        );
    }

    #[test]
    fn an_error_of_the_source_ends_it() {
        struct Fails;
        impl Source for Fails {
            fn fetch(&self, _: Place, _: &mut [u8]) -> Result<(), TransferError> {
                Err(TransferError::System { call: "read", errno: libc::EIO })
            }
        }
        let mut saved = Saved::default();
        saved.push(Piece { len: 10, place: Place::Host(1) });
        let error = TransferError::System { call: "read", errno: libc::EIO };
        assert_eq!(load(&mut [0; 10], &saved, &Fails), Err(error));
    }
}
