//! From a device to a store, where the device has told the digest: nobody has to see the whole chunk.
//!
//! ```text
//!   each thread, slice by slice:  start the copy of the next slice to one slot, write the other slot to the chunk's file
//! ```
//!
//! A thread has a chunk to itself, so that no two write to one file. A slot is so small that what a device has copied
//! there is still in the processor's cache when it is written, and that making it costs nothing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use chunkstore::{Begun, Chunk, Put, Writer};
use cuda_sys::Device;

use super::layout::Planned;
use super::save::{Job, Known, settle};
use super::staging::Staging;
use super::{broken, width};
use crate::op::Phases;
use crate::transfer::crew::with_drivers;
use crate::transfer::lanes::Stop;
use crate::transfer::reach::Subject;
use crate::transfer::{Current, GRAIN, TransferError, Trouble};

/// Bytes of a slot: a huge page.
const SLOT: usize = GRAIN;
/// The slots of so many threads take no more memory than a chunk.
const THREADS_PER_BUFFER: usize = (64 << 20) / (2 * SLOT);

/// What the threads of a lane share.
pub(super) struct Course<'a> {
    job: Job<'a>,
    /// Chunks of one device whose digests are known.
    numbers: &'a [usize],
    next: AtomicUsize,
    device: Device,
    stop: &'a Stop,
    writer: &'a Writer,
    phases: &'a Phases,
    put: &'a Mutex<Vec<Option<Put>>>,
    trouble: Trouble,
    /// Why a thread could do nothing.
    refused: Mutex<Option<TransferError>>,
}

/// Slots that copies of one device are made to. They are given back while its context is current.
struct Slots {
    both: [Staging; 2],
    _current: Current,
}

/// The bytes of a chunk that are still to be copied: addresses and lengths.
struct Pieces {
    rest: std::vec::IntoIter<(u64, usize)>,
    current: (u64, usize),
}

/// Stores chunks of one device whose digests are known, with so many threads and room for so many chunks.
pub(super) fn save(
    job: Job<'_>,
    numbers: &[usize],
    (threads, buffers): (usize, usize),
    stop: &Stop,
    (writer, phases): (&Writer, &Phases),
    put: &Mutex<Vec<Option<Put>>>,
) -> Result<(), (Option<usize>, TransferError)> {
    let first = numbers.first().and_then(|number| job.planned.get(*number)?.parts.first());
    let Some(first) = first else { return Ok(()) };
    let seen = job.subjects.get(first.object).and_then(Subject::on_device);
    let Some((device, _)) = seen else { return Err((None, TransferError::Panicked)) };
    let (next, trouble, refused) = (AtomicUsize::new(0), Trouble::default(), Mutex::default());
    let course = Course { job, numbers, next, device, stop, writer, phases, put, trouble, refused };
    let body = || course.work();
    let threads = threads.min(numbers.len()).min(buffers.saturating_mul(THREADS_PER_BUFFER));
    let led = with_drivers(threads.saturating_sub(1), &body, &|| (), body);
    if let Some((object, error)) = course.trouble.first() {
        return Err((Some(object), error));
    }
    led.and_then(|()| stop.check()).and_then(|()| course.outcome()).map_err(|error| (None, error))
}

impl Course<'_> {
    /// What each thread does. One that has no slots leaves the chunks to the others.
    fn work(&self) {
        match Slots::new(self.device) {
            Ok(mut slots) => self.take_turns(&mut slots),
            Err(error) => {
                log!("device {}: {error}; there is one thread less", self.device.0);
                self.refused.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        }
    }

    fn take_turns(&self, slots: &mut Slots) {
        while self.stop.check().is_ok()
            && let Some(number) = self.numbers.get(self.next.fetch_add(1, Ordering::Relaxed))
        {
            let planned = self.job.planned.get(*number);
            let object = planned.and_then(|planned| planned.parts.first()).map_or(0, |part| part.object);
            let put = self.trouble.unless(object, || {
                let (Some(planned), Some(Known::Digest(digest))) = (planned, self.job.known.get(*number))
                else {
                    return Err(TransferError::Panicked);
                };
                self.one(Chunk { digest: *digest, len: planned.len }, planned, slots)
            });
            if let Some(put) = put {
                settle(self.put, *number, put);
            }
        }
    }

    /// An error where a chunk is left that no thread has begun with, because none had slots.
    fn outcome(&self) -> Result<(), TransferError> {
        if self.next.load(Ordering::Relaxed) >= self.numbers.len() {
            return Ok(());
        }
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).take();
        Err(refused.unwrap_or(TransferError::Panicked))
    }

    fn one(&self, chunk: Chunk, planned: &Planned, slots: &mut Slots) -> Result<Put, TransferError> {
        let mut coming = match self.writer.begin(chunk).map_err(|error| broken(&error))? {
            Begun::New(coming) => coming,
            Begun::Existing(chunk) => {
                self.phases.advance(chunk.len.into());
                return Ok(Put::Existing(chunk));
            }
        };
        let mut pieces = Pieces::of(planned, self.job.subjects)?;
        let mut write = |slot: &mut Staging, len: usize| {
            slot.wait()?;
            coming.append(slot.part(0, len)?).map_err(|error| broken(&error))?;
            self.phases.advance(u64::try_from(len).unwrap_or_default());
            Ok::<_, TransferError>(())
        };
        let [one, other] = &mut slots.both;
        let (mut filling, mut full, mut len) = (one, other, 0);
        let mut left = width(chunk.len);
        while left > 0 {
            let amount = SLOT.min(left);
            pieces.copy(filling, amount)?;
            if len > 0 {
                write(full, len)?;
            }
            core::mem::swap(&mut filling, &mut full);
            (len, left) = (amount, left - amount);
        }
        write(full, len)?;
        coming.finish().map_err(|error| broken(&error))
    }
}

impl Slots {
    fn new(device: Device) -> Result<Self, TransferError> {
        let current = Current::on(device)?;
        Ok(Self { both: [Staging::new(SLOT)?, Staging::new(SLOT)?], _current: current })
    }
}

impl Pieces {
    fn of(planned: &Planned, subjects: &[Subject]) -> Result<Self, TransferError> {
        let piece = |part: &super::layout::Part| {
            let (_, address) = subjects.get(part.object)?.on_device()?;
            Some((address + part.at, width(part.len)))
        };
        let pieces: Option<Vec<_>> = planned.parts.iter().map(piece).collect();
        Ok(Self { rest: pieces.ok_or(TransferError::Panicked)?.into_iter(), current: (0, 0) })
    }

    /// Starts copies of the next `amount` bytes.
    fn copy(&mut self, slot: &mut Staging, amount: usize) -> Result<(), TransferError> {
        let mut offset = 0;
        while offset < amount {
            let (address, left) = self.current;
            if left == 0 {
                self.current = self.rest.next().ok_or(TransferError::Panicked)?;
                continue;
            }
            let len = left.min(amount - offset);
            slot.copy_from(address, offset, len)?;
            offset += len;
            self.current = (address + u64::try_from(len).unwrap_or_default(), left - len);
        }
        Ok(())
    }
}
