//! Kernels that wait for a word which a copy or a stream write on another stream brings, as NCCL's proxy thread feeds kernels.

use std::sync::Arc;

use cuda_sys::{DevicePtr, Stream};

use super::pinned::{Pinned, at, stream, sync, zeroed};
use super::{Load, Place, expect, low};
use crate::driver;
use crate::program::words::Words;
use crate::program::{Session, Trouble};

/// `load feed BOARD RANK INTERVAL`
#[derive(Debug)]
pub(super) struct Feed {
    session: Arc<Session>,
    /// The word that is waited for; the count of rounds stands 8 bytes behind it.
    word: DevicePtr,
    waits: Stream,
    feeds: Stream,
    food: Pinned,
    seen: Pinned,
}

impl Feed {
    pub(super) fn new(session: &Arc<Session>, place: &Place, _: &mut Words<'_>) -> Result<Self, Trouble> {
        Ok(Self {
            session: Arc::clone(session),
            word: zeroed(16)?,
            waits: stream(false)?,
            feeds: stream(false)?,
            food: Pinned::new(place.interval, 1)?,
            seen: Pinned::new(place.interval, 2)?,
        })
    }
}

impl Load for Feed {
    fn launch(&mut self, round: u64) -> Result<(), Trouble> {
        let start = |kernel: &str, arguments: &mut [u64]| {
            crate::program::work::start(&self.session, self.waits, kernel, arguments)
        };
        start("wait_flag", &mut [self.word.0, low(round).into()])?;
        start("increment", &mut [self.word.0 + 8])?;
        self.seen.take(round, 0, at(self.word, 8), 1, self.waits)?;
        if round.is_multiple_of(2) {
            // SAFETY: an aligned word of this device.
            unsafe { driver::cuStreamWriteValue32_v2(self.feeds, self.word, low(round), 0) }?;
        } else {
            self.food.write(round, 0, low(round).into());
            let from = self.food.place(round, 0).cast_const();
            // SAFETY: page-locked, and not written again before this round was waited for.
            unsafe { driver::cuMemcpyHtoDAsync_v2(self.word, from, 4, self.feeds) }?;
        }
        Ok(())
    }

    fn check(&mut self, first: u64, last: u64) -> Result<(), Trouble> {
        sync(self.waits)?;
        sync(self.feeds)?;
        for round in first..=last {
            expect("the count of rounds", round, &self.seen.read(round, 0), &round)?;
            self.seen.clear(round);
        }
        Ok(())
    }
}
