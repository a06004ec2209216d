//! Holding the threads of processes still, and who may.
//!
//! ```text
//!   command --[Hold]--> holder process --> Freezer --> ptrace
//!      \--> tracers (/proc): who holds what, asked of the kernel and never remembered
//! ```
//!
//! A frozen thread may hold any lock of its program, of the allocator and of the driver. So threads are frozen when the
//! driver has checkpointed their process, and go on before anything but the driver's restore is asked of it. The
//! library's own threads and the driver's restore thread are never frozen.

mod freezer;
mod ptrace;
pub mod tracers;

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

pub use freezer::Freezer;

use crate::pid::{Pid, Target};
use crate::state::Run;

/// A process whose threads are to be held still.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The process.
    pub target: Target,
    /// Its threads that go on.
    pub spared: Vec<i32>,
}

/// Why a process could not be frozen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum NotFrozen {
    /// It is not there.
    #[error("it has ended")]
    Gone,
    /// Somebody else traces it.
    #[error("process {tracer} ({name}) traces its thread {tid}: end that first, or use --no-freeze")]
    Traced {
        /// The thread.
        tid: i32,
        /// Who traces it.
        tracer: i32,
        /// The name of that one.
        name: String,
    },
    /// The system does not allow it.
    #[error(
        "the system does not let this command trace it: run it as root or with CAP_SYS_PTRACE (see also \
         kernel.yama.ptrace_scope), or use --no-freeze"
    )]
    Denied,
    /// A thread does not stop.
    #[error("its thread {tid} ({name}, state {state}) does not stop")]
    Stubborn {
        /// The thread.
        tid: i32,
        /// Its name.
        name: String,
        /// What the kernel says it does.
        state: char,
    },
    /// The system refused something else.
    #[error("its thread {tid} cannot be stopped: {reason}")]
    System {
        /// The thread.
        tid: i32,
        /// The system's answer.
        reason: String,
    },
}

/// Why the process that holds threads is of no use.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// It could not be started.
    #[error("the process that holds threads still cannot be started")]
    Start(#[source] std::io::Error),
    /// It does not answer.
    #[error("the process that holds threads still does not answer")]
    Silent(#[source] std::io::Error),
}

/// Lets the threads of processes go on, from any thread of this command.
pub type Thawer = Box<dyn Fn(&[Target]) + Send>;

/// Who holds threads still for a run of the command, and watches over the run.
pub trait Hold {
    /// The process that does it, once it watches.
    fn process(&self) -> Option<i32>;

    /// From here on, should this command die, `rescue` is run as part of this run: arguments of this program.
    fn watch(&self, run: Run, rescue: Vec<OsString>) -> Result<(), HoldError>;

    /// Holds the threads of these processes: of all, or of none.
    fn freeze(&self, orders: &[Order]) -> Result<(), Vec<(Pid, NotFrozen)>>;

    /// Lets the threads of these processes go on, whichever run of the command had them held.
    fn thaw(&self, targets: &[Target]) -> Result<(), Vec<(Pid, NotFrozen)>>;

    /// The same for another thread, which nobody asks what came of it.
    fn thawer(&self) -> Thawer;

    /// What was done is meant to stay when this command ends.
    fn keep(&self) -> Result<(), HoldError>;

    /// There is nothing to hold or to undo any more.
    fn finish(&self);
}
