//! From memory to a store.
//!
//! ```text
//!   lead:  take a buffer, start the copies of a chunk's parts, wait for the oldest chunk, hand it over
//!   crew:  make buffers, hash, look whether the store has it, write
//! ```
//!
//! Each device has a lane, with a lead, buffers and a crew of its own: threads and buffers are divided by what there is to
//! do. What is known of a chunk beforehand, because the device has hashed it, decides what happens: zeros and what the
//! store has are not copied at all, and what has to be written is streamed there ([`stream`]).

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use chunkstore::{Chunk, Digest, Put, Writer};

use super::division::{Lane, divide};
use super::layout::{Part, Planned};
use super::staging::{Bench, Staging, Stock};
use super::ways::{self, Way, Ways};
use super::{broken, stream, width};
use crate::op::Phases;
use crate::transfer::crew::with_crew;
use crate::transfer::lanes::{self, Stop};
use crate::transfer::queue::Queue;
use crate::transfer::reach::Subject;
use crate::transfer::{TransferError, Trouble};

/// What is known of a chunk before any byte of it has moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    /// Nothing.
    Nothing,
    /// All its bytes are zero.
    Zero,
    /// What its bytes hash to.
    Digest(Digest),
}

/// What is to be saved: chunks, what is known of each, and the objects that their parts are of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job<'a> {
    /// The chunks.
    pub(crate) planned: &'a [Planned],
    /// What is known of each.
    pub(crate) known: &'a [Known],
    /// The objects.
    pub(crate) subjects: &'a [Subject],
    /// How many chunks may wait in host memory at once.
    pub(crate) buffers: usize,
}

/// A chunk whose copies are under way or done.
struct Full {
    number: usize,
    staging: Staging,
    len: usize,
    /// One of the objects in it.
    object: usize,
}

/// What lead and crew share.
struct Desk<'a> {
    writer: &'a Writer,
    phases: &'a Phases,
    full: Queue<Full>,
    stock: Stock,
    /// Buffers the crew has made or emptied. Nothing stands for one that could not be made: who waits has to look anew.
    free: Queue<Option<Staging>>,
    /// What became of each chunk, of all lanes.
    put: &'a Mutex<Vec<Option<Put>>>,
    trouble: Trouble,
}

/// The lead's side. Buffers are given back before the context that they belong to.
struct Lead<'a> {
    job: Job<'a>,
    stop: &'a Stop,
    desk: &'a Desk<'a>,
    flying: VecDeque<Full>,
    ways: Ways<'a>,
    bench: Bench<'a>,
}

/// Stores all chunks, and says what became of each. An error names its object where it is about one.
pub(crate) fn save(
    job: Job<'_>,
    writer: &Writer,
    phases: &Phases,
) -> Result<Vec<Put>, (Option<usize>, TransferError)> {
    let there = claimed(job, writer).map_err(|error| (None, error))?;
    let put = settled(job, &there, phases);
    let (lanes, at_once) = divide(rest(job, &put), job.buffers);
    let put = Mutex::new(put);
    let run = |number: usize, stop: &Stop| match lanes.get(number) {
        Some(lane) => save_lane(job, lane, stop, (writer, phases), &put),
        None => Ok(()),
    };
    lanes::each(lanes.len(), at_once, &run).map_err(|error| (None, error))??;
    let put = put.into_inner().unwrap_or_else(PoisonError::into_inner);
    put.into_iter().collect::<Option<_>>().ok_or((None, TransferError::Panicked))
}

/// What has to be copied of each device: how many bytes, and the numbers of the chunks.
fn rest(job: Job<'_>, put: &[Option<Put>]) -> Vec<(u64, Vec<usize>)> {
    let chunks = job.planned.iter().zip(put).enumerate().filter(|(_, (_, put))| put.is_none());
    let grouped = chunks.map(|(number, (planned, _))| {
        let object = planned.parts.first().and_then(|part| job.subjects.get(part.object));
        (object.map_or(0, Subject::group), (number, u64::from(planned.len)))
    });
    let sum = |chunks: Vec<(usize, u64)>| {
        (chunks.iter().map(|(_, len)| len).sum(), chunks.into_iter().map(|(number, _)| number).collect())
    };
    lanes::split(grouped).into_iter().map(sum).collect()
}

