//! One-launch all-reduce: a kernel that completes only when every rank has launched it.
//!
//! A rank's memory is its buffer, then two flags, then a count of rounds. All ranks map all memories.

use std::sync::Arc;

use cuda_sys::{Context, DevicePtr, Stream};

use super::pinned::{Pinned, at, stream, sync, words, zeroed};
use super::{Load, Place, expect, low};
use crate::driver;
use crate::program::words::Words;
use crate::program::{Session, Trouble};

/// `load allreduce BOARD RANK INTERVAL WORDS plain|copy|talk RANGE...`: the range of each rank, in order. With `copy` it
/// waits by a synchronous copy; with `talk` each launch waits for a message of the rank before.
#[derive(Debug)]
pub(super) struct AllReduce {
    session: Arc<Session>,
    place: Place,
    ranks: u64,
    count: u64,
    manner: Manner,
    own: DevicePtr,
    tables: DevicePtr,
    stream: Stream,
    seen: Pinned,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manner {
    Plain,
    Copy,
    Talk,
}

impl AllReduce {
    pub(super) fn new(session: &Arc<Session>, place: &Place, given: &mut Words<'_>) -> Result<Self, Trouble> {
        let count = given.number()?;
        let manner = match given.word()? {
            "plain" => Manner::Plain,
            "copy" => Manner::Copy,
            "talk" => Manner::Talk,
            other => return Err(Trouble::Usage(format!("no manner is called {other}"))),
        };
        let mut ranges = Vec::new();
        while let Some(name) = given.next() {
            ranges.push(session.objects.ranges.get(name)?.address);
        }
        let own = *ranges.get(place.rank).ok_or("no range of its own".to_owned())?;
        let flags = ranges.iter().map(|range| range.0 + count * 4);
        let table: Vec<u64> = ranges.iter().map(|range| range.0).chain(flags).collect();
        let tables = zeroed(table.len() * 8)?;
        // SAFETY: the source lives through the call, which waits for the copy.
        unsafe { driver::cuMemcpyHtoD_v2(tables, table.as_ptr().cast(), table.len() * 8) }?;
        Ok(Self {
            session: Arc::clone(session),
            place: place.clone(),
            ranks: u64::try_from(ranges.len()).unwrap_or(0),
            count,
            manner,
            own,
            tables,
            stream: stream(manner == Manner::Copy)?,
            seen: Pinned::new(place.interval, 4)?,
        })
    }

    fn rank(&self) -> u64 {
        u64::try_from(self.place.rank).unwrap_or(0)
    }

    /// What each rank puts in, so that the sum tells the round.
    fn value(&self, round: u64) -> u64 {
        round * self.ranks + self.rank()
    }

    fn sum(&self, round: u64) -> u32 {
        low(round * self.ranks * self.ranks + self.ranks * (self.ranks - 1) / 2)
    }

    fn start(&self, kernel: &str, arguments: &mut [u64]) -> Result<(), Trouble> {
        crate::program::work::start(&self.session, self.stream, kernel, arguments)
    }

    /// The other rank whose message this one waits for, and the round it is about.
    fn before(&self, round: u64) -> (usize, u64) {
        match self.place.rank.checked_sub(1) {
            Some(before) => (before, round),
            None => (usize::try_from(self.ranks).unwrap_or(1) - 1, round - 1),
        }
    }
}

impl Load for AllReduce {
    fn launch(&mut self, round: u64) -> Result<(), Trouble> {
        if self.manner == Manner::Talk {
            let (before, its_round) = self.before(round);
            self.place.board.hear(before, its_round)?;
        }
        let flags = at(self.tables, self.ranks * 8);
        let behind = at(self.own, self.count * 4);
        self.start("fill", &mut [self.own.0, self.count, low(self.value(round)).into()])?;
        let mut arguments = [self.tables.0, flags.0, self.count, self.rank(), self.ranks, low(round).into()];
        self.start("allreduce", &mut arguments)?;
        self.start("increment", &mut [behind.0 + 8])?;
        // The last two words of the sum, the flags, and the count.
        self.seen.take(round, 0, DevicePtr(behind.0 - 8), 3, self.stream)?;
        if self.manner == Manner::Talk {
            self.place.board.tell(self.place.rank, round)?;
        }
        Ok(())
    }

    fn check(&mut self, first: u64, last: u64) -> Result<(), Trouble> {
        if self.manner != Manner::Copy {
            sync(self.stream)?;
        }
        let all = words(self.own, usize::try_from(self.count).unwrap_or(0))?;
        if let Some(wrong) = all.iter().find(|word| **word != self.sum(last)) {
            expect("a word of the sum", last, wrong, &self.sum(last))?;
        }
        for round in first..=last {
            let sum = self.sum(round);
            expect("the end of the sum", round, &self.seen.halves(round, 0), &(sum, sum))?;
            expect("the pair of flags", round, &self.seen.halves(round, 1), &(low(round), low(round)))?;
            expect("the count of rounds", round, &self.seen.read(round, 2), &round)?;
            self.seen.clear(round);
        }
        Ok(())
    }
}

/// `load both-devices BOARD 0 INTERVAL WORDS RANGE RANGE`: one thread launches the all-reduce of two devices, one after the
/// other, so that a gate that closes between the two leaves work that waits for its own process.
#[derive(Debug)]
pub(super) struct BothDevices {
    ranks: Vec<(Context, AllReduce)>,
}

impl BothDevices {
    pub(super) fn new(session: &Arc<Session>, place: &Place, given: &mut Words<'_>) -> Result<Self, Trouble> {
        let line = format!("{} plain {}", given.word()?, given.remainder());
        let mut ranks = Vec::new();
        for rank in [0, 1] {
            let context = session.objects.contexts.get(&rank.to_string())?;
            enter(context)?;
            let place = Place { rank, ..place.clone() };
            ranks.push((context, AllReduce::new(session, &place, &mut Words::of(&line))?));
        }
        Ok(Self { ranks })
    }
}

fn enter(context: Context) -> cuda_sys::CuResult {
    // SAFETY: a context of this program.
    unsafe { driver::cuCtxSetCurrent(context) }
}

impl Load for BothDevices {
    fn launch(&mut self, round: u64) -> Result<(), Trouble> {
        for (context, rank) in &mut self.ranks {
            enter(*context)?;
            rank.launch(round)?;
        }
        Ok(())
    }

    fn check(&mut self, first: u64, last: u64) -> Result<(), Trouble> {
        for (context, rank) in &mut self.ranks {
            enter(*context)?;
            rank.check(first, last)?;
        }
        Ok(())
    }
}
