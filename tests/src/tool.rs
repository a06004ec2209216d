//! Runs of `nvsnap-gpu-suspend`.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::machine::Machine;

/// A run of the command that is about to be made.
#[derive(Debug)]
pub struct Tool<'m> {
    command: Command,
    machine: &'m Machine,
}

/// What a run of the command came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The exit status; a death by a signal is -1.
    pub code: i32,
    /// What it printed.
    pub output: String,
    /// What it complained about.
    pub errors: String,
}

impl<'m> Tool<'m> {
    pub(crate) fn new(machine: &'m Machine) -> Self {
        Self { command: machine.command(&machine.artifacts().tool), machine }
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

    /// Runs one verb on these processes.
    pub fn verb(mut self, verb: &str, pids: &[i32]) -> Result<Outcome> {
        self.command.arg(verb).args(pids.iter().map(i32::to_string));
        self.run()
    }

    /// Runs it.
    pub fn run(mut self) -> Result<Outcome> {
        let output = self.command.stdin(Stdio::null()).output().context("cannot run the command")?;
        let outcome = Outcome {
            code: output.status.code().unwrap_or(-1),
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        let log = self.machine.path("logs/tool");
        let mut text = std::fs::read_to_string(&log).unwrap_or_default();
        text += &format!("{:?}\n{}{}exit {}\n", self.command, outcome.output, outcome.errors, outcome.code);
        std::fs::write(log, text)?;
        Ok(outcome)
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
        bail!("the command ended with {}, not {code}\n{}{}", self.code, self.output, self.errors)
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
