//! The single phases, for orchestrators that drive them themselves.
//!
//! A phase that fails leaves every process where it is and says where that is; only `quiesce` takes back what it did.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::resume::{nobody, on_which_gpus};
use super::set::{Held, after_failure, finished};
use super::storage::{Storage, read_from, target};
use super::suspend::decide_anew;
use super::{Context, Exit, Outcome};
use crate::check::{Finding, Seen, refusal};
use crate::cli::{PlaceArgs, SaveArgs};
use crate::driver::Driver;
use crate::lifecycle::{
    Checkpoint, Decide, Failed, Lock, NoJournal, Orders, Quiesce, Release, Session, Step, StepError,
    carry_out,
};
use crate::pid::{Pid, listed};
use crate::report::{Stage, chain};
use crate::state::Record;
use crate::topology::Around;

/// What a phase works on.
struct Set {
    session: Session,
    driver: Arc<dyn Driver>,
    seen: Vec<Seen>,
    around: Around,
    held: Held,
    begun: Instant,
}

/// Opens the set to begin something with it, or says why it cannot be.
fn open(context: &Context, verb: &'static str, pids: &[Pid], timeout: Duration) -> Result<Set, Box<Outcome>> {
    look(context, verb, pids, timeout)?.begin(context, verb)
}

/// Looks at the set, or says why it cannot be opened.
fn look(context: &Context, verb: &'static str, pids: &[Pid], timeout: Duration) -> Result<Set, Box<Outcome>> {
    let begun = Instant::now();
    let refused = |finding| Box::new(Outcome::refused(verb, vec![finding]).about(pids.to_vec()));
    let held = context.hold(pids).map_err(refused)?;
    let driver = match &context.machine.driver {
        Ok(driver) => Arc::clone(driver),
        Err(error) => return Err(Box::new(Outcome::failed(verb, error))),
    };
    let survey = context.machine.survey(pids);
    let findings: Vec<Finding> = survey
        .unseen
        .iter()
        .map(|(pid, trouble)| Finding::blocker("process", chain(trouble), "").of(*pid))
        .collect();
    if refusal(&findings).is_some() {
        return Err(Box::new(Outcome::refused(verb, findings).about(pids.to_vec())));
    }
    let session = context.session(&driver, &survey.seen, timeout);
    if session.participants.is_empty() {
        return Err(Box::new(Outcome::refused(verb, nobody(&survey.seen)).about(pids.to_vec())));
    }
    Ok(Set { session, driver, seen: survey.seen, around: survey.around, held, begun })
}

impl Set {
    /// From here on it is refused no more.
    fn begin(self, context: &Context, verb: &'static str) -> Result<Self, Box<Outcome>> {
        context.begin(&self.held).map_err(|error| Box::new(Outcome::failed(verb, &error)))?;
        Ok(self)
    }

    /// What came of it.
    fn finish(&self, verb: &'static str, result: Result<(), StepError>) -> Outcome {
        match result {
            Ok(()) => {
                let pids = listed(self.session.all().into_iter().map(|target| target.pid));
                finished(verb, Exit::Done, format!("{verb}: process {pids}"), &self.session, self.begun)
            }
            Err(error) => {
                let errors = [error];
                after_failure(verb, &self.session, None, &errors, self.begun)
            }
        }
    }

    fn release<'s>(&'s self, decide: Decide<'s>) -> Release<'s> {
        Release::new(&self.session, decide)
    }

    /// A release of which only the reverse is used.
    fn released(&self) -> Release<'_> {
        self.release(Box::new(|| Ok(Orders::default())))
    }
}

/// No phase but these two waits for anything that has no bound of its own.
const WAIT: Duration = Duration::from_secs(30);

pub(super) fn quiesce(context: &Context, pids: &[Pid], timeout: Duration) -> Outcome {
    let verb = Stage::Quiesce.name();
    let set = match open(context, verb, pids, timeout) {
        Ok(set) => set,
        Err(outcome) => return *outcome,
    };
    let mut steps: Vec<Box<dyn Step>> = vec![Box::new(Quiesce::new(&set.session))];
    match carry_out(&set.session, &NoJournal, &mut steps) {
        Ok(()) => set.finish(verb, Ok(())),
        Err(Failed { cause, undo }) => after_failure(verb, &set.session, Some(&cause), &undo, set.begun),
    }
}

