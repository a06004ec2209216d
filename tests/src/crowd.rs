//! Processes under load, and what is done to them meanwhile.
//!
//! Each load is one kind of work that a group of threads does together; its board says how far each has come. At the end every
//! load is brought to one last round, and each of its threads has to say that it saw all rounds, once each, with what belongs
//! into them.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::board::Board;
use crate::failure::fail;
use crate::machine::{Driver, Machine};
use crate::target::Target;

/// How long a load may take to show that it goes on.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// How often a load that does not go on is asked whether it has ended.
const LOOK_WHETHER_WELL: Duration = Duration::from_millis(200);

/// Processes with loads.
#[derive(Debug)]
pub struct Crowd {
    machine: Machine,
    workers: Vec<Target>,
    loads: Vec<Load>,
}

/// A load, and the threads that do it.
#[derive(Debug)]
struct Load {
    line: String,
    board: Board,
    /// Worker and thread of each rank.
    ranks: Vec<(usize, String)>,
    /// Ranks that a thread stands for together.
    counted: usize,
}

/// How far every rank of every load has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress(Vec<u64>);

impl Crowd {
    /// So many workers on a machine, each with a context on device 0, and memory of its own named `mN` that all others have
    /// imported.
    pub fn new(machine: Machine, count: usize) -> Result<Self> {
        Self::begin(machine, count, true)
    }

    /// The same without the library: what such processes do by themselves.
    pub fn bare(machine: Machine, count: usize) -> Result<Self> {
        Self::begin(machine, count, false)
    }

    fn begin(machine: Machine, count: usize, preload: bool) -> Result<Self> {
        let mut workers = Vec::new();
        for rank in 0..count {
            let worker = machine.worker(&format!("r{rank}")).preload_if(preload).start()?;
            for line in ["listen".to_owned(), "begin 0".to_owned()] {
                worker.ok(&line)?;
            }
            workers.push(worker);
        }
        let crowd = Self { machine, workers, loads: Vec::new() };
        crowd.share("m")?;
        Ok(crowd)
    }

    /// Gives each worker zeroed memory of its own, named by this letter and its number, that all others import.
    pub fn share(&self, letter: &str) -> Result<()> {
        for (rank, worker) in self.workers.iter().enumerate() {
            for line in ["new X 2M device:0 fd", "memset X 0 2M 0", "sync", "export X X"] {
                worker.ok(&line.replace('X', &format!("{letter}{rank}")))?;
            }
        }
        for (rank, owner) in self.workers.iter().enumerate() {
            for other in self.workers.iter().filter(|other| other.pid() != owner.pid()) {
                owner.ok(&format!("send {letter}{rank} {}", other.name()))?;
                for line in ["receive X", "import X X", "show X 2M", "close X"] {
                    other.ok(&line.replace('X', &format!("{letter}{rank}")))?;
                }
            }
        }
        Ok(())
    }

    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// A worker.
    pub fn worker(&self, rank: usize) -> Result<&Target> {
        self.workers.get(rank).with_context(|| format!("no rank {rank}"))
    }

    /// Their process ids.
    pub fn pids(&self) -> Vec<i32> {
        self.workers.iter().map(Target::pid).collect()
    }

    /// Starts a load on these workers. `words` is what each rank is told, by its number in the load; `look` is in how many rounds each
    /// looks at what it did.
    pub fn start(
        &mut self,
        kind: &str,
        on: &[usize],
        look: u64,
        words: impl Fn(usize) -> String,
    ) -> Result<()> {
        self.start_across(kind, on, look, |_| 0, words)
    }

    /// The same, each rank on the device that `device` says.
    pub fn start_across(
        &mut self,
        kind: &str,
        on: &[usize],
        look: u64,
        device: impl Fn(usize) -> usize,
        words: impl Fn(usize) -> String,
    ) -> Result<()> {
        let name = format!("board{}", self.loads.len());
        let board = Board::create(&self.path(&name))?;
        let mut ranks = Vec::new();
        for (rank, &worker) in on.iter().enumerate() {
            let thread = format!("{name}-{rank}");
            let target = self.worker(worker)?;
            let line = format!("load {kind} {name} {rank} {look} {}", words(rank));
            target.ok(&format!("on {thread} context {}", device(rank)))?;
            target.ok(&format!("start {thread} {line}"))?;
            ranks.push((worker, thread));
        }
        let counted = ranks.len();
        self.loads.push(Load { line: format!("{kind} on {on:?}"), board, ranks, counted });
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.machine.path(name)
    }

