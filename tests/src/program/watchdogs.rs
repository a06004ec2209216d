//! Watchdogs as programs have them, each of which ends the process (SIGABRT) when it finds that nothing moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cuda_sys::{Context, CuResult, DevicePtr, Event, Stream};

use super::words::Words;
use super::{Answer, Session};
use crate::driver;

pub(super) fn obey(_session: &Session, verb: &str, words: &mut Words<'_>) -> Option<Answer> {
    Some(match verb {
        "heartbeat" => heartbeat(words),
        "work-limit" => work_limit(words),
        "clock-limit" => clock_limit(words),
        _ => return None,
    })
}

/// How often a watchdog looks at the clock.
const GLANCE: Duration = Duration::from_millis(5);

fn new_event() -> Result<Event, cuda_sys::CuError> {
    let mut event = Event::NULL;
    // SAFETY: a place for the event.
    unsafe { driver::cuEventCreate(&raw mut event, 0) }?;
    Ok(event)
}

fn is_complete(event: Event) -> bool {
    // SAFETY: an event that is never destroyed.
    unsafe { driver::cuEventQuery(event) }.is_ok()
}

/// `heartbeat MILLISECONDS`: one thread asks the driver about finished work and counts; another ends the process when the
/// count has not changed between two looks that are this far apart on the monotonic clock. So does PyTorch with its NCCL
/// watchdog.
fn heartbeat(words: &mut Words<'_>) -> Answer {
    let limit = Duration::from_millis(words.parse()?);
    static BEATS: AtomicU64 = AtomicU64::new(0);
    let event = new_event()?;
    std::thread::spawn(move || {
        loop {
            if is_complete(event) {
                BEATS.fetch_add(1, Ordering::AcqRel);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    std::thread::spawn(move || {
        let (mut looked, mut seen) = (Instant::now(), 0);
        loop {
            std::thread::sleep(GLANCE);
            if looked.elapsed() < limit {
                continue;
            }
            looked = Instant::now();
            let beats = BEATS.load(Ordering::Acquire);
            if beats == seen {
                std::process::abort();
            }
            seen = beats;
        }
    });
    Ok(String::new())
}

/// A piece of work that can be put on the GPU by any thread.
struct Work {
    context: Context,
    event: Event,
    address: DevicePtr,
}

impl Work {
    fn new() -> Result<Self, cuda_sys::CuError> {
        let mut work = Self { context: Context::NULL, event: new_event()?, address: DevicePtr(0) };
        // SAFETY: a place for the context.
        unsafe { driver::cuCtxGetCurrent(&raw mut work.context) }?;
        // SAFETY: a place for the address.
        unsafe { driver::cuMemAlloc_v2(&raw mut work.address, 4096) }?;
        Ok(work)
    }

    /// To be called by the thread that is to give the work.
    fn enter(&self) -> CuResult {
        // SAFETY: the context in which it was made.
        unsafe { driver::cuCtxSetCurrent(self.context) }
    }

    fn give(&self) -> CuResult {
        // SAFETY: memory of this size, never freed.
        unsafe { driver::cuMemsetD8Async(self.address, 7, 4096, Stream::NULL) }?;
        // SAFETY: an event that is never destroyed.
        unsafe { driver::cuEventRecord(self.event, Stream::NULL) }
    }
}

/// `work-limit MILLISECONDS`: gives work to the GPU again and again, and ends the process when a piece is found unfinished
/// this long after it was given. So does PyTorch with its collectives.
fn work_limit(words: &mut Words<'_>) -> Answer {
    let limit = Duration::from_millis(words.parse()?);
    let work = Work::new()?;
    std::thread::spawn(move || -> CuResult {
        work.enter()?;
        loop {
            work.give()?;
            let given = Instant::now();
            while !is_complete(work.event) {
                if given.elapsed() > limit {
                    std::process::abort();
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    Ok(String::new())
}

/// `clock-limit MILLISECONDS`: one thread gives work to the GPU and notes the time; another ends the process when that time is
/// longer ago. The clock goes on while the process is suspended.
fn clock_limit(words: &mut Words<'_>) -> Answer {
    let limit = words.parse::<u64>()?;
    let work = Work::new()?;
    let begun = Instant::now();
    let now = move || u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let last = Arc::new(AtomicU64::new(0));
    let noted = Arc::clone(&last);
    std::thread::spawn(move || -> CuResult {
        work.enter()?;
        loop {
            work.give()?;
            noted.store(now(), Ordering::Release);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    std::thread::spawn(move || {
        loop {
            if now() > last.load(Ordering::Acquire).saturating_add(limit) {
                std::process::abort();
            }
            std::thread::sleep(GLANCE);
        }
    });
    Ok(String::new())
}
