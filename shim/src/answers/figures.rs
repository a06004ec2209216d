//! Figures kept from before, for questions that are asked while the driver must not be: how much memory there is, and how long
//! it was from one event to another.
//!
//! For the time between two events only those can be kept that lie between each event and one of ours, recorded when all work
//! had drained. The driver gives 24 bits of milliseconds, so the difference of two that are not long ago is as good as
//! its own answer. Who asks about older ones waits.

use std::collections::BTreeMap;

use cuda_sys::{Context, CuError, CuResult, Event, Stream};

use crate::driver::real;

/// Up to here the driver's numbers are no coarser than a microsecond.
const EXACT_MS: f32 = 16_384.0;

/// What the driver said about memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) free: usize,
    pub(crate) total: usize,
}

/// How long ago each event was, in milliseconds, or what the driver said instead.
#[derive(Debug, Default)]
pub(super) struct Times(BTreeMap<usize, (usize, CuResult<f32>)>);

/// Asks about the memory of the current context.
pub(super) fn memory() -> CuResult<Memory> {
    let mut memory = Memory { free: 0, total: 0 };
    // SAFETY: both are writable.
    unsafe { real::cuMemGetInfo_v2(&raw mut memory.free, &raw mut memory.total) }?;
    Ok(memory)
}

impl Times {
    /// Asks about events of the current context, whose work is done.
    pub(super) fn ask(&mut self, context: Context, events: impl Iterator<Item = Event>) {
        let mut events = events.peekable();
        if events.peek().is_none() {
            return;
        }
        match Reference::record() {
            Ok(reference) => {
                let since = |event: Event| (event.0.addr(), (context.0.addr(), reference.since(event)));
                self.0.extend(events.map(since));
            }
            Err(error) => log!("no event to measure from: {error}"),
        }
    }

    /// The milliseconds from `start` to `end`. `None` where that is not known well enough.
    pub(super) fn between(&self, start: Event, end: Event) -> Option<CuResult<f32>> {
        let (context, start) = self.0.get(&start.0.addr())?;
        let (other, end) = self.0.get(&end.0.addr())?;
        if context != other {
            return None;
        }
        match (*start, *end) {
            (Ok(start), Ok(end)) if start.max(end) < EXACT_MS => Some(Ok(start - end)),
            (Ok(_), Ok(_)) => None,
            // Without timing, or never recorded.
            (Err(CuError::INVALID_HANDLE), _) | (_, Err(CuError::INVALID_HANDLE)) => {
                Some(Err(CuError::INVALID_HANDLE))
            }
            _ => None,
        }
    }
}

/// An event of our own.
struct Reference(Event);

impl Reference {
    fn record() -> CuResult<Self> {
        let mut event = Event::NULL;
        // SAFETY: `event` is writable.
        unsafe { real::cuEventCreate(&raw mut event, 0) }?;
        let reference = Self(event);
        // SAFETY: an event of the current context, and its default stream.
        unsafe { real::cuEventRecord(event, Stream::NULL) }?;
        // SAFETY: an event that was recorded.
        unsafe { real::cuEventSynchronize(event) }?;
        Ok(reference)
    }

    fn since(&self, event: Event) -> CuResult<f32> {
        let mut milliseconds = 0.0;
        // SAFETY: a writable place, and two events that live.
        unsafe { real::cuEventElapsedTime(&raw mut milliseconds, event, self.0) }?;
        Ok(milliseconds)
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        // SAFETY: ours, and used no more.
        if let Err(error) = unsafe { real::cuEventDestroy_v2(self.0) } {
            log!("cuEventDestroy_v2: {error}");
        }
    }
}
