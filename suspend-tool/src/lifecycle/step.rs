//! A step with its undo, and what carries steps out.

use super::{Session, StepError};
use crate::report::{Event, Stage, chain};

/// Something done to all processes, and how to take it back.
pub trait Step {
    /// Which stage of a suspend it is.
    fn stage(&self) -> Stage;

    /// Does it on all processes. When it fails, any number of them may have come through.
    fn apply(&mut self) -> Result<(), StepError>;

    /// Takes it back on every process on which it was done, from wherever each of them is. May be repeated.
    fn undo(&mut self) -> Result<(), StepError>;
}

/// Where it is written what has begun, so that it can be finished after a crash.
pub trait Journal {
    /// Notes durably that `stage` begins.
    fn begin(&self, stage: Stage) -> Result<(), StepError>;
}

/// Notes nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoJournal;

impl Journal for NoJournal {
    fn begin(&self, _stage: Stage) -> Result<(), StepError> {
        Ok(())
    }
}

/// Steps that failed, and were undone as far as possible.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct Failed {
    /// What went wrong first.
    pub cause: StepError,
    /// What went wrong when it was undone, last step first.
    pub undo: Vec<StepError>,
}

/// Applies the steps in order. When one fails, or a signal asks to stop, everything begun is undone in reverse.
pub fn carry_out(
    session: &Session,
    journal: &dyn Journal,
    steps: &mut [Box<dyn Step + '_>],
) -> Result<(), Failed> {
    for begun in 0..steps.len() {
        let Some(step) = steps.get_mut(begun) else { break };
        let applied = session
            .uninterrupted()
            .and_then(|()| journal.begin(step.stage()))
            .and_then(|()| step.apply())
            // A signal that came during the last step is as good as one that came before it.
            .and_then(|()| session.uninterrupted());
        if let Err(cause) = applied {
            session.report(&Event::Undoing { reason: &chain(&cause) });
            let (begun, _) = steps.split_at_mut(begun + 1);
            return Err(Failed { cause, undo: undo_all(begun) });
        }
    }
    Ok(())
}

/// Undoes all steps, last first. Every undo is tried, whatever became of the others.
pub fn undo_all(steps: &mut [Box<dyn Step + '_>]) -> Vec<StepError> {
    steps.iter_mut().rev().filter_map(|step| step.undo().err()).collect()
}
