//! From a store to memory.
//!
//! ```text
//!   lead:  hand buffers out, start the copies of what is read, wait for the oldest, have the device check it
//!   crew:  take a chunk that was staged, or read it from the cache or else from the store
//! ```
//!
//! Each device has a lane, with a lead, buffers and a crew of its own: threads and buffers are divided by what there is to
//! do. A chunk is read once for all objects of a device that have parts in it. Where no device can check it, the crew does
//! when it has read it. What is wrong in the memory of a device was wrong in the buffer, and is read from another place,
//! or was not, and is copied once more. Chunks that were staged are checked too: they have lain in memory since they were
//! good.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use chunkstore::{Chunk, Sources, Verify};
use shim_core::world::Place;

use super::checking::Checking;
use super::division::{Lane, divide};
use super::errand::{Errand, Part, Wanted, errands, narrow};
use super::staging::{Bench, Staging, Stock};
use super::ways::{self, Way, Ways};
use super::{fetch, staged, width};
use crate::op::Phases;
use crate::transfer::crew::with_crew;
use crate::transfer::lanes::{self, Stop};
use crate::transfer::queue::Queue;
use crate::transfer::reach::Subject;
use crate::transfer::{TransferError, Trouble};

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

/// A buffer on its way to the crew and back.
pub(super) struct Parcel {
    pub(super) errand: usize,
    pub(super) staging: Staging,
    /// Where it is from, if it has to be checked.
    pub(super) unchecked: Option<Origin>,
}

/// Where a chunk in a buffer is from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    Staged,
    /// This place of the sources.
    Place(usize),
}

pub(super) struct Desk<'a> {
    pub(super) sources: &'a Sources,
    pub(super) errands: &'a [Errand],
    tasks: Queue<Parcel>,
    /// Buffers the crew has filled.
    ready: Queue<Parcel>,
    /// Whether the crew checks everything, since a device could not.
    pub(super) checks_all: AtomicBool,
    trouble: Trouble,
}

pub(super) struct Lead<'a> {
    job: Job<'a>,
    stop: &'a Stop,
    pub(super) desk: &'a Desk<'a>,
    phases: &'a Phases,
    /// Bytes that each object still waits for.
    missing: Vec<u64>,
    flying: VecDeque<Parcel>,
    fetching: usize,
    ways: Ways<'a>,
    /// Before the bench: the kernels go while their context is current.
    pub(super) checking: Checking,
    pub(super) bench: Bench<'a>,
    stock: &'a Stock,
}

/// What a lane has to load: objects of one device, by number, and the chunks that they have parts in.
type Load = (Vec<usize>, Vec<Errand>);

/// Fills all objects, and calls `filled` for each when its bytes are there. An error names its object where it is
/// about one.
pub(crate) fn load(
    job: Job<'_>,
    sources: &Sources,
    phases: &Phases,
    filled: &(dyn Fn(usize) + Sync),
) -> Result<(), (Option<usize>, TransferError)> {
    let errands = errands(job.wanted, job.subjects, job.chunks).map_err(|error| (None, error))?;
    let (lanes, at_once) = divide(by_device(job, errands), job.buffers);
    let run = |number: usize, stop: &Stop| match lanes.get(number) {
        Some(lane) => load_lane(job, lane, stop, (sources, phases), filled),
        None => Ok(()),
    };
    lanes::each(lanes.len(), at_once, &run).map_err(|error| (None, error))?.map(drop)
}

/// What there is to do for each device, and how many bytes have to be read for it.
fn by_device(job: Job<'_>, errands: Vec<Errand>) -> Vec<(u64, Load)> {
    let mut groups: BTreeMap<usize, Load> = BTreeMap::new();
    for (object, wanted) in job.wanted.iter().enumerate() {
        groups.entry(wanted.group).or_default().0.push(object);
    }
    for errand in errands {
        groups.entry(errand.group).or_default().1.push(errand);
    }
    let sum = |load: Load| (load.1.iter().map(|errand| u64::from(errand.chunk.len)).sum(), load);
    groups.into_values().map(sum).collect()
}

