//! A set of processes that is worked on: claimed, recorded, and judged by what became of it.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use protocol::{PathBytes, ReadFrom};

use super::{Context, Exit, Outcome};
use crate::check::Finding;
use crate::lifecycle::{Session, StepError};
use crate::pid::{Pid, Target, listed};
use crate::report::chain;
use crate::state::{Claim, RecordedGpu, StateDir, StateError};

/// The state directory, and the processes claimed in it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) state: StateDir,
    _claim: Claim,
}

impl Context {
    /// Claims processes for this command.
    pub(super) fn hold(&self, pids: &[Pid]) -> Result<Held, Finding> {
        let held = || -> Result<Held, StateError> {
            let state = self.state()?;
            let claim = Claim::on(&state, pids)?;
            Ok(Held { state, _claim: claim })
        };
        held().map_err(|error| {
            let kind = if matches!(error, StateError::Claimed { .. }) { "claimed" } else { "state" };
            Finding::blocker(kind, chain(&error), "")
        })
    }

    /// The state directory.
    pub(super) fn state(&self) -> Result<StateDir, StateError> {
        match &self.state_dir {
            Some(path) => StateDir::open_at(path),
            None => StateDir::open(),
        }
    }

    /// The GPUs of now, as they are recorded.
    pub(super) fn recorded_gpus(&self) -> Vec<RecordedGpu> {
        let gpus = self.machine.driver.as_ref().ok().and_then(|driver| driver.gpus().ok());
        gpus.unwrap_or_default()
            .into_iter()
            .map(|gpu| RecordedGpu { uuid: gpu.uuid.to_string(), name: gpu.name, total: gpu.total })
            .collect()
    }
}

/// Has threads stay frozen when this command ends. Without that the processes are suspended all the same.
pub(super) fn keep(context: &Context) -> Option<Finding> {
    let error = context.hold.keep().err()?;
    let message = format!("{}; the threads of the processes run on", chain(&error));
    Some(Finding::warning("holder", message, "they wait where they use the GPU"))
}

/// What brings these processes back when the command dies.
pub(super) fn resume_arguments(targets: impl IntoIterator<Item = Target>) -> Vec<OsString> {
    let pids = targets.into_iter().map(|target| target.pid.to_string());
    std::iter::once("resume".to_owned()).chain(pids).map(OsString::from).collect()
}

/// The command that brings these processes back.
pub(super) fn resume_command(pids: impl IntoIterator<Item = Pid>) -> String {
    format!("nvsnap-gpu-suspend resume {}", listed(pids))
}

/// The options that name what is read, for a command to be repeated in a shell.
fn places(from: &ReadFrom) -> String {
    let option = |name: &str, path: &Option<PathBytes>| {
        let path = String::from_utf8_lossy(&path.as_ref()?.0).replace('\'', r"'\''");
        Some(format!(" {name} '{path}'"))
    };
    [option("--store", &from.store), option("--cache", &from.cache)].into_iter().flatten().collect()
}

/// What came of it when something went wrong: whether everything runs, is looked up and not concluded.
pub(super) fn after_failure(
    verb: &'static str,
    session: &Session,
    cause: Option<&StepError>,
    undo: &[StepError],
    begun: Instant,
) -> Outcome {
    let aftermath = session.aftermath(undo);
    let mut sentence = match cause {
        Some(cause) => chain(cause),
        None => undo.iter().map(|error| chain(error)).collect::<Vec<_>>().join("; "),
    };
    if !aftermath.ended.is_empty() {
        sentence.push_str(&format!("; ended meanwhile: process {}", listed(aftermath.ended.clone())));
    }
    let exit = if aftermath.left.is_empty() { Exit::Failed } else { Exit::Unfinished };
    let next = (exit == Exit::Unfinished).then(|| {
        let living = session.all().into_iter().map(|target| target.pid);
        let command = resume_command(living.filter(|pid| !aftermath.ended.contains(pid)));
        command + &places(&session.from)
    });
    if exit == Exit::Failed && cause.is_some() {
        sentence.push_str("; everything was undone, and all processes run as before");
    }
    Outcome { left: aftermath.left, next, ..finished(verb, exit, sentence, session, begun) }
}

/// An outcome with the table of stages.
pub(super) fn finished(
    verb: &'static str,
    exit: Exit,
    sentence: impl Into<String>,
    session: &Session,
    begun: Instant,
) -> Outcome {
    let tally: (_, Duration) = (session.tally(), begun.elapsed());
    let pids = session.all().into_iter().map(|target| target.pid);
    Outcome { tally: Some(tally), ..Outcome::new(verb, exit, sentence) }.about(pids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_a_command_to_be_repeated_are_quoted() {
        let path = |text: &str| Some(PathBytes(text.into()));
        assert_eq!(places(&ReadFrom::default()), "");
        let from = ReadFrom { store: path("/a b"), cache: path("/it's") };
        assert_eq!(places(&from), r" --store '/a b' --cache '/it'\''s'");
    }
}
