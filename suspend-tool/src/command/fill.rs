//! Filling a cache after a save: by a process of its own, so that nobody waits for it.
//!
//! The GPUs are free and the store has everything by then; whoever waits for this command may go on. The process is a
//! `cache-prefetch` that outlives the command. What it says goes to a file in the state directory. Where it is cut short,
//! whole chunks are in the cache or nothing of them, and the next one goes on.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::interrupt;
use crate::state::{StateDir, StateError};

/// The file for what is said.
const LOG: &str = "cache-fill.log";
/// A file that is longer is begun anew.
const LONG: u64 = 1 << 20;

/// The process that fills a cache.
#[derive(Debug)]
pub(super) struct Filling {
    pid: u32,
    log: PathBuf,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(super) enum FillError {
    /// There is no place for what it says.
    #[error(transparent)]
    Log(#[from] StateError),
    /// The system refused.
    #[error("cannot start a process for it")]
    Start(#[source] io::Error),
}

impl Filling {
    /// Starts one. The paths are absolute.
    pub(super) fn start(
        state: &StateDir,
        store: &Path,
        ckpt_dir: &Path,
        cache: &Path,
    ) -> Result<Self, FillError> {
        let (log, path) = state.log(LOG, LONG)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("nvsnap-gpu-suspend").arg("cache-prefetch").args([store, ckpt_dir, cache]);
        interrupt::left_to(&mut command);
        let to = |log: &File| log.try_clone().map(Stdio::from);
        let mut start = || {
            // A signal to the group of the command is not for it.
            command.process_group(0).current_dir("/");
            command.stdin(Stdio::null()).stdout(to(&log)?).stderr(to(&log)?).spawn()
        };
        let child = start().map_err(FillError::Start)?;
        let filling = Self { pid: child.id(), log: path };
        // What follows are its own words.
        let line = format!("process {} fills {} from {}\n", filling.pid, cache.display(), store.display());
        let _ = (&log).write_all(line.as_bytes());
        Ok(filling)
    }

    /// What is added to the sentence about the suspend.
    pub(super) fn sentence(&self) -> String {
        format!(
            "; process {} fills the cache meanwhile, and says in {} how it went",
            self.pid,
            self.log.display()
        )
    }

    /// The same for programs.
    pub(super) fn numbers(&self) -> Value {
        json!({ "cache_fill": { "pid": self.pid, "log": self.log.to_string_lossy() } })
    }
}