pub(super) fn release(context: &Context, pids: &[Pid], save: &SaveArgs) -> Outcome {
    let verb = Stage::Release.name();
    let set = match look(context, verb, pids, WAIT) {
        Ok(set) => set,
        Err(outcome) => return *outcome,
    };
    let storage = match Storage::open(save, &set.seen) {
        Ok(storage) => storage,
        Err(finding) => return Outcome::refused(verb, vec![finding]).about(pids.to_vec()),
    };
    let set = match set.begin(context, verb) {
        Ok(set) => set,
        Err(outcome) => return *outcome,
    };
    let to = target(storage.as_ref(), save);
    let decide: Decide<'_> = Box::new(|| {
        let (_, verdict) = decide_anew(&context.machine, &set.session, &set.around, &to)?;
        Ok(Orders { plan: verdict.plan, limits: verdict.limits, to: to.clone() })
    });
    let result = set.release(decide).apply();
    let outcome = set.finish(verb, result);
    match &storage {
        Some(storage) if outcome.exit == Exit::Done => storage.fill_cache(&set.held.state, outcome),
        _ => outcome,
    }
}

pub(super) fn checkpoint(context: &Context, pids: &[Pid], timeout: Duration) -> Outcome {
    let verb = Stage::Checkpoint.name();
    let set = match open(context, verb, pids, timeout) {
        Ok(set) => set,
        Err(outcome) => return *outcome,
    };
    let locked = Lock::new(&set.session, Vec::new()).apply();
    let result = locked.and_then(|()| Checkpoint::new(&set.session, Vec::new()).apply());
    set.finish(verb, result)
}

pub(super) fn restore(context: &Context, pids: &[Pid], map: Option<&Path>) -> Outcome {
    let verb = Stage::Restore.name();
    let set = match look(context, verb, pids, WAIT) {
        Ok(set) => set,
        Err(outcome) => return *outcome,
    };
    let boot = context.machine.proc.boot_id().unwrap_or_default();
    let records = match Record::of(&set.held.state, &boot, pids) {
        Ok(records) => records,
        Err(error) => return Outcome::failed(verb, &error),
    };
    let map = match on_which_gpus(&*set.driver, &set.seen, &records, map, pids) {
        Ok(map) => map,
        Err(findings) => return Outcome::refused(verb, findings).about(pids.to_vec()),
    };
    let set = match set.begin(context, verb) {
        Ok(set) => set,
        Err(outcome) => return *outcome,
    };
    let restored = Checkpoint::new(&set.session, map.pairs.clone()).undo();
    let unlocked = Lock::new(&set.session, map.pairs).undo();
    set.finish(verb, restored.and(unlocked))
}

/// As [`open`], for a phase that reads what was saved, from where the options say.
fn open_reading(
    context: &Context,
    verb: &'static str,
    pids: &[Pid],
    places: &PlaceArgs,
) -> Result<Set, Box<Outcome>> {
    let mut set = look(context, verb, pids, WAIT)?;
    match read_from(places, &set.seen) {
        Ok(from) => set.session.from = from,
        Err(findings) => return Err(Box::new(Outcome::refused(verb, findings).about(pids.to_vec()))),
    }
    set.begin(context, verb)
}

pub(super) fn stage(context: &Context, pids: &[Pid], places: &PlaceArgs) -> Outcome {
    let verb = Stage::Stage.name();
    let set = match open_reading(context, verb, pids, places) {
        Ok(set) => set,
        Err(outcome) => return *outcome,
    };
    let staged = super::storage::stage(context, &set.session, &set.seen);
    set.finish(verb, staged)
}

pub(super) fn load(context: &Context, pids: &[Pid], places: &PlaceArgs) -> Outcome {
    let verb = Stage::Load.name();
    let set = match open_reading(context, verb, pids, places) {
        Ok(set) => set,
        Err(outcome) => return *outcome,
    };
    set.finish(verb, set.released().mend().and(set.released().load()))
}

pub(super) fn remap(context: &Context, pids: &[Pid]) -> Outcome {
    let verb = Stage::Remap.name();
    match open(context, verb, pids, WAIT) {
        Ok(set) => set.finish(verb, set.released().remap()),
        Err(outcome) => *outcome,
    }
}

pub(super) fn reopen(context: &Context, pids: &[Pid]) -> Outcome {
    let verb = Stage::Reopen.name();
    match open(context, verb, pids, WAIT) {
        Ok(set) => set.finish(verb, Quiesce::new(&set.session).undo()),
        Err(outcome) => *outcome,
    }
}
