//! Memory that is made, shared, imported, read and dropped again in every round: an import is in flight most of the time.

use std::sync::Arc;

use super::{Load, Place};
use crate::program::words::Words;
use crate::program::{Session, Trouble};

const SIZE: &str = "2M";

/// `load exchange BOARD RANK 1 give OTHER` and `load exchange BOARD RANK 1 take`: the one makes it, the other imports it. Each
/// waits for the other in every round. The taker must have been told to `listen`.
#[derive(Debug)]
pub(super) struct Exchange {
    session: Arc<Session>,
    place: Place,
    /// Who is given to; nobody for the one who takes.
    to: Option<String>,
}

impl Exchange {
    pub(super) fn new(session: &Arc<Session>, place: &Place, given: &mut Words<'_>) -> Result<Self, Trouble> {
        let to = match given.word()? {
            "give" => Some(given.word()?.to_owned()),
            "take" => None,
            other => return Err(Trouble::Usage(format!("one gives or takes, not {other}"))),
        };
        Ok(Self { session: Arc::clone(session), place: place.clone(), to })
    }

    fn all(&self, lines: &[String]) -> Result<(), Trouble> {
        lines.iter().try_for_each(|line| self.session.obey(&mut Words::of(line)).map(drop))
    }

    fn give(&self, to: &str, round: u64) -> Result<(), Trouble> {
        let name = format!("given{}", self.place.rank);
        self.all(&[
            format!("new {name} {SIZE} device:0 fd"),
            format!("fill {name} 0 {SIZE} {round}"),
            format!("export {name} {name}"),
            format!("send {name} {to}"),
            format!("close {name}"),
        ])?;
        self.place.board.hear(1 - self.place.rank, round)?;
        // The other has added one to what it was given.
        self.sees(&name, round + 1, round)?;
        self.all(&[format!("drop {name}")])
    }

    fn take(&self, round: u64) -> Result<(), Trouble> {
        let name = format!("taken{}", self.place.rank);
        self.all(&[
            format!("receive {name}"),
            format!("import {name} {name}"),
            format!("close {name}"),
            format!("show {name} {SIZE}"),
        ])?;
        self.sees(&name, round, round)?;
        self.all(&[format!("add {name} 0 {SIZE} 1"), format!("drop {name}")])?;
        Ok(self.place.board.tell(self.place.rank, round)?)
    }

    /// Insists that the memory holds nothing but this value.
    fn sees(&self, name: &str, value: u64, round: u64) -> Result<(), Trouble> {
        let found = self.session.obey(&mut Words::of(&format!("sum {name} 0 {SIZE}")))?;
        let count: u64 = (2 << 20) / 4;
        let sum = value.wrapping_mul(count * (count + 1) / 2);
        super::expect("the sum of what is shared", round, &found, &format!("{sum:016x}"))
    }
}

impl Load for Exchange {
    fn launch(&mut self, round: u64) -> Result<(), Trouble> {
        match &self.to {
            Some(to) => self.give(to, round),
            None => self.take(round),
        }
    }

    /// Every round has been looked at by then.
    fn check(&mut self, _: u64, _: u64) -> Result<(), Trouble> {
        Ok(())
    }
}
