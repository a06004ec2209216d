//! Going through many chunks on several threads, each with a buffer of its own, until all are done or one failed.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::buffer::AlignedBuf;
use crate::digest::CHUNK_BYTES;
use crate::executor::Executor;
use crate::lease::unpoisoned;

/// How far some work has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Chunks dealt with.
    pub chunks: u64,
    /// All there are.
    pub all_chunks: u64,
    /// Bytes of the chunks dealt with.
    pub bytes: u64,
    /// Bytes of all.
    pub all_bytes: u64,
    /// Bytes that were really read; the others were there already.
    pub moved: u64,
    /// Since the work began.
    pub elapsed: Duration,
}

impl Progress {
    /// Bytes moved in a second.
    pub fn rate(&self) -> u64 {
        let bytes = u128::from(self.moved) * 1000;
        u64::try_from(bytes.checked_div(self.elapsed.as_millis()).unwrap_or(0)).unwrap_or(u64::MAX)
    }

    /// How long the rest takes at this rate, if all of it has to be moved. `None` while nothing was moved.
    pub fn time_left(&self) -> Option<Duration> {
        let left = self.all_bytes.saturating_sub(self.bytes);
        left.checked_div(self.rate()).map(Duration::from_secs)
    }
}

/// What is told while it goes on: called on the working threads, one call at a time.
pub type Report<'a> = &'a (dyn Fn(Progress) + Sync);

/// Counts what is done and tells it.
pub(crate) struct Meter<'a> {
    report: Report<'a>,
    begun: Instant,
    all_chunks: u64,
    all_bytes: u64,
    chunks: AtomicU64,
    bytes: AtomicU64,
    moved: AtomicU64,
    telling: Mutex<()>,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(report: Report<'a>, all_chunks: u64, all_bytes: u64) -> Self {
        let zero = AtomicU64::default;
        let (chunks, bytes, moved) = (zero(), zero(), zero());
        Self {
            report,
            begun: Instant::now(),
            all_chunks,
            all_bytes,
            chunks,
            bytes,
            moved,
            telling: Mutex::new(()),
        }
    }

    /// A chunk is done; `moved` of its bytes had to be read.
    pub(crate) fn done(&self, bytes: u64, moved: u64) {
        let _one_at_a_time = unpoisoned(&self.telling);
        let count = |counter: &AtomicU64, amount| counter.fetch_add(amount, Ordering::Relaxed) + amount;
        (self.report)(Progress {
            chunks: count(&self.chunks, 1),
            all_chunks: self.all_chunks,
            bytes: count(&self.bytes, bytes),
            all_bytes: self.all_bytes,
            moved: count(&self.moved, moved),
            elapsed: self.begun.elapsed(),
        });
    }
}

/// Work on one item, in a buffer that holds a chunk.
pub(crate) type Work<'a, T, E> = &'a (dyn Fn(&T, &mut AlignedBuf) -> Result<(), E> + Sync);

/// Does `work` on every item. After the first error no further item is begun, and that error is the answer.
pub(crate) fn each<T: Sync, E: Send>(
    executor: &dyn Executor,
    threads: usize,
    items: &[T],
    no_resource: &(dyn Fn(&'static str, io::Error) -> E + Sync),
    work: Work<'_, T, E>,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let stopped = AtomicBool::new(false);
    let first = Mutex::new(None);
    let stop = |error| {
        stopped.store(true, Ordering::Relaxed);
        unpoisoned(&first).get_or_insert(error);
    };
    let run = executor.run(threads.clamp(1, items.len().max(1)), &|_| {
        let mut buffer = match AlignedBuf::new(usize::try_from(CHUNK_BYTES).unwrap_or(usize::MAX)) {
            Ok(buffer) => buffer,
            Err(error) => return stop(no_resource("memory for a chunk", error)),
        };
        while !stopped.load(Ordering::Relaxed)
            && let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed))
        {
            if let Err(error) = work(item, &mut buffer) {
                return stop(error);
            }
        }
    });
    if let Err(error) = run {
        stop(no_resource("a thread", error));
    }
    unpoisoned(&first).take().map_or(Ok(()), Err)
}