/// Fills the objects of a lane.
fn load_lane(
    job: Job<'_>,
    lane: &Lane<Load>,
    stop: &Stop,
    (sources, phases): (&Sources, &Phases),
    filled: &(dyn Fn(usize) + Sync),
) -> Result<(), (Option<usize>, TransferError)> {
    let (objects, errands) = &lane.work;
    let len = errands.iter().map(|errand| width(errand.chunk.len)).max().unwrap_or(0);
    let desk = Desk {
        sources,
        errands,
        tasks: Queue::new(lane.buffers),
        ready: Queue::new(lane.buffers),
        checks_all: AtomicBool::new(false),
        trouble: Trouble::default(),
    };
    let stock = Stock::new(lane.buffers, len);
    let mut lead = Lead {
        job,
        stop,
        desk: &desk,
        phases,
        missing: job.wanted.iter().map(|wanted| wanted.saved.len()).collect(),
        flying: VecDeque::new(),
        fetching: 0,
        ways: Ways::new(job.subjects),
        checking: Checking::default(),
        bench: Bench::new(&stock),
        stock: &stock,
    };
    let led = with_crew(lane.threads, &|| desk.work(), &|| desk.tasks.close(), || {
        let led = lead.zeros(objects, filled).and_then(|()| lead.run(filled));
        let ended = lead.end();
        led.and(ended.map_err(|error| (None, error)))
    });
    drop(lead);
    if let Some((object, error)) = desk.trouble.first() {
        return Err((Some(object), error));
    }
    led.map_err(|error| (None, error))?
}

impl Lead<'_> {
    /// Fills what is zero.
    fn zeros(
        &mut self,
        objects: &[usize],
        filled: &dyn Fn(usize),
    ) -> Result<(), (Option<usize>, TransferError)> {
        let job = self.job;
        let objects = || objects.iter().filter_map(|object| Some((*object, job.wanted.get(*object)?)));
        let mut staging = match self.bench.take() {
            Ok(Some(staging)) => staging,
            Ok(None) => return Err((None, TransferError::Panicked)),
            Err(error) => return Err((None, error)),
        };
        let mut done = Ok(());
        for (object, wanted) in objects() {
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
        for (object, wanted) in objects() {
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
    fn run(&mut self, filled: &dyn Fn(usize)) -> Result<(), (Option<usize>, TransferError)> {
        let mut rest = 0..self.desk.errands.len();
        loop {
            self.desk.trouble.outcome().and_then(|()| self.stop.check()).map_err(|error| (None, error))?;
            while !rest.is_empty()
                && let Some(staging) = self.bench.take().map_err(|error| (None, error))?
            {
                let Some(errand) = rest.next() else { break };
                self.desk.tasks.push(Parcel { errand, staging, unchecked: None });
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
        let Some(errand) = errands.get(parcel.errand) else { return Err((None, TransferError::Panicked)) };
        let mut started = self.desk.trouble.outcome().map_err(|error| (None, error));
        if started.is_ok() {
            started = self.copy_parts(&errand.parts, &mut parcel.staging);
        }
        // Also after an error: a copy may be under way.
        self.flying.push_back(parcel);
        started
    }

    pub(super) fn copy_parts(
        &mut self,
        parts: &[Part],
        staging: &mut Staging,
    ) -> Result<(), (Option<usize>, TransferError)> {
        parts
            .iter()
            .try_for_each(|part| self.copy_part(part, staging).map_err(|error| (Some(part.object), error)))
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
                    // For good: a lane has one device, so that no buffer was used with another.
                    self.bench.turn_to(device, staging)?;
                }
                staging.copy_to(address + part.at, part.offset, part.len)
            }
        }
    }

    /// Waits for the copies of the oldest chunk.
    fn land(&mut self, filled: &dyn Fn(usize)) -> Result<(), (Option<usize>, TransferError)> {
        let Some(mut parcel) = self.flying.pop_front() else { return Ok(()) };
        let errand = parcel.errand;
        let waited = parcel.staging.wait().map_err(|error| (None, error));
        let checked = waited.and_then(|()| self.check(&mut parcel));
        // A copy that was begun anew may be under way.
        let waited = parcel.staging.wait().map_err(|error| (None, error));
        self.bench.idle.push(parcel.staging);
        checked.and(waited)?;
        let errands = self.desk.errands;
        for part in errands.get(errand).map(|errand| errand.parts.as_slice()).unwrap_or_default() {
            let len = u64::try_from(part.len).unwrap_or_default();
            self.phases.advance(len);
            self.arrived(part.object, len, filled);
        }
        Ok(())
    }

    fn arrived(&mut self, object: usize, len: u64, filled: &dyn Fn(usize)) {
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
        self.checking.end();
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
                    let (chunk, memory) = (&errand.chunk, &mut parcel.staging.memory);
                    let later = errand.cover.is_some() && !self.checks_all.load(Ordering::Relaxed);
                    let origin = if staged::take(chunk, memory) {
                        Origin::Staged
                    } else {
                        let verify = if later { Verify::ByCaller } else { Verify::Here };
                        Origin::Place(fetch(self.sources, chunk, memory, verify)?)
                    };
                    parcel.unchecked = later.then_some(origin);
                    Ok(())
                });
            }
            self.ready.push(parcel);
        }
    }
}
