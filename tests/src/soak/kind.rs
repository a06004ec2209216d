//! The kinds of load that a world may have, and which of them may stand beside each other.

use anyhow::Result;
use fastrand::Rng;

use crate::crowd::Crowd;

/// A kind of load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// All-reduces of all ranks.
    AllReduce,
    /// The same on a blocking stream, waited for by a synchronous copy.
    AllReduceCopy,
    /// The same, each launch after a message of the rank before.
    AllReduceTalk,
    /// A ring of senders and receivers.
    Ring,
    /// Kernels that wait for copies and stream writes.
    Feed,
    /// Host functions that need a lock.
    Locked,
    /// What a server gives its GPU.
    Mix,
    /// Memory that is handed over in every round.
    Exchange,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::AllReduce,
        Self::AllReduceCopy,
        Self::AllReduceTalk,
        Self::Ring,
        Self::Feed,
        Self::Locked,
        Self::Mix,
        Self::Exchange,
    ];

    /// Whether a kind may run beside another in the same processes.
    ///
    /// Two that run collectives on blocking streams may not: they lock each other with nobody's help. A synchronous copy, and any
    /// other work of the default stream, waits for what every blocking stream was given (`cuda.h`, `CU_STREAM_DEFAULT`), so also
    /// for the other load's collective. Where one rank copies for the first load behind a collective of the second, and another
    /// rank copies for the second behind a collective of the first, each copy keeps back the launch that the other one's
    /// collective waits for. One such load alone is free of that: nothing on the default stream waits for a launch of the other.
    ///
    /// Two exchanges may not either: a process has one socket, and each would take what was sent to the other.
    pub fn may_join(self, other: Self) -> bool {
        let lock =
            self.has_collectives_on_a_blocking_stream() && other.has_collectives_on_a_blocking_stream();
        !lock && (self, other) != (Self::Exchange, Self::Exchange)
    }

    fn has_collectives_on_a_blocking_stream(self) -> bool {
        self == Self::AllReduceCopy
    }

    /// One of those that may join all of these.
    pub fn draw(chance: &mut Rng, others: &[Self]) -> Option<Self> {
        let free = Self::ALL.into_iter().filter(|kind| others.iter().all(|other| kind.may_join(*other)));
        chance.choice(free.collect::<Vec<_>>())
    }

    /// Starts loads of these kinds on a crowd, each in memory of its own. What was drawn for each comes back.
    pub fn start_all(kinds: &[Self], crowd: &mut Crowd, chance: &mut Rng) -> Result<Vec<String>> {
        let letters = ["a", "b", "c"];
        let loads = || kinds.iter().zip(letters);
        // All memory first: once an exchange goes on, it would take what is sent to its process.
        loads().try_for_each(|(_, letter)| crowd.share(letter))?;
        loads().map(|(kind, letter)| kind.start(crowd, letter, chance)).collect()
    }

    fn start(self, crowd: &mut Crowd, letter: &str, chance: &mut Rng) -> Result<String> {
        let ranks = crowd.pids().len();
        let all: Vec<usize> = (0..ranks).collect();
        let one = [chance.usize(0..ranks)];
        let own: String = all.iter().map(|rank| format!(" {letter}{rank}")).collect();
        let look = if self == Self::Exchange { 1 } else { chance.u64(1..=12) };
        let (name, members, words): (_, &[usize], _) = match self {
            Self::AllReduce => ("allreduce", &all, format!("512 plain{own}")),
            Self::AllReduceCopy => ("allreduce", &all, format!("512 copy{own}")),
            Self::AllReduceTalk => ("allreduce", &all, format!("512 talk{own}")),
            Self::Ring => ("ring", &all, format!("512{own}")),
            Self::Feed => ("feed", &one, String::new()),
            Self::Locked => ("locked", &one, String::new()),
            Self::Mix => ("mix", &one, "20 64".to_owned()),
            Self::Exchange => ("exchange", &[0, 1], String::new()),
        };
        crowd.start(name, members, look, |rank| match (self, rank) {
            (Self::Exchange, 0) => "give r1".to_owned(),
            (Self::Exchange, _) => "take".to_owned(),
            _ => words.clone(),
        })?;
        Ok(format!("{self:?} on {members:?} with a look each {look}"))
    }
}
