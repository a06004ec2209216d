//! What goes wrong in a step.

use std::fmt;
use std::io;
use std::time::Duration;

use cuda_sys::CuError;

use crate::client::ShimError;
use crate::driver::DriverError;
use crate::freeze::NotFrozen;
use crate::interrupt::Signal;
use crate::pid::Pid;
use crate::proc::ProcError;
use crate::report::{Stage, chain};

/// What went wrong with one process.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// With its shim.
    #[error(transparent)]
    Shim(#[from] ShimError),
    /// With the driver.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// What the kernel tells about it could not be read.
    #[error("process {pid} cannot be looked at")]
    Proc {
        /// The process.
        pid: Pid,
        /// Why.
        source: ProcError,
    },
    /// It is stopped, and so is the library in it.
    #[error(
        "process {pid} is stopped and cannot answer: if it is suspended, `nvsnap-gpu-suspend resume {pid}`, else continue \
         it first (kill -CONT {pid})"
    )]
    Stopped {
        /// The process.
        pid: Pid,
    },
    /// Its threads cannot be held still, or do not go on.
    #[error("the threads of process {pid} cannot be held still")]
    NotFrozen {
        /// The process.
        pid: Pid,
        /// Why.
        source: NotFrozen,
    },
    /// A call has not come back.
    #[error("process {pid}: `{stage}` has not come back after {} s", .limit.as_secs())]
    Hung {
        /// The process.
        pid: Pid,
        /// What was done.
        stage: Stage,
        /// How long was waited.
        limit: Duration,
    },
    /// No thread could be started for it.
    #[error("process {pid}: no thread could be started for `{stage}`")]
    NoThread {
        /// The process.
        pid: Pid,
        /// What was to be done.
        stage: Stage,
        /// The system's answer.
        source: io::Error,
    },
    /// The driver has given the process up.
    #[error(
        "the driver reports process {pid} as failed: its GPU state is lost, and only ending the process frees what \
         it holds"
    )]
    GivenUp {
        /// The process.
        pid: Pid,
    },
    /// The process is not where it should be.
    #[error("process {pid} is {found}, where {expected} was expected")]
    Astray {
        /// The process.
        pid: Pid,
        /// Where it is.
        found: String,
        /// Where it should be.
        expected: &'static str,
    },
    /// The process still holds what the driver could not restore.
    #[error(
        "process {pid} still holds {count} object(s) that the driver could not restore ({example}); it was not \
         checkpointed"
    )]
    LeftOver {
        /// The process.
        pid: Pid,
        /// How many.
        count: usize,
        /// One of them.
        example: String,
    },
    /// The process needs another that is not there yet.
    #[error("process {pid} shares memory of process {provider}, which is not back")]
    Needs {
        /// The process.
        pid: Pid,
        /// The one it needs.
        provider: Pid,
    },
    /// The process has a GPU error of its own.
    #[error(
        "process {pid} has an error of its own on the GPU ({error}): its contexts are unusable, with or without a \
         suspend"
    )]
    Sticky {
        /// The process.
        pid: Pid,
        /// The driver's error.
        error: String,
    },
    /// Work of the process has not come to rest.
    #[error("process {pid}: {waits_for}")]
    Busy {
        /// The process.
        pid: Pid,
        /// What it still does.
        waits_for: String,
    },
}

impl Trouble {
    /// Whether the process is gone.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Shim(error) => error.is_gone(),
            // The driver's answers for a process that is not there, or is a zombie.
            Self::Driver(DriverError::Checkpoint { error, .. }) => {
                matches!(*error, CuError::OPERATING_SYSTEM | CuError::NOT_INITIALIZED)
            }
            Self::NotFrozen { source, .. } => *source == NotFrozen::Gone,
            _ => false,
        }
    }
}

/// Why a step failed. The first failure in time is the cause; the others are told beside it.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// On processes.
    #[error("{}", told(*.stage, .failures))]
    Processes {
        /// What was done.
        stage: Stage,
        /// In order of time.
        failures: Vec<(Pid, Trouble)>,
    },
    /// Not all work came to rest in time.
    #[error("the processes did not come to rest within {} s: {}", .limit.as_secs_f32(), told_all(.busy))]
    NotDrained {
        /// How long was waited.
        limit: Duration,
        /// Who does what.
        busy: Vec<(Pid, Trouble)>,
    },
    /// Something is in the way that was not there when it was checked.
    #[error("after the processes had come to rest: {0}")]
    Blocked(String),
    /// The command was asked to stop.
    #[error("{0} asked this command to stop")]
    Interrupted(Signal),
    /// What is to be known after a crash could not be written.
    #[error("{0}")]
    Journal(String),
}

impl StepError {
    /// `Ok` where nothing failed.
    pub(super) fn unless_empty(stage: Stage, failures: Vec<(Pid, Trouble)>) -> Result<(), Self> {
        if failures.is_empty() { Ok(()) } else { Err(Self::Processes { stage, failures }) }
    }
}

fn told(stage: Stage, failures: &[(Pid, Trouble)]) -> impl fmt::Display {
    let all = told_all(failures);
    match failures {
        [_] => format!("`{stage}` failed: {all}"),
        _ => format!("`{stage}` failed on {} processes: {all}", failures.len()),
    }
}

fn told_all(failures: &[(Pid, Trouble)]) -> String {
    failures.iter().map(|(_, trouble)| chain(trouble)).collect::<Vec<_>>().join("; ")
}
