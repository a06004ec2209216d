//! From a store to memory.
//!
//! ```text
//!   lead:  hand buffers out, start the copies of what is read, wait for the oldest
//!   crew:  take a chunk that was staged, or read it from the cache or else from the store, and check it
//! ```
//!
//! A chunk is read once for all objects of a device that have parts in it.

use std::collections::{BTreeMap, VecDeque};

use chunkstore::{Chunk, Sources};
use shim_core::world::{Place, Saved};

use super::staging::{Bench, Staging, Stock};
use super::ways::{self, Way, Ways};
use super::{fetch, staged, width};
use crate::op::Phases;
use crate::transfer::crew::with_crew;
use crate::transfer::queue::Queue;
use crate::transfer::reach::Subject;
use crate::transfer::{TransferError, Trouble};

/// An object that is to be filled, and where its bytes are: zero or in chunks.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// Objects of one group are of one device.
    pub(crate) group: usize,
    /// Its bytes.
    pub(crate) saved: Saved,
}

/// What is to be loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job<'a> {
    /// The objects, by number.
    pub(crate) wanted: &'a [Wanted],
    /// The way to each.
    pub(crate) subjects: &'a [Subject],
    /// All chunks that saved bytes may be in.
    pub(crate) chunks: &'a [Chunk],
    /// How many chunks may wait in host memory at once.
    pub(crate) buffers: usize,
}

/// Bytes of a chunk that belong to an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    object: usize,
    at: u64,
    offset: usize,
    len: usize,
}

/// A chunk to be read, and what its bytes are for.
#[derive(PartialEq, Eq, Debug)]
struct Errand {
    chunk: Chunk,
    parts: Vec<Part>,
}

/// A buffer on its way to the crew and back.
struct Parcel {
    errand: usize,
    staging: Staging,
}

struct Desk<'a> {
    sources: &'a Sources,
    errands: &'a [Errand],
    tasks: Queue<Parcel>,
    /// Buffers the crew has filled.
    ready: Queue<Parcel>,
    trouble: Trouble,
}

struct Lead<'a> {
    job: Job<'a>,
    desk: &'a Desk<'a>,
    phases: &'a Phases,
    /// Bytes that each object still waits for.
    missing: Vec<u64>,
    flying: VecDeque<Parcel>,
    fetching: usize,
    ways: Ways<'a>,
    bench: Bench<'a>,
    stock: &'a Stock,
}

/// Fills all objects, and calls `filled` for each when its bytes are there. An error names its object where it is
/// about one.
pub(crate) fn load(
    job: Job<'_>,
    sources: &Sources,
    phases: &Phases,
    filled: &mut dyn FnMut(usize),
) -> Result<(), (Option<usize>, TransferError)> {
    let errands = errands(job.wanted, job.chunks).map_err(|error| (None, error))?;
    let len = errands.iter().map(|errand| width(errand.chunk.len)).max().unwrap_or(0);
    let desk = Desk {
        sources,
        errands: &errands,
        tasks: Queue::new(job.buffers),
        ready: Queue::new(job.buffers),
        trouble: Trouble::default(),
    };
    let stock = Stock::new(job.buffers, len);
    let mut lead = Lead {
        job,
        desk: &desk,
        phases,
        missing: job.wanted.iter().map(|wanted| wanted.saved.len()).collect(),
        flying: VecDeque::new(),
        fetching: 0,
        ways: Ways::new(job.subjects),
        bench: Bench::new(&stock),
        stock: &stock,
    };
    let led = with_crew(&|| desk.work(), &|| desk.tasks.close(), || {
        let led = lead.zeros(filled).and_then(|()| lead.run(filled));
        let ended = lead.end();
        led.and(ended.map_err(|error| (None, error)))
    });
    drop(lead);
    if let Some((object, error)) = desk.trouble.first() {
        return Err((Some(object), error));
    }
    led.map_err(|error| (None, error))?
}

/// What has to be read, grouped by device and in the order of the chunks.
fn errands(wanted: &[Wanted], chunks: &[Chunk]) -> Result<Vec<Errand>, TransferError> {
    let mut parts: BTreeMap<(usize, u32), Vec<Part>> = BTreeMap::new();
    for (object, wanted) in wanted.iter().enumerate() {
        let mut at = 0;
        for piece in wanted.saved.pieces() {
            if let Place::Chunk { index, offset } = piece.place {
                let part = Part { object, at, offset: width(offset), len: narrow(piece.len) };
                parts.entry((wanted.group, index)).or_default().push(part);
            }
            at += piece.len;
        }
    }
    let chunk = |index: u32| chunks.get(width(index)).copied().ok_or(TransferError::Panicked);
    parts.into_iter().map(|((_, index), parts)| Ok(Errand { chunk: chunk(index)?, parts })).collect()
}

