//! What happens, told as it happens.
//!
//! The lifecycle reports [`Event`]s; who shows them, and how, is decided where the command starts.

mod json;
mod table;
mod terminal;

use std::time::Duration;

use protocol::Moved;
use serde::Serialize;

use crate::pid::Pid;

pub use json::{Json, fates, print_line, print_object, seconds, unprinted};
pub use table::{columns, stages};
pub use terminal::Bars;

/// A stage of a suspend or a resume, by the name it has on the command line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Looking for what is in the way.
    Check,
    /// Closing the gates until all work has drained.
    Quiesce,
    /// Copying what is to be freed.
    Save,
    /// Taking the sharing apart and freeing.
    Release,
    /// The driver makes the process's calls wait.
    Lock,
    /// The driver saves what it has.
    Checkpoint,
    /// Holding the processor threads still.
    Freeze,
    /// Starting to read what was saved.
    Stage,
    /// The driver brings that back.
    Restore,
    /// Letting the processor threads go on.
    Thaw,
    /// The driver lets calls through again.
    Unlock,
    /// Making the memory again, with its bytes.
    Load,
    /// Sharing it again.
    Remap,
    /// Opening the gates.
    Reopen,
}

impl Stage {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Quiesce => "quiesce",
            Self::Save => "save",
            Self::Release => "release",
            Self::Lock => "lock",
            Self::Checkpoint => "checkpoint",
            Self::Freeze => "freeze",
            Self::Stage => "stage",
            Self::Restore => "restore",
            Self::Thaw => "thaw",
            Self::Unlock => "unlock",
            Self::Load => "load",
            Self::Remap => "remap",
            Self::Reopen => "reopen",
        }
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A stage begins on these processes.
    Begin {
        /// The stage.
        stage: Stage,
        /// The processes.
        pids: &'a [Pid],
    },
    /// A process moves bytes.
    Moving {
        /// The process.
        pid: Pid,
        /// Bytes so far.
        bytes: u64,
        /// Bytes in all, or 0 where that is not known yet.
        total: u64,
    },
    /// Chunks are read or copied, for no process.
    Chunks {
        /// Bytes dealt with.
        bytes: u64,
        /// Bytes in all.
        total: u64,
        /// Bytes that were moved in a second.
        rate: u64,
        /// How long the rest takes, where that can be told.
        left: Option<Duration>,
    },
    /// A process has come through the stage.
    Done {
        /// The stage.
        stage: Stage,
        /// The process.
        pid: Pid,
        /// How long it took there.
        took: Duration,
        /// The bytes it dealt with, where the stage deals with bytes.
        bytes: Option<Moved>,
    },
    /// A process has not.
    Failed {
        /// The stage.
        stage: Stage,
        /// The process.
        pid: Pid,
        /// Why, in full.
        error: &'a str,
    },
    /// A held launch was let through.
    Stepped {
        /// In this process.
        pid: Pid,
    },
    /// The stage is over on all processes.
    End {
        /// The stage.
        stage: Stage,
        /// How long it took.
        took: Duration,
    },
    /// What was done is being undone.
    Undoing {
        /// Why, in full.
        reason: &'a str,
    },
}

/// Takes events. It must not fail and must not wait.
pub trait Reporter: Send + Sync {
    /// Takes an event.
    fn report(&self, event: &Event<'_>);

    /// Takes away what is shown of work that has ended, well or not.
    fn clear(&self) {}
}

/// Shows nothing.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Reporter for Silent {
    fn report(&self, _event: &Event<'_>) {}
}

/// An error with all its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

/// A number of things for people, each called `one`, or several of them `many`.
pub fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Bytes for people.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut whole = count;
    let mut tenths = 0;
    while whole >= 1024 && unit + 1 < UNITS.len() {
        tenths = (whole % 1024) * 10 / 1024;
        whole /= 1024;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    if unit == 0 { format!("{whole} {name}") } else { format!("{whole}.{tenths} {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_called_as_many_are() {
        assert_eq!(counted(1, "process", "processes"), "1 process");
        assert_eq!(counted(0, "process", "processes"), "0 processes");
    }

    #[test]
    fn bytes_are_shown_in_the_unit_that_fits() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 30), "3.0 GiB");
        assert_eq!(bytes(u64::MAX), "16777215.9 TiB");
    }
}
