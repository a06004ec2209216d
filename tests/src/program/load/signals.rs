//! A signal that goes round all ranks by stream memory operations alone: no kernel, so that only the gate for memory holds it.
//!
//! A rank's memory begins with the word that the rank before it writes.

use std::sync::Arc;

use cuda_sys::{DevicePtr, Stream};

use super::pinned::{Pinned, stream, sync};
use super::{Load, Place, expect, low};
use crate::driver;
use crate::program::words::Words;
use crate::program::{Session, Trouble};

/// Completes once the word is at least the value.
const AT_LEAST: u32 = 0;

/// `load signals BOARD RANK INTERVAL RANGE...`
#[derive(Debug)]
pub(super) struct Signals {
    rank: usize,
    own: DevicePtr,
    next: DevicePtr,
    stream: Stream,
    seen: Pinned,
}

impl Signals {
    pub(super) fn new(session: &Arc<Session>, place: &Place, given: &mut Words<'_>) -> Result<Self, Trouble> {
        let mut ranges = Vec::new();
        while let Some(name) = given.next() {
            ranges.push(session.objects.ranges.get(name)?.address);
        }
        let range = |rank: usize| {
            ranges.get(rank % ranges.len().max(1)).copied().ok_or("signals need ranges".to_owned())
        };
        Ok(Self {
            rank: place.rank,
            own: range(place.rank)?,
            next: range(place.rank + 1)?,
            stream: stream(false)?,
            seen: Pinned::new(place.interval, 1)?,
        })
    }

    fn pass_on(&self, round: u64) -> Result<(), Trouble> {
        // SAFETY: an aligned word that this device may write.
        Ok(unsafe { driver::cuStreamWriteValue32_v2(self.stream, self.next, low(round), 0) }?)
    }
}

impl Load for Signals {
    fn launch(&mut self, round: u64) -> Result<(), Trouble> {
        if self.rank == 0 {
            self.pass_on(round)?;
        }
        // SAFETY: an aligned word of this device.
        unsafe { driver::cuStreamWaitValue32_v2(self.stream, self.own, low(round), AT_LEAST) }?;
        self.seen.take(round, 0, self.own, 1, self.stream)?;
        if self.rank != 0 { self.pass_on(round) } else { Ok(()) }
    }

    fn check(&mut self, first: u64, last: u64) -> Result<(), Trouble> {
        sync(self.stream)?;
        for round in first..=last {
            expect("the signal", round, &self.seen.halves(round, 0).0, &low(round))?;
            self.seen.clear(round);
        }
        Ok(())
    }
}
