//! Runs of `nvsnap-gpu-suspend`.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use crate::failure::fail;
use crate::machine::Machine;

/// A run of the command that is about to be made.
#[derive(Debug)]
pub struct Tool {
    command: Command,
}

/// What a run of the command came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The process that it was.
    pub pid: i32,
    /// The exit status; a death by a signal is -1.
    pub code: i32,
    /// What it printed.
    pub output: String,
    /// What it complained about.
    pub errors: String,
}

impl Tool {
    pub(crate) fn new(machine: &Machine) -> Self {
        Self { command: machine.command(&machine.artifacts().tool) }
    }

    /// Sets a variable for this run only.
    pub fn set(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Gives an option.
    pub fn option(mut self, option: &str) -> Self {
        self.command.arg(option);
        self
    }

    /// Gives an argument, or the value of the option before.
    pub fn argument(mut self, argument: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// Runs one verb on these processes.
    pub fn verb(mut self, verb: &str, pids: &[i32]) -> Result<Outcome> {
        self.command.arg(verb).args(pids.iter().map(i32::to_string));
        self.run()
    }

    /// Runs it.
    pub fn run(self) -> Result<Outcome> {
        self.start()?.outcome()
    }

    /// Runs one verb on these processes, and does not wait for the end.
    pub fn start_verb(mut self, verb: &str, pids: &[i32]) -> Result<Running> {
        self.command.arg(verb).args(pids.iter().map(i32::to_string));
        self.start()
    }

    fn start(mut self) -> Result<Running> {
        self.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Running { child: self.command.spawn().context("cannot run the command")? })
    }
}

/// A run of the command that goes on.
#[derive(Debug)]
pub struct Running {
    child: Child,
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> Result<i32> {
        Ok(i32::try_from(self.child.id())?)
    }

    /// Waits for its end.
    pub fn outcome(self) -> Result<Outcome> {
        let pid = self.pid()?;
        let output = self.child.wait_with_output()?;
        Ok(Outcome {
            pid,
            code: output.status.code().unwrap_or(-1),
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

impl Outcome {
    /// Insists on success.
    pub fn done(self) -> Result<Self> {
        self.exits(0)
    }

    /// Insists on this exit status.
    pub fn exits(self, code: i32) -> Result<Self> {
        if self.code == code {
            return Ok(self);
        }
        fail!("the command ended with {}, not {code}\n{}{}", self.code, self.output, self.errors)
    }

    /// Output and complaints together.
    pub fn text(&self) -> String {
        format!("{}{}", self.output, self.errors)
    }

    /// The lines of a `--json` run.
    pub fn events(&self) -> Result<Vec<serde_json::Value>> {
        self.output.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
    }
}