impl Lead<'_> {
    /// Fills what is zero.
    fn zeros(&mut self, filled: &mut dyn FnMut(usize)) -> Result<(), (Option<usize>, TransferError)> {
        let job = self.job;
        let mut staging = match self.bench.take() {
            Ok(Some(staging)) => staging,
            Ok(None) => return Err((None, TransferError::Panicked)),
            Err(error) => return Err((None, error)),
        };
        let mut done = Ok(());
        for (object, wanted) in job.wanted.iter().enumerate() {
            let mut at = 0;
            for piece in wanted.saved.pieces() {
                if piece.place == Place::Zero && done.is_ok() {
                    done = self
                        .zero(object, at, narrow(piece.len), &mut staging)
                        .map_err(|error| (Some(object), error));
                    self.phases.advance(piece.len);
                }
                at += piece.len;
            }
        }
        let waited = staging.wait().map_err(|error| (None, error));
        self.bench.idle.push(staging);
        done.and(waited)?;
        for (object, wanted) in job.wanted.iter().enumerate() {
            self.arrived(object, wanted.saved.zero(), filled);
        }
        Ok(())
    }

    fn zero(
        &mut self,
        object: usize,
        at: u64,
        len: usize,
        staging: &mut Staging,
    ) -> Result<(), TransferError> {
        match self.ways.to(object, || staging.wait())? {
            Way::Processor(start, size) => ways::zero((start, size), at, len),
            Way::Device(device, address) => {
                if !self.bench.is_at(device) {
                    staging.wait()?;
                    self.bench.turn_to(device, staging)?;
                }
                staging.zero(address + at, len)
            }
        }
    }

    /// Moves all chunks: from idle to the crew, to the device, to idle.
    fn run(&mut self, filled: &mut dyn FnMut(usize)) -> Result<(), (Option<usize>, TransferError)> {
        let mut rest = 0..self.desk.errands.len();
        loop {
            self.desk.trouble.outcome().map_err(|error| (None, error))?;
            while !rest.is_empty()
                && let Some(staging) = self.bench.take().map_err(|error| (None, error))?
            {
                let Some(errand) = rest.next() else { break };
                self.desk.tasks.push(Parcel { errand, staging });
                self.fetching += 1;
            }
            if self.fetching > 0 && self.flying.len() < self.stock.may_fly() {
                let Some(parcel) = self.desk.ready.pop() else { break };
                self.fetching -= 1;
                self.start(parcel)?;
            } else if !self.flying.is_empty() {
                self.land(filled)?;
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Starts the copies of a chunk to all its parts.
    fn start(&mut self, mut parcel: Parcel) -> Result<(), (Option<usize>, TransferError)> {
        let errands = self.desk.errands;
        let parts = errands.get(parcel.errand).map(|errand| errand.parts.as_slice()).unwrap_or_default();
        let mut started = self.desk.trouble.outcome().map_err(|error| (None, error));
        for part in parts {
            if started.is_ok() {
                started =
                    self.copy_part(part, &mut parcel.staging).map_err(|error| (Some(part.object), error));
            }
        }
        // Also after an error: a copy may be under way.
        self.flying.push_back(parcel);
        started
    }

    fn copy_part(&mut self, part: &Part, staging: &mut Staging) -> Result<(), TransferError> {
        let flying = &self.flying;
        let drain = || {
            staging.wait()?;
            flying.iter().try_for_each(|parcel| parcel.staging.wait())
        };
        match self.ways.to(part.object, drain)? {
            Way::Processor(start, size) => {
                ways::write((start, size), part.at, staging.part(part.offset, part.len)?)
            }
            Way::Device(device, address) => {
                if !self.bench.is_at(device) {
                    self.flying.iter().try_for_each(|parcel| parcel.staging.wait())?;
                    self.move_to(device, staging)?;
                }
                staging.copy_to(address + part.at, part.offset, part.len)
            }
        }
    }

    /// Turns all buffers to another device. The streams of those that are with the crew were never made or are of
    /// the device before, so those are waited for.
    fn move_to(&mut self, device: cuda_sys::Device, staging: &mut Staging) -> Result<(), TransferError> {
        let mut back = Vec::new();
        while self.fetching > 0
            && let Some(parcel) = self.desk.ready.pop()
        {
            self.fetching -= 1;
            back.push(parcel);
        }
        for parcel in self.flying.iter_mut().chain(&mut back) {
            parcel.staging.detach();
        }
        let turned = self.bench.turn_to(device, staging);
        for parcel in back {
            self.fetching += 1;
            self.desk.ready.push(parcel);
        }
        turned
    }

    /// Waits for the copies of the oldest chunk.
    fn land(&mut self, filled: &mut dyn FnMut(usize)) -> Result<(), (Option<usize>, TransferError)> {
        let Some(Parcel { errand, staging }) = self.flying.pop_front() else { return Ok(()) };
        let waited = staging.wait();
        self.bench.idle.push(staging);
        waited.map_err(|error| (None, error))?;
        let errands = self.desk.errands;
        for part in errands.get(errand).map(|errand| errand.parts.as_slice()).unwrap_or_default() {
            let len = u64::try_from(part.len).unwrap_or_default();
            self.phases.advance(len);
            self.arrived(part.object, len, filled);
        }
        Ok(())
    }

    fn arrived(&mut self, object: usize, len: u64, filled: &mut dyn FnMut(usize)) {
        let Some(missing) = self.missing.get_mut(object) else { return };
        if *missing > 0 && len > 0 {
            *missing = missing.saturating_sub(len);
            if *missing == 0 {
                filled(object);
            }
        }
    }

    /// No copy is under way any more, no buffer is elsewhere, and the window shows nothing, whatever happened.
    fn end(&mut self) -> Result<(), TransferError> {
        let mut ended = Ok(());
        for parcel in self.flying.drain(..) {
            ended = ended.and(parcel.staging.wait());
            self.bench.idle.push(parcel.staging);
        }
        while self.fetching > 0
            && let Some(parcel) = self.desk.ready.pop()
        {
            self.fetching -= 1;
            self.bench.idle.push(parcel.staging);
        }
        ended.and(self.ways.close())
    }
}

impl Desk<'_> {
    /// What a thread of the crew does.
    fn work(&self) {
        while let Some(mut parcel) = self.tasks.pop() {
            if let Some(errand) = self.errands.get(parcel.errand) {
                let object = errand.parts.first().map_or(0, |part| part.object);
                self.trouble.unless(object, || {
                    if staged::take(&errand.chunk, &mut parcel.staging.memory) {
                        return Ok(());
                    }
                    fetch(self.sources, &errand.chunk, &mut parcel.staging.memory)
                });
            }
            self.ready.push(parcel);
        }
    }
}

fn narrow(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
