//! From a source to memory.

use std::collections::VecDeque;

use cuda_sys::{Device, DevicePtr};
use shim_core::world::{Place, Saved};

use super::crew::with_crew;
use super::queue::Queue;
use super::reach::{Reach, Subject};
use super::ring::{FLYING, Ring, SLOTS, Slot, slices};
use super::{GRAIN, Memory, Shown, Source, TransferError, Trouble};
use crate::driver::real;
use crate::op::Phases;

/// A slot for the crew to fill.
struct Parcel {
    slot: Slot,
    at: u64,
    len: usize,
    place: Place,
}

/// What the crew is asked.
enum Task {
    Slot(Parcel),
    Memory(Memory, Place),
}

/// What lead and crew share.
struct Desk<'a> {
    source: &'a dyn Source,
    phases: &'a Phases,
    tasks: Queue<Task>,
    /// Slots the crew has filled.
    ready: Queue<Parcel>,
    /// One for each part of memory that the crew has written.
    written: Queue<()>,
    trouble: Trouble,
}

/// The lead's side of loading.
pub(crate) struct Loader<'a> {
    desk: &'a Desk<'a>,
    reach: Reach,
    ring: Option<Ring>,
}

/// Runs `lead` with what it takes to load objects of up to `largest` bytes.
pub(crate) fn with_loader<R>(
    largest: u64,
    source: &dyn Source,
    phases: &Phases,
    lead: impl FnOnce(&mut Loader<'_>) -> R,
) -> Result<R, TransferError> {
    let desk = Desk::new(source, phases);
    let mut loader = Loader { desk: &desk, reach: Reach::new(largest), ring: None };
    with_crew(&|| desk.work(), &|| desk.tasks.close(), || lead(&mut loader))
}

impl Loader<'_> {
    /// Writes saved bytes to an object's memory. They are there when it returns.
    pub(crate) fn fill(&mut self, subject: &Subject, saved: &Saved) -> Result<(), TransferError> {
        let filled = match self.reach.open(subject)? {
            Shown::Processor(memory) => self.desk.write(memory, saved),
            Shown::Device(device, address) => self.copy_to(device, address, saved),
        };
        let closed = self.reach.close();
        filled.and(closed)
    }

    /// Copies to a device.
    fn copy_to(&mut self, device: Device, address: u64, saved: &Saved) -> Result<(), TransferError> {
        if self.ring.as_ref().is_none_or(|ring| ring.device() != device) {
            self.ring = None;
            self.ring = Some(Ring::new(device, self.desk.phases.expected())?);
        }
        let Some(ring) = &mut self.ring else { return Ok(()) };
        let zeroed = zero(address, saved, ring, self.desk.phases);
        // No copy is under way any more when `pump` returns, whatever happened.
        zeroed.and_then(|()| pump(self.desk, address, saved, ring))
    }
}

/// Moves the parts that are not zero through the ring: from idle to the crew, to the device, to idle.
fn pump(desk: &Desk<'_>, address: u64, saved: &Saved, ring: &mut Ring) -> Result<(), TransferError> {
    let mut rest = parts(saved);
    let mut flying: VecDeque<Parcel> = VecDeque::new();
    let mut fetching = 0_usize;
    loop {
        while desk.trouble.first().is_none()
            && let Some(slot) = ring.idle.pop()
        {
            let Some((at, len, place)) = rest.next() else {
                ring.idle.push(slot);
                break;
            };
            desk.tasks.push(Task::Slot(Parcel { slot, at, len, place }));
            fetching += 1;
        }
        if fetching > 0 && flying.len() < FLYING {
            let Some(mut parcel) = desk.ready.pop() else { break };
            fetching -= 1;
            desk.trouble.unless(0, || start(address, &mut parcel));
            flying.push_back(parcel);
        } else if let Some(oldest) = flying.pop_front() {
            desk.trouble.unless(0, || oldest.slot.wait());
            desk.phases.advance(u64::try_from(oldest.len).unwrap_or_default());
            ring.idle.push(oldest.slot);
        } else {
            break;
        }
    }
    desk.trouble.outcome()
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
    for piece in saved.pieces() {
        if piece.place == Place::Zero {
            let len = usize::try_from(piece.len).unwrap_or(usize::MAX);
            // SAFETY: a part of the object.
            unsafe { real::cuMemsetD8Async(DevicePtr(at), 0, len, stream) }
                .map_err(TransferError::driver("cuMemsetD8Async"))?;
            phases.advance(piece.len);
        }
        at += piece.len;
    }
    slot.wait()
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
    fn new(source: &'a dyn Source, phases: &'a Phases) -> Self {
        Self {
            source,
            phases,
            tasks: Queue::new(SLOTS),
            ready: Queue::new(SLOTS),
            written: Queue::new(0),
            trouble: Trouble::default(),
        }
    }

    /// Has the crew write memory that the processor reaches, and waits until it has.
    fn write(&self, mut memory: Memory, saved: &Saved) -> Result<(), TransferError> {
        let mut count = 0_usize;
        for piece in saved.pieces() {
            let mut rest = memory.split(usize::try_from(piece.len).unwrap_or(usize::MAX));
            for at in (0_u64..).step_by(GRAIN) {
                let part = rest.split(GRAIN);
                if part.len == 0 {
                    break;
                }
                self.tasks.push(Task::Memory(part, piece.place.skip(at)));
                count += 1;
            }
        }
        (0..count).for_each(|_| self.written.pop().unwrap_or_default());
        self.trouble.outcome()
    }

    /// What a thread of the crew does.
    fn work(&self) {
        while let Some(task) = self.tasks.pop() {
            match task {
                Task::Slot(mut parcel) => {
                    let (place, len) = (parcel.place, parcel.len);
                    self.trouble.unless(0, || self.source.fetch(place, parcel.slot.bytes(len)));
                    self.ready.push(parcel);
                }
                Task::Memory(mut memory, place) => {
                    let len = memory.len;
                    self.trouble.unless(0, || {
                        // SAFETY: the lead keeps the memory mapped until this part was counted as written.
                        self.source.fetch(place, unsafe { memory.bytes() })
                    });
                    self.phases.advance(u64::try_from(len).unwrap_or_default());
                    self.written.push(());
                }
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use shim_core::world::Piece;

    /// Loads into memory that the processor reaches.
    pub(crate) fn load(bytes: &mut [u8], saved: &Saved, source: &dyn Source) -> Result<(), TransferError> {
        let phases = Phases::new();
        let desk = Desk::new(source, &phases);
        let memory = Memory { start: bytes.as_mut_ptr(), len: bytes.len() };
        with_crew(&|| desk.work(), &|| desk.tasks.close(), || desk.write(memory, saved))?
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