/// Stores the chunks of a lane.
fn save_lane(
    job: Job<'_>,
    lane: &Lane<Vec<usize>>,
    stop: &Stop,
    (writer, phases): (&Writer, &Phases),
    put: &Mutex<Vec<Option<Put>>>,
) -> Result<(), (Option<usize>, TransferError)> {
    let is_told = |number: &usize| matches!(job.known.get(*number), Some(Known::Digest(_)));
    let (told, untold): (Vec<usize>, Vec<usize>) = lane.work.iter().copied().partition(is_told);
    stream::save(job, &told, (lane.threads, lane.buffers), stop, (writer, phases), put)?;
    let len = untold.iter().filter_map(|number| job.planned.get(*number)).map(|one| width(one.len)).max();
    let Some(len) = len else { return Ok(()) };
    // The last ones would be made for nothing.
    let buffers = lane.buffers.min(untold.len());
    let desk = Desk {
        writer,
        phases,
        full: Queue::new(buffers),
        stock: Stock::new(buffers, len),
        free: Queue::new(buffers),
        put,
        trouble: Trouble::default(),
    };
    let bench = Bench::new(&desk.stock);
    let (flying, ways) = (VecDeque::new(), Ways::new(job.subjects));
    let mut lead = Lead { job, stop, desk: &desk, flying, ways, bench };
    let led = with_crew(lane.threads, &|| desk.work(), &|| desk.full.close(), || {
        let led = lead.run(&untold);
        let ended = lead.end();
        led.and(ended.map_err(|error| (None, error)))
    });
    drop(lead);
    if let Some((object, error)) = desk.trouble.first() {
        return Err((Some(object), error));
    }
    led.map_err(|error| (None, error))?
}

/// Which of the chunks whose digests are known the store has. They are claimed with one write.
fn claimed(job: Job<'_>, writer: &Writer) -> Result<Vec<Option<Chunk>>, TransferError> {
    let chunk_of = |(planned, known): (&Planned, &Known)| match known {
        Known::Digest(digest) => Some(Chunk { digest: *digest, len: planned.len }),
        Known::Nothing | Known::Zero => None,
    };
    let chunks: Vec<Option<Chunk>> = job.planned.iter().zip(job.known).map(chunk_of).collect();
    let named: Vec<Chunk> = chunks.iter().flatten().copied().collect();
    if named.is_empty() {
        return Ok(chunks);
    }
    let mut there = writer.claim_all(&named).map_err(|error| broken(&error))?.into_iter();
    Ok(chunks.into_iter().map(|chunk| chunk.filter(|_| there.next() == Some(true))).collect())
}

/// What becomes of the chunks that need not be copied.
fn settled(job: Job<'_>, there: &[Option<Chunk>], phases: &Phases) -> Vec<Option<Put>> {
    // Memory may hold the same bytes twice, also that of two devices.
    let mut coming = BTreeSet::new();
    let settle = |((planned, known), there): ((&Planned, &Known), &Option<Chunk>)| {
        let put = match (known, there) {
            (Known::Zero, _) => Put::Zero,
            (_, Some(chunk)) => Put::Existing(*chunk),
            (Known::Digest(digest), None) if !coming.insert(*digest) => {
                Put::Existing(Chunk { digest: *digest, len: planned.len })
            }
            _ => return None,
        };
        phases.advance(planned.len.into());
        Some(put)
    };
    job.planned.iter().zip(job.known).zip(there).map(settle).collect()
}

