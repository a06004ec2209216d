//! One machine for one test: its own state of the stand-in driver, its own folders, or the real GPU.
//!
//! Every process of a test is started from here, with an environment that holds nothing but what the test asked for.
//! At the end the stand-in's log of violations must be empty, or the test fails.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::artifacts::Artifacts;
use crate::calls::{Call, read_calls};
use crate::failure::{fail, is_failing};
use crate::target::Start;
use crate::tool::{Outcome, Tool};
use crate::usage::Usage;

/// How long something may take to come about.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where a store in memory lies.
pub(crate) const TMPFS: &str = "/dev/shm";

/// Which driver a test runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Driver {
    /// The stand-in of this repository.
    StandIn,
    /// The driver that the system has, with a GPU.
    Real,
}

/// A machine: a driver, and folders that nobody else uses.
#[derive(Debug)]
pub struct Machine {
    driver: Driver,
    artifacts: &'static Artifacts,
    root: TempDir,
    settings: BTreeMap<String, OsString>,
}

impl Machine {
    /// A machine with the stand-in driver and two devices of 1 GiB.
    pub fn stand_in() -> Result<Self> {
        Self::new(Driver::StandIn)
    }

    /// A machine with this driver.
    pub fn new(driver: Driver) -> Result<Self> {
        let artifacts = Artifacts::find()?;
        let root = tempfile::Builder::new().prefix("nvsnap-test-").tempdir()?;
        for folder in ["fakecuda", "state", "logs"] {
            std::fs::create_dir(root.path().join(folder))?;
        }
        let mut machine = Self { driver, artifacts, root, settings: BTreeMap::new() };
        machine.set("PATH", "/usr/bin:/bin");
        machine.set("NVSNAP_GPU_SUSPEND_DIR", machine.path("state"));
        match driver {
            Driver::StandIn => {
                machine.set("LD_LIBRARY_PATH", &artifacts.stand_in);
                machine.set("FAKECUDA_DIR", machine.path("fakecuda"));
                machine.set("FAKECUDA_LOG", machine.path("logs/calls"));
                machine.set("FAKECUDA_STRICT_LOG", machine.path("logs/violations"));
                machine.set("FAKECUDA_MEMORY", (1_u64 << 30).to_string());
            }
            Driver::Real => {
                for name in ["LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"] {
                    if let Some(value) = std::env::var_os(name) {
                        machine.set(name, value);
                    }
                }
            }
        }
        // The state folder of the command has to be closed to others.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(machine.path("state"), mode)?;
        Ok(machine)
    }

    /// Sets a variable for every process started from now on.
    pub fn set(&mut self, name: &str, value: impl Into<OsString>) -> &mut Self {
        self.settings.insert(name.to_owned(), value.into());
        self
    }

    /// Takes a variable away from every process started from now on.
    pub fn unset(&mut self, name: &str) -> &mut Self {
        self.settings.remove(name);
        self
    }

    /// Which driver this machine has.
    pub fn driver(&self) -> Driver {
        self.driver
    }

    /// The built files.
    pub fn artifacts(&self) -> &'static Artifacts {
        self.artifacts
    }

    /// A path in this machine's own folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// A command with this machine's environment and nothing else.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env_clear().envs(&self.settings).current_dir(self.root.path());
        command
    }

    /// A program of the artifacts, to be started under a name that tells two of them apart.
    pub fn program(&self, program: &str, name: &str) -> Start<'_> {
        Start::new(self, program, name)
    }

    /// A worker, to be started.
    pub fn worker(&self, name: &str) -> Start<'_> {
        self.program("worker", name)
    }

    /// The command `nvsnap-gpu-suspend`.
    pub fn tool(&self) -> Tool {
        Tool::new(self)
    }

    /// Runs a verb, made ready by `ready`, once nobody else works on the processes any more: after a command was killed,
    /// its holder still carries on what it began, and everybody else is refused meanwhile.
    pub fn verb_when_free(&self, ready: impl Fn(Tool) -> Tool, verb: &str, pids: &[i32]) -> Result<Outcome> {
        self.when_free(|tool| ready(tool).verb(verb, pids))
    }

    /// The same for any run.
    pub fn when_free(&self, run: impl Fn(Tool) -> Result<Outcome>) -> Result<Outcome> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let outcome = run(self.tool())?;
            let is_early = outcome.code == 4 && outcome.text().contains("another nvsnap-gpu-suspend");
            if !is_early || Instant::now() > deadline {
                return Ok(outcome);
            }
        }
    }

    /// Runs `suspend`, and says what came of it.
    pub fn suspend(&self, pids: &[i32]) -> Result<Outcome> {
        self.tool().verb("suspend", pids)
    }

    /// The same, with the threads left running: for what they are to do meanwhile.
    pub fn suspend_running(&self, pids: &[i32]) -> Result<Outcome> {
        self.tool().option("--no-freeze").verb("suspend", pids)
    }

    /// Runs `resume`, and says what came of it.
    pub fn resume(&self, pids: &[i32]) -> Result<Outcome> {
        self.tool().verb("resume", pids)
    }

    /// What `status` says of one process.
    pub fn status(&self, pid: i32) -> Result<serde_json::Value> {
        let outcome = self.tool().option("--json").verb("status", &[pid])?.done()?;
        let process = outcome.events()?.into_iter().find(|event| event["pid"] == pid);
        process.with_context(|| format!("status says nothing of {pid}: {}", outcome.text()))
    }

    /// Asks for the status of a process until it is as wanted.
    pub fn status_until(
        &self,
        pid: i32,
        wanted: impl Fn(&serde_json::Value) -> bool,
    ) -> Result<serde_json::Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status(pid)?;
            if wanted(&status) {
                return Ok(status);
            }
            if Instant::now() > deadline {
                fail!("process {pid} does not come to be as wanted: {status}");
            }
        }
    }

    /// Looks again until `met`.
    pub fn until(&self, what: &str, met: impl Fn() -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !met()? {
            if Instant::now() > deadline {
                fail!("it did not come about that {what}");
            }
        }
        Ok(())
    }

    /// What the processes use of each device, as `nvidia-smi` would show it.
    pub fn usage(&self) -> Result<Usage> {
        Usage::read(self)
    }

    /// Asks for the memory in use until it is as wanted: memory that only a descriptor held is freed a little after that is
    /// closed.
    pub fn usage_until(&self, wanted: impl Fn(&Usage) -> bool) -> Result<Usage> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let usage = self.usage()?;
            if wanted(&usage) {
                return Ok(usage);
            }
            if Instant::now() > deadline {
                fail!("memory in use does not come to be as wanted: {usage:?}");
            }
        }
    }

    /// The driver calls of one process, in order.
    pub fn calls(&self, pid: i32) -> Result<Vec<Call>> {
        read_calls(&self.path("logs"), pid)
    }

    /// What programs did that the driver does not allow, taken out of the log: a test that provokes such a thing says so by
    /// asking.
    pub fn take_violations(&self) -> Result<Vec<String>> {
        let path = self.path("logs/violations");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        std::fs::write(&path, "")?;
        Ok(text.lines().map(str::to_owned).collect())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if is_failing() {
            return;
        }
        if let Ok(violations) = self.take_violations() {
            assert!(violations.is_empty(), "the driver was misused:\n{}", violations.join("\n"));
        }
    }
}
