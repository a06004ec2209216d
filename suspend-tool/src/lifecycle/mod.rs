//! Suspending and resuming: steps on all processes at once, each with its undo.
//!
//! ```text
//!   suspend   Quiesce --> Release --> Lock --> Checkpoint, freeze
//!   resume    Quiesce <-- Release <-- Lock <-- Checkpoint
//!             reopen   load, remap   unlock    restore, thaw
//! ```
//!
//! A step runs on all processes before the next one begins, and results are read after all have answered. An undo
//! looks at what each process really is (the driver's state, the shim's phase) and carries on from there: it may be
//! repeated, it may follow a step that got half way, and a resume is nothing else than all undos in a row. A process
//! that cannot be brought back by one undo is left out of the following ones, and the others go on.

mod chase;
mod checkpoint;
mod freeze;
mod left;
mod parallel;
mod quiesce;
mod release;
mod session;
mod step;
mod trouble;

pub use checkpoint::{Checkpoint, Lock};
pub use left::{Aftermath, Left};
pub use parallel::{Arrival, Outcome, in_parallel};
pub use quiesce::Quiesce;
pub use release::{Decide, Orders, Release};
pub use session::{Participant, Session, Tally};
pub use step::{Failed, Journal, NoJournal, Step, carry_out, undo_all};
pub use trouble::{StepError, Trouble};

use cuda_sys::CheckpointGpuPair;

/// The steps of a suspend, in order.
pub fn steps<'s>(
    session: &'s Session,
    decide: Decide<'s>,
    pairs: Vec<CheckpointGpuPair>,
) -> Vec<Box<dyn Step + 's>> {
    vec![
        Box::new(Quiesce::new(session)),
        Box::new(Release::new(session, decide)),
        Box::new(Lock::new(session, pairs.clone())),
        Box::new(Checkpoint::new(session, pairs)),
    ]
}
