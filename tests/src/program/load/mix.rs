//! What a server gives its GPU: kernels on blocking, non-blocking and per-thread streams, a graph that is launched again and again,
//! copies both ways, host functions, events across streams, and now and then a kernel that runs long.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cuda_sys::{DevicePtr, Event, Graph, GraphExec, Stream};

use super::pinned::{Pinned, at, event, per_thread, stream, sync, words, zeroed};
use super::{Load, Place, expect, low};
use crate::driver;
use crate::program::words::Words;
use crate::program::{Session, Trouble};

/// Words of the buffer that is filled by a copy, changed by a kernel and read back.
const WORDS: usize = 1 << 14;
const THREAD_LOCAL: u32 = 1;

/// `load mix BOARD RANK INTERVAL LONG EVERY`: in every so manieth round a kernel runs for `LONG` milliseconds.
#[derive(Debug)]
pub(super) struct Mix {
    session: Arc<Session>,
    long_ns: u64,
    every: u64,
    /// One stream of each kind.
    streams: [Stream; 3],
    graphs: Stream,
    graph: GraphExec,
    joined: Event,
    /// A count for each stream, and one for the graph, which counts twice.
    counts: DevicePtr,
    buffer: DevicePtr,
    food: Pinned,
    seen: Pinned,
    /// Never given back: a host function may still come.
    called: &'static AtomicU64,
}

impl Mix {
    pub(super) fn new(session: &Arc<Session>, place: &Place, given: &mut Words<'_>) -> Result<Self, Trouble> {
        let counts = zeroed(64)?;
        let graphs = stream(false)?;
        Ok(Self {
            session: Arc::clone(session),
            long_ns: given.number()? * 1_000_000,
            every: given.number()?.max(1),
            streams: [stream(true)?, stream(false)?, per_thread()],
            graphs,
            graph: counting_twice(session, graphs, at(counts, 24))?,
            joined: event()?,
            counts,
            buffer: zeroed(WORDS * 4)?,
            food: Pinned::new(place.interval, WORDS / 2)?,
            seen: Pinned::new(place.interval, 6)?,
            called: Box::leak(Box::default()),
        })
    }

    fn start(&self, stream: Stream, kernel: &str, arguments: &mut [u64]) -> Result<(), Trouble> {
        crate::program::work::start(&self.session, stream, kernel, arguments)
    }

    /// In, changed, and out again, in the order of one stream.
    fn through(&self, round: u64, on: Stream) -> Result<(), Trouble> {
        let (from, count) = (self.food.place(round, 0), u64::try_from(WORDS).unwrap_or(0));
        (0..WORDS / 2).for_each(|word| self.food.write(round, word, round | round << 32));
        // SAFETY: page-locked, and not written again before this round was waited for.
        unsafe { driver::cuMemcpyHtoDAsync_v2(self.buffer, from.cast_const(), WORDS * 4, on) }?;
        self.start(on, "add", &mut [self.buffer.0, count, 5])?;
        Ok(self.food.take(round, 0, self.buffer, WORDS / 2, on)?)
    }

    /// The event is recorded behind the graph, and the second stream goes on only after it.
    fn join(&self) -> Result<(), Trouble> {
        let [_, second, _] = self.streams;
        // SAFETY: an event and a stream of this program.
        unsafe { driver::cuEventRecord(self.joined, self.graphs) }?;
        // SAFETY: as above.
        Ok(unsafe { driver::cuStreamWaitEvent(second, self.joined, 0) }?)
    }
}

/// A graph of two kernels, one after the other.
fn counting_twice(session: &Session, on: Stream, count: DevicePtr) -> Result<GraphExec, Trouble> {
    // SAFETY: a stream of this program.
    unsafe { driver::cuStreamBeginCapture_v2(on, THREAD_LOCAL) }?;
    for _ in 0..2 {
        crate::program::work::start(session, on, "increment", &mut [count.0])?;
    }
    let (mut graph, mut executable) = (Graph::NULL, GraphExec::NULL);
    // SAFETY: a place for the graph.
    unsafe { driver::cuStreamEndCapture(on, &raw mut graph) }?;
    // SAFETY: a place for the executable graph.
    unsafe { driver::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) }?;
    Ok(executable)
}

extern "C" fn count_one(count: *mut c_void) {
    // SAFETY: the count that `launch` gave, which lives to the end of the process.
    unsafe { &*count.cast::<AtomicU64>() }.fetch_add(1, Ordering::SeqCst);
}

impl Load for Mix {
    fn launch(&mut self, round: u64) -> Result<(), Trouble> {
        for (number, stream) in (0..).zip(self.streams) {
            let count = at(self.counts, number * 8);
            self.start(stream, "increment", &mut [count.0])?;
            self.seen.take(round, usize::try_from(number).unwrap_or(0), count, 1, stream)?;
        }
        // SAFETY: an executable graph and a stream of this program.
        unsafe { driver::cuGraphLaunch(self.graph, self.graphs) }?;
        self.seen.take(round, 3, at(self.counts, 24), 1, self.graphs)?;
        self.join()?;
        let [_, second, third] = self.streams;
        // Behind the event, so it sees what the graph has counted.
        self.seen.take(round, 4, at(self.counts, 24), 1, second)?;
        self.through(round, third)?;
        if round.is_multiple_of(self.every) {
            self.start(second, "spin", &mut [self.long_ns])?;
        }
        let data = std::ptr::from_ref(self.called).cast_mut().cast();
        // SAFETY: the function and what it is given live to the end of the process.
        Ok(unsafe { driver::cuLaunchHostFunc(self.graphs, Some(count_one), data) }?)
    }

    fn check(&mut self, first: u64, last: u64) -> Result<(), Trouble> {
        for stream in self.streams {
            sync(stream)?;
        }
        sync(self.graphs)?;
        for round in first..=last {
            for stream in 0..self.streams.len() {
                expect("the count of a stream", round, &self.seen.read(round, stream), &round)?;
            }
            expect("the count of the graph", round, &self.seen.read(round, 3), &(2 * round))?;
            let joined = self.seen.read(round, 4);
            if joined < 2 * round {
                expect("the count behind the event", round, &joined, &(2 * round))?;
            }
            let value = low(round) + 5;
            for word in 0..WORDS / 2 {
                expect("what went through a kernel", round, &self.food.halves(round, word), &(value, value))?;
            }
            self.seen.clear(round);
        }
        let value = low(last) + 5;
        let buffer = words(self.buffer, WORDS)?;
        if let Some(wrong) = buffer.iter().find(|word| **word != value) {
            expect("a word of the buffer", last, wrong, &value)?;
        }
        expect("the count of host functions", last, &self.called.load(Ordering::SeqCst), &last)
    }
}
