//! A stage on which a scenario is played: a machine, with or without the library, and a record of all that was said.
//!
//! The record is what two runs are compared by. A cycle leaves no trace in it: with the library the workers are suspended and
//! resumed, without it nothing happens, and what they answer afterwards has to be the same.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::Result;

use crate::failure::fail;
use crate::machine::{Driver, Machine};
use crate::target::{Pending, Target};

/// The record: who was asked what, and what came back.
type Record = Rc<RefCell<Vec<String>>>;

/// A stage.
#[derive(Debug)]
pub struct Stage {
    machine: Machine,
    preload: bool,
    record: Record,
}

/// A worker whose answers are recorded.
#[derive(Debug)]
pub struct Actor {
    target: Target,
    record: Record,
}

impl Stage {
    /// A stage with this driver, and with the library or without.
    pub fn new(driver: Driver, preload: bool) -> Result<Self> {
        Ok(Self { machine: Machine::new(driver)?, preload, record: Record::default() })
    }

    /// The machine it stands on.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The same, to change its settings before workers start.
    pub fn machine_mut(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// Whether the library is there.
    pub fn preload(&self) -> bool {
        self.preload
    }

    /// A worker that has a context, kernels, and a socket that others can send to.
    pub fn worker(&self, name: &str) -> Result<Actor> {
        let worker = self.bare(name)?;
        worker.ok("listen")?;
        worker.ok("begin 0")?;
        Ok(worker)
    }

    /// A worker that has done nothing yet.
    pub fn bare(&self, name: &str) -> Result<Actor> {
        self.program("worker", name)
    }

    /// A program that speaks as a worker does.
    pub fn program(&self, program: &str, name: &str) -> Result<Actor> {
        let target = self.machine.program(program, name).preload_if(self.preload).start()?;
        Ok(Actor { target, record: Rc::clone(&self.record) })
    }

    /// Suspends and resumes the workers, if the library is there.
    pub fn cycle(&self, workers: &[&Actor]) -> Result<()> {
        self.cycle_with(workers, || Ok(()))
    }

    /// The same, and does something while they are suspended.
    pub fn cycle_with(&self, workers: &[&Actor], meanwhile: impl FnOnce() -> Result<()>) -> Result<()> {
        if !self.preload {
            return Ok(());
        }
        let pids: Vec<i32> = workers.iter().map(|worker| worker.target.pid()).collect();
        self.machine.suspend(&pids)?.done()?;
        meanwhile()?;
        self.machine.resume(&pids)?.done()?;
        Ok(())
    }

    /// What was done wrong so far was done on purpose.
    pub fn pardon(&self) -> Result<()> {
        self.machine.take_violations().map(drop)
    }

    /// Writes into the record what the scenario itself found out.
    pub fn note(&self, text: impl Into<String>) {
        self.record.borrow_mut().push(text.into());
    }

    /// All that was said.
    pub fn into_record(self) -> Vec<String> {
        self.record.take()
    }
}

impl Actor {
    /// The process.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.target.pid()
    }

    /// Gives a command; whatever comes back is recorded.
    pub fn ask(&self, line: &str) -> Result<String> {
        let answer = self.target.ask(line)?;
        self.record.borrow_mut().push(format!("{}: {line} -> {answer}", self.target.name()));
        if answer.starts_with("usage") {
            fail!("{}: `{line}` answered `{answer}`", self.target.name());
        }
        Ok(answer)
    }

    /// Gives a command that must succeed; what stands behind the `ok` comes back.
    pub fn ok(&self, line: &str) -> Result<String> {
        let answer = self.ask(line)?;
        match answer.strip_prefix("ok") {
            Some(rest) => Ok(rest.trim().to_owned()),
            None => fail!("{}: `{line}` answered `{answer}`", self.target.name()),
        }
    }

    /// Gives a command that must succeed with this answer.
    pub fn says(&self, line: &str, expected: &str) -> Result<()> {
        let answer = self.ok(line)?;
        if answer == expected {
            return Ok(());
        }
        fail!("{}: `{line}` answered `{answer}`, not `{expected}`", self.target.name())
    }

    /// Gives a command that the driver must refuse, with this number.
    pub fn refused(&self, line: &str, number: u32) -> Result<()> {
        let answer = self.ask(line)?;
        if answer.split_whitespace().take(2).eq(["error", &number.to_string()]) {
            return Ok(());
        }
        fail!("{}: `{line}` answered `{answer}`, not error {number}", self.target.name())
    }

    /// Gives a command whose answer comes later, and is not recorded.
    pub fn begin(&self, line: &str) -> Result<Pending<'_>> {
        self.target.begin(line)
    }

    /// Gives commands that must all succeed.
    pub fn all(&self, lines: &[&str]) -> Result<()> {
        lines.iter().try_for_each(|line| self.ok(line).map(drop))
    }

    /// Hands a descriptor to another worker, which takes it under the same name.
    pub fn hand(&self, fd: &str, to: &Self) -> Result<()> {
        self.ok(&format!("send {fd} {}", to.target.name()))?;
        to.ok(&format!("receive {fd}"))?;
        Ok(())
    }
}
