//! Loads: work that goes on round after round until it is told to end, and checks itself.
//!
//! `load KIND BOARD RANK INTERVAL WORDS...` runs on the thread it is given to. Every round leaves a number that only this round can
//! leave; after each `INTERVAL` rounds all of them are waited for and looked at. A launch that was lost, doubled or moved
//! past another, and a byte that is not what it should be, ends the load with a message. The answer is the number of rounds.

mod allreduce;
mod exchange;
mod feed;
mod locked;
mod mix;
mod pinned;
mod ring;
mod signals;

use std::path::PathBuf;
use std::sync::Arc;

use super::words::Words;
use super::{Answer, Session, Trouble};
use crate::board::Board;

impl From<anyhow::Error> for Trouble {
    fn from(error: anyhow::Error) -> Self {
        Self::Usage(format!("{error:#}"))
    }
}

/// One kind of load.
trait Load {
    /// Gives the GPU the work of a round. Rounds count from 1.
    fn launch(&mut self, round: u64) -> Result<(), Trouble>;

    /// Waits for all rounds so far, and looks at what those from `first` to `last` have left.
    fn check(&mut self, first: u64, last: u64) -> Result<(), Trouble>;
}

/// What every kind is told.
#[derive(Clone, Debug)]
struct Place {
    board: Arc<Board>,
    rank: usize,
    /// Rounds between two looks.
    interval: u64,
}

pub(super) fn obey(session: &Arc<Session>, verb: &str, words: &mut Words<'_>) -> Option<Answer> {
    (verb == "load").then(|| load(session, words))
}

fn load(session: &Arc<Session>, words: &mut Words<'_>) -> Answer {
    let kind = words.word()?;
    let folder = std::env::var_os("WORKER_SOCKETS").ok_or("WORKER_SOCKETS is not set".to_owned())?;
    let board = Board::open(&PathBuf::from(folder).join(words.word()?))?;
    let place = Place { board: Arc::new(board), rank: words.parse()?, interval: words.number()?.max(1) };
    let mut load: Box<dyn Load> = match kind {
        "allreduce" => Box::new(allreduce::AllReduce::new(session, &place, words)?),
        "both-devices" => Box::new(allreduce::BothDevices::new(session, &place, words)?),
        "ring" => Box::new(ring::Ring::new(session, &place, words)?),
        "feed" => Box::new(feed::Feed::new(session, &place, words)?),
        "locked" => Box::new(locked::Locked::new(session, &place, words)?),
        "signals" => Box::new(signals::Signals::new(session, &place, words)?),
        "exchange" => Box::new(exchange::Exchange::new(session, &place, words)?),
        "mix" => Box::new(mix::Mix::new(session, &place, words)?),
        other => return Err(Trouble::Usage(format!("no load is called {other}"))),
    };
    rounds(&mut *load, &place).map(|rounds| rounds.to_string())
}

/// Runs a load until its board names the last round. No rank is more than an interval ahead of another, since looking at a
/// round means that all have launched it: so where rank 0 ends, nobody has been yet.
fn rounds(load: &mut dyn Load, place: &Place) -> Result<u64, Trouble> {
    let Place { board, rank, interval } = place;
    let (mut round, mut checked) = (0, 0);
    loop {
        if *rank == 0 && board.is_halted() {
            board.end_with(round + 2 * interval);
        }
        let is_last = round >= board.last();
        if round > checked && (is_last || round - checked >= *interval) {
            load.check(checked + 1, round)?;
            checked = round;
            board.set_checked(*rank, checked)?;
        }
        if is_last {
            return Ok(round);
        }
        round += 1;
        load.launch(round)?;
        board.set_launched(*rank, round)?;
    }
}

/// A round's number where the device keeps 32 bits of it.
fn low(round: u64) -> u32 {
    u32::try_from(round & u64::from(u32::MAX)).unwrap_or(0)
}

/// Insists that what a round left is what it should be.
fn expect<T: PartialEq + std::fmt::Debug>(
    what: &str,
    round: u64,
    found: &T,
    wanted: &T,
) -> Result<(), Trouble> {
    if found == wanted {
        return Ok(());
    }
    Err(Trouble::Usage(format!("round {round}: {what} is {found:?}, not {wanted:?}")))
}
