//! A ring: each rank sends to the next and receives from the one before, in memory that both map.
//!
//! A rank's memory is its inbox, then the round that has arrived, then the round that the receiver behind it has read, then a
//! count of rounds. The flags are written by stream memory operations and waited for by kernels.

use std::sync::Arc;

use cuda_sys::{DevicePtr, Stream};

use super::pinned::{Pinned, at, stream, sync, words, zeroed};
use super::{Load, Place, expect, low};
use crate::driver;
use crate::program::words::Words;
use crate::program::{Session, Trouble};

/// `load ring BOARD RANK INTERVAL WORDS RANGE...`
#[derive(Debug)]
pub(super) struct Ring {
    session: Arc<Session>,
    rank: u64,
    ranks: u64,
    count: u64,
    own: DevicePtr,
    next: DevicePtr,
    before: DevicePtr,
    outbox: DevicePtr,
    stream: Stream,
    seen: Pinned,
}

impl Ring {
    pub(super) fn new(session: &Arc<Session>, place: &Place, given: &mut Words<'_>) -> Result<Self, Trouble> {
        let count = given.number()?;
        let mut ranges = Vec::new();
        while let Some(name) = given.next() {
            ranges.push(session.objects.ranges.get(name)?.address);
        }
        let ranks = ranges.len();
        let range =
            |rank: usize| ranges.get(rank % ranks.max(1)).copied().ok_or("a ring needs ranges".to_owned());
        let own = range(place.rank)?;
        Ok(Self {
            session: Arc::clone(session),
            rank: u64::try_from(place.rank).unwrap_or(0),
            ranks: u64::try_from(ranks).unwrap_or(0),
            count,
            own,
            next: range(place.rank + 1)?,
            before: range(place.rank + ranks - 1)?,
            outbox: zeroed(usize::try_from(count * 4).unwrap_or(0))?,
            stream: stream(false)?,
            seen: Pinned::new(place.interval, 3)?,
        })
    }

    fn start(&self, kernel: &str, arguments: &mut [u64]) -> Result<(), Trouble> {
        crate::program::work::start(&self.session, self.stream, kernel, arguments)
    }

    fn put(&self, place: DevicePtr, round: u64) -> Result<(), Trouble> {
        // SAFETY: an aligned word that this device may write.
        Ok(unsafe { driver::cuStreamWriteValue32_v2(self.stream, place, low(round), 0) }?)
    }

    /// What a rank sends in a round.
    fn value(&self, rank: u64, round: u64) -> u32 {
        low(round * self.ranks + rank)
    }

    /// Where a rank notes what has arrived; the next word is what its receiver has read.
    fn flags(&self, range: DevicePtr) -> DevicePtr {
        at(range, self.count * 4)
    }
}

impl Load for Ring {
    fn launch(&mut self, round: u64) -> Result<(), Trouble> {
        let flags = self.flags(self.own);
        self.start("fill", &mut [self.outbox.0, self.count, self.value(self.rank, round).into()])?;
        self.start("wait_flag", &mut [flags.0 + 4, (round - 1) & u64::from(u32::MAX)])?;
        self.start("copy", &mut [self.next.0, self.outbox.0, self.count])?;
        self.put(self.flags(self.next), round)?;
        self.start("wait_flag", &mut [flags.0, low(round).into()])?;
        self.start("increment", &mut [flags.0 + 8])?;
        // The last two words of the message, the flags, and the count.
        self.seen.take(round, 0, DevicePtr(flags.0 - 8), 3, self.stream)?;
        self.put(at(self.flags(self.before), 4), round)
    }

    fn check(&mut self, first: u64, last: u64) -> Result<(), Trouble> {
        sync(self.stream)?;
        let sender = (self.rank + self.ranks - 1) % self.ranks;
        for round in first..=last {
            let value = self.value(sender, round);
            expect("the end of the message", round, &self.seen.halves(round, 0), &(value, value))?;
            expect("the round that has arrived", round, &self.seen.halves(round, 1).0, &low(round))?;
            expect("the count of rounds", round, &self.seen.read(round, 2), &round)?;
            self.seen.clear(round);
        }
        let own = self.value(self.rank, last);
        let sent = words(self.outbox, usize::try_from(self.count).unwrap_or(0))?;
        if let Some(wrong) = sent.iter().find(|word| **word != own) {
            expect("a word of what was sent", last, wrong, &own)?;
        }
        Ok(())
    }
}