impl Lead<'_> {
    fn run(&mut self, numbers: &[usize]) -> Result<(), (Option<usize>, TransferError)> {
        let job = self.job;
        for &number in numbers {
            let Some(planned) = job.planned.get(number) else { return Err((None, TransferError::Panicked)) };
            let object = planned.parts.first().map(|part| part.object);
            self.copy(number, planned).map_err(|error| (object, error))?;
        }
        self.land_all().map_err(|error| (None, error))
    }

    /// Starts the copies of a chunk.
    fn copy(&mut self, number: usize, planned: &Planned) -> Result<(), TransferError> {
        self.desk.trouble.outcome()?;
        self.stop.check()?;
        let staging = self.take()?;
        let object = planned.parts.first().map_or(0, |part| part.object);
        let mut full = Full { number, staging, len: width(planned.len), object };
        let mut offset = 0;
        let mut copied = Ok(());
        for part in &planned.parts {
            copied = self.copy_part(part, &mut full.staging, offset);
            if copied.is_err() {
                break;
            }
            offset += width(part.len);
        }
        if let Err(error) = copied {
            // What has begun has to end before the memory is somebody else's.
            let waited = full.staging.wait();
            self.bench.idle.push(full.staging);
            return waited.and(Err(error));
        }
        self.flying.push_back(full);
        while self.flying.len() > self.desk.stock.may_fly() {
            self.land()?;
        }
        Ok(())
    }

    fn copy_part(&mut self, part: &Part, staging: &mut Staging, offset: usize) -> Result<(), TransferError> {
        let len = width(part.len);
        let flying = &self.flying;
        let drain = || {
            staging.wait()?;
            flying.iter().try_for_each(|full| full.staging.wait())
        };
        match self.ways.to(part.object, drain)? {
            Way::Processor(start, size) => ways::read((start, size), part.at, staging.part(offset, len)?),
            Way::Device(device, address) => {
                if !self.bench.is_at(device) {
                    staging.wait()?;
                    self.land_all()?;
                    self.collect(1);
                    self.bench.turn_to(device, staging)?;
                }
                staging.copy_from(address + part.at, offset, len)
            }
        }
    }

    /// A buffer that nobody uses. The first is made here, so that there is one or an error.
    fn take(&mut self) -> Result<Staging, TransferError> {
        loop {
            if let Some(staging) = self.bench.idle.pop().or_else(|| self.desk.free.try_pop().flatten()) {
                return Ok(staging);
            }
            if self.desk.stock.made() == 0
                && let Some(staging) = self.bench.take()?
            {
                return Ok(staging);
            }
            if !self.flying.is_empty() {
                self.land()?;
            } else if let Some(staging) = self.desk.free.pop().ok_or(TransferError::Panicked)? {
                return Ok(staging);
            }
        }
    }

    /// Waits for the oldest chunk and hands it to the crew.
    fn land(&mut self) -> Result<(), TransferError> {
        let Some(oldest) = self.flying.pop_front() else { return Ok(()) };
        match oldest.staging.wait() {
            Ok(()) => {
                self.desk.full.push(oldest);
                Ok(())
            }
            Err(error) => {
                self.bench.idle.push(oldest.staging);
                Err(error)
            }
        }
    }

    fn land_all(&mut self) -> Result<(), TransferError> {
        while !self.flying.is_empty() {
            self.land()?;
        }
        Ok(())
    }

    /// Waits until the crew has given all buffers back, but for those that are `held` here.
    fn collect(&mut self, held: usize) {
        while self.bench.idle.len() + held < self.desk.stock.made()
            && let Some(staging) = self.desk.free.pop()
        {
            self.bench.idle.extend(staging);
        }
    }

    /// No copy is under way any more, no buffer is elsewhere, and the window shows nothing, whatever happened.
    fn end(&mut self) -> Result<(), TransferError> {
        let mut ended = Ok(());
        for full in self.flying.drain(..) {
            ended = ended.and(full.staging.wait());
            self.bench.idle.push(full.staging);
        }
        self.collect(0);
        ended.and(self.ways.close())
    }
}

impl Desk<'_> {
    /// The next chunk to be stored. While there is none, buffers are made.
    fn next(&self) -> Option<Full> {
        loop {
            if let Some(full) = self.full.try_pop() {
                return Some(full);
            }
            match self.stock.another() {
                None => return self.full.pop(),
                Some(Ok(mut staging)) => {
                    staging.populate();
                    self.free.push(Some(staging));
                }
                Some(Err(_)) => {
                    self.free.push(None);
                    return self.full.pop();
                }
            }
        }
    }

    /// What a thread of the crew does.
    fn work(&self) {
        while let Some(Full { number, mut staging, len, object }) = self.next() {
            let put = self
                .trouble
                .unless(object, || self.writer.put(staging.part(0, len)?).map_err(|error| broken(&error)));
            if let Some(put) = put {
                settle(self.put, number, put);
                self.phases.advance(u64::try_from(len).unwrap_or_default());
            }
            self.free.push(Some(staging));
        }
    }
}

/// Notes what became of a chunk.
pub(super) fn settle(put: &Mutex<Vec<Option<Put>>>, number: usize, became: Put) {
    if let Some(place) = put.lock().unwrap_or_else(PoisonError::into_inner).get_mut(number) {
        *place = Some(became);
    }
}