    /// How far all have come.
    pub fn progress(&self) -> Result<Progress> {
        let mut rounds = Vec::new();
        for load in &self.loads {
            for rank in 0..load.counted {
                rounds.push(load.board.launched(rank)?);
            }
        }
        Ok(Progress(rounds))
    }

    /// Waits until every rank of every load has come further than `before`, and says how long that took. Fails as soon as a load
    /// has ended by itself.
    pub fn goes_on(&self, before: &Progress) -> Result<Duration> {
        let begin = Instant::now();
        let mut looked = begin;
        loop {
            let now = self.progress()?;
            if now.0.iter().zip(&before.0).all(|(now, before)| now > before) {
                return Ok(begin.elapsed());
            }
            if looked.elapsed() > LOOK_WHETHER_WELL {
                self.is_well()?;
                looked = Instant::now();
            }
            if begin.elapsed() > PATIENCE {
                fail!("a load does not go on: {before:?}, {now:?}\n{}", self.stuck().join("\n"));
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// Fails if a load has ended by itself, which it does only when it has seen something wrong.
    pub fn is_well(&self) -> Result<()> {
        let ended = self.ended()?;
        if ended.is_empty() { Ok(()) } else { fail!("{}", ended.join("\n")) }
    }

    /// What loads that have ended say.
    fn ended(&self) -> Result<Vec<String>> {
        let mut said = Vec::new();
        for load in &self.loads {
            for (worker, thread) in &load.ranks {
                let target = self.worker(*worker)?;
                if target.ok(&format!("busy {thread}"))? == "no" {
                    let answer = target.ask(&format!("wait {thread}"))?;
                    said.push(format!("{} of {}: {answer}", load.line, target.name()));
                }
            }
        }
        Ok(said)
    }

    /// For messages: loads that have ended, and what the command says of each process.
    fn stuck(&self) -> Vec<String> {
        let mut text = self.ended().unwrap_or_else(|error| vec![format!("{error:#}")]);
        text.extend(self.pids().into_iter().map(|pid| match self.machine.status(pid) {
            Ok(status) => status.to_string(),
            Err(error) => format!("{error:#}"),
        }));
        text
    }

    /// Suspends all and resumes them.
    pub fn cycle(&self) -> Result<[Duration; 2]> {
        let took = |verb: &str| -> Result<Duration> {
            let begin = Instant::now();
            self.machine.verb_when_free(|tool| tool, verb, &self.pids())?.done()?;
            Ok(begin.elapsed())
        };
        Ok([took("suspend")?, took("resume")?])
    }

    /// Brings the work of all to rest, and lets it go again.
    pub fn pause(&self) -> Result<()> {
        for verb in ["quiesce", "reopen"] {
            self.machine.verb_when_free(|tool| tool, verb, &self.pids())?.done()?;
        }
        Ok(())
    }

    /// Ends all loads. How many rounds each had, which all its ranks agree on.
    pub fn finish(self) -> Result<Vec<u64>> {
        for load in &self.loads {
            load.board.halt();
        }
        let mut rounds = Vec::new();
        for load in &self.loads {
            let mut said = Vec::new();
            for (worker, thread) in &load.ranks {
                let answer = self.worker(*worker)?.ask(&format!("wait {thread}"))?;
                let Some(count) = answer.strip_prefix("ok ") else { fail!("{}: {answer}", load.line) };
                said.push(count.parse::<u64>()?);
            }
            for (rank, count) in said.iter().enumerate() {
                if *count != load.board.last() || load.board.checked(rank)? != *count {
                    fail!("{}: ranks ended with {said:?}, not {}", load.line, load.board.last());
                }
            }
            rounds.push(load.board.last());
        }
        if self.machine.driver() == Driver::StandIn {
            let violations = self.machine.take_violations()?;
            if !violations.is_empty() {
                fail!("the driver was misused:\n{}", violations.join("\n"));
            }
        }
        Ok(rounds)
    }
}
