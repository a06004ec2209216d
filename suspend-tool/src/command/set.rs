//! A set of processes that is worked on: claimed, recorded, and judged by what became of it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use protocol::{PathBytes, ReadFrom};

use super::{Context, Exit, Outcome};
use crate::check::Finding;
use crate::cli::PlaceArgs;
use crate::freeze::HoldError;
use crate::lifecycle::{Left, Session, StepError, Trouble};
use crate::pid::{Pid, listed};
use crate::report::chain;
use crate::state::{Claim, DIRECTORY_VARIABLE, RecordedGpu, StateDir, StateError};

/// The state directory, and the processes claimed in it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) state: StateDir,
    /// Those of the processes that this command may work on: all, or for a rescue those that nobody else has laid hands on
    /// since.
    pub(super) pids: Vec<Pid>,
    claim: Claim,
}

/// Why nothing could be begun.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotBegun {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Hold(#[from] HoldError),
}

impl Context {
    /// Claims processes for this command.
    pub(super) fn hold(&self, pids: &[Pid]) -> Result<Held, Finding> {
        let held = || -> Result<Held, StateError> {
            let state = self.state()?;
            if self.rescues {
                // Whoever is at work there now is either refused, and this run goes on, or has taken over.
                let claim = Claim::in_turn(&state, pids)?;
                return Ok(Held { pids: claim.begun_by(&state, self.run)?, state, claim });
            }
            Ok(Held { claim: Claim::on(&state, pids)?, pids: pids.to_vec(), state })
        };
        held().map_err(|error| {
            let (kind, remedy) = match &error {
                StateError::Claimed { .. } => ("claimed", String::new()),
                StateError::System { .. } => {
                    ("state", format!("put that right, or name another directory in {DIRECTORY_VARIABLE}"))
                }
                StateError::Unfit { .. } | StateError::Unreadable { .. } => ("state", String::new()),
            };
            Finding::blocker(kind, chain(&error), remedy)
        })
    }

    /// Begins something with the processes: what other runs began there is this run's from here on.
    pub(super) fn begin(&self, held: &Held) -> Result<(), NotBegun> {
        Ok(held.claim.begin(&held.state, self.run)?)
    }

    /// The same, with somebody to run `rescue` should this command die.
    pub(super) fn begin_watched(&self, held: &Held, rescue: Vec<OsString>) -> Result<(), NotBegun> {
        self.begin(held)?;
        Ok(self.hold.watch(self.run, rescue)?)
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

/// What brings these processes back when the command dies, as the options of a resume say.
pub(super) fn resume_arguments(session: &Session, map: Option<&Path>, places: &PlaceArgs) -> Vec<OsString> {
    let options =
        [("--gpu-map", map), ("--store", places.store.as_deref()), ("--cache", places.cache.as_deref())];
    let mut arguments = vec![OsString::from("resume")];
    for (option, path) in options {
        if let Some(path) = path {
            arguments.extend([OsString::from(option), path.as_os_str().to_owned()]);
        }
    }
    arguments.extend(session.all().iter().map(|target| OsString::from(target.pid.to_string())));
    arguments
}

/// The command that brings these processes back.
pub(super) fn resume_command(pids: impl IntoIterator<Item = Pid>) -> String {
    format!("nvsnap-gpu-suspend resume {}", listed(pids))
}

/// A path for a command to be repeated in a shell.
pub(super) fn quoted(path: &[u8]) -> String {
    format!("'{}'", String::from_utf8_lossy(path).replace('\'', r"'\''"))
}

/// The options that name what is read, for a command to be repeated in a shell.
fn places(from: &ReadFrom) -> String {
    let option =
        |name: &str, path: &Option<PathBytes>| Some(format!(" {name} {}", quoted(&path.as_ref()?.0)));
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
        None => undo.iter().map(|error| untold(error, &aftermath.left)).collect::<Vec<_>>().join("; "),
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

/// An error without what is told of each process anyway.
fn untold(error: &StepError, left: &[Left]) -> String {
    let is_told = |(pid, trouble): &(Pid, Trouble)| {
        left.iter().any(|left| left.pid == *pid && left.reason == Some(chain(trouble)))
    };
    match error {
        StepError::Processes { stage, failures } if failures.iter().all(is_told) => {
            let pids: BTreeSet<Pid> = failures.iter().map(|(pid, _)| *pid).collect();
            format!("`{stage}` failed on process {}", listed(pids))
        }
        error => chain(error),
    }
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
