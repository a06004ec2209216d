//! `suspend`: check, quiesce, release, the driver's lock and checkpoint.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda_sys::ProcessState;
use protocol::{Phase, SaveTo};

use super::set::{Held, after_failure, finished, keep, resume_arguments};
use super::storage::{Storage, room_for, target};
use super::{Context, Exit, Outcome};
use crate::check::{
    Machine, Seen, Survey, Verdict, cannot_freeze, device_demand, host_shares, judge, plan, refusal,
};
use crate::cli::{PlaceArgs, SaveArgs};
use crate::driver::Driver;
use crate::lifecycle::{Decide, Orders, Session, StepError, carry_out, steps};
use crate::pid::{Pid, named};
use crate::report::{bytes, chain};
use crate::state::{Record, StateJournal};
use crate::topology::{Around, Member, Plan};

const VERB: &str = "suspend";

/// Suspends these processes, and keeps their bytes in their host memory.
pub fn suspend(context: &Context, pids: &[Pid], timeout: Duration) -> Outcome {
    suspend_to(context, pids, timeout, &SaveArgs::default())
}

/// Suspends these processes, and saves their bytes where the options say.
pub(super) fn suspend_to(context: &Context, pids: &[Pid], timeout: Duration, save: &SaveArgs) -> Outcome {
    match context.hold(pids) {
        Ok(held) => suspend_held(context, pids, timeout, save, &held),
        Err(finding) => Outcome::refused(VERB, vec![finding]).about(pids.to_vec()),
    }
}

/// Suspends processes that are claimed already.
pub(super) fn suspend_held(
    context: &Context,
    pids: &[Pid],
    timeout: Duration,
    save: &SaveArgs,
    held: &Held,
) -> Outcome {
    let begun = Instant::now();
    let survey = context.machine.survey(pids);
    if is_suspended(&survey) {
        let text = format!("already suspended: {}", named(pids.iter().copied()));
        return Outcome::new(VERB, Exit::Done, text).about(pids.to_vec());
    }
    let mut verdict = judge(&context.machine, &survey, false);
    if save.places.store.is_some() {
        verdict = verdict.with_store(&context.machine.proc);
    }
    if context.freezes {
        verdict.findings.extend(cannot_freeze(&context.machine.proc, &survey));
    }
    let driver = match &context.machine.driver {
        Ok(driver) if refusal(&verdict.findings).is_none() => Arc::clone(driver),
        _ => return Outcome::refused(VERB, verdict.findings).about(pids.to_vec()),
    };
    let boot = match context.machine.proc.boot_id() {
        Ok(boot) => boot,
        Err(error) => return Outcome::failed(VERB, &error),
    };
    // The last thing before something is done to the processes: a store may be made here.
    let storage = match Storage::open(save, &survey.seen) {
        Ok(storage) => storage,
        Err(finding) => return Outcome::refused(VERB, vec![finding]).about(pids.to_vec()),
    };
    verdict.findings.extend(room_for(save, &verdict));
    if refusal(&verdict.findings).is_some() {
        return Outcome::refused(VERB, verdict.findings).about(pids.to_vec());
    }
    let session = context.session(&driver, &survey.seen, timeout);
    let record = Record::new(boot, session.all(), context.recorded_gpus());
    let journal = StateJournal::new(&held.state, record);
    let to = target(storage.as_ref(), save);
    let run = Run {
        machine: &context.machine,
        session: &session,
        around: &survey.around,
        driver: &driver,
        to: &to,
    };
    let rescue = resume_arguments(&session, None, &PlaceArgs::default());
    if let Err(error) = context.begin_watched(held, rescue) {
        return Outcome::failed(VERB, &error);
    }
    let result = run.carry_out(&journal);
    let mut warnings = verdict.findings;
    let outcome = match result {
        Ok(sentence) => {
            let outcome = finished(VERB, Exit::Done, sentence, &session, begun);
            warnings.extend(keep(context));
            match &storage {
                Some(storage) => storage.fill_cache(&held.state, outcome),
                None => outcome,
            }
        }
        Err(failed) => {
            let outcome = after_failure(VERB, &session, Some(&failed.cause), &failed.undo, begun);
            if outcome.exit == Exit::Failed {
                // Nothing is left to be finished; a record that stays would only be looked at in vain.
                let _ = journal.close();
            }
            context.hold.finish();
            outcome
        }
    };
    warnings.extend(outcome.findings);
    Outcome { findings: warnings, ..outcome }
}

/// Whether all of them are suspended.
fn is_suspended(survey: &Survey) -> bool {
    survey.unseen.is_empty() && are_suspended(&survey.seen)
}

/// Whether those of them that use CUDA are suspended, and there is one.
pub(super) fn are_suspended(seen: &[Seen]) -> bool {
    let suspended = |seen: &Seen| {
        seen.state == Some(ProcessState::CHECKPOINTED)
            && seen.inventory().is_none_or(|inventory| inventory.phase == Phase::Released)
    };
    let mut taking_part = seen.iter().filter(|seen| seen.takes_part()).peekable();
    taking_part.peek().is_some() && taking_part.all(suspended)
}

/// One suspend.
struct Run<'a> {
    machine: &'a Machine,
    session: &'a Session,
    around: &'a Around,
    driver: &'a Arc<dyn Driver>,
    to: &'a SaveTo,
}

impl Run<'_> {
    fn carry_out(&self, journal: &StateJournal<'_>) -> Result<String, crate::lifecycle::Failed> {
        let before = self.driver.free().ok();
        let decided = std::cell::RefCell::new((Vec::new(), Plan::default()));
        let decide: Decide<'_> = Box::new(|| {
            let (members, verdict) = decide_anew(self.machine, self.session, self.around, self.to)?;
            // What is known to the byte is written down before anything is freed; what is measured comes later.
            journal
                .note(|record| record.needed = device_demand(&members, &verdict.plan, &record.gpus, None))
                .map_err(|error| StepError::Journal(chain(&error)))?;
            decided.replace((members, verdict.plan.clone()));
            Ok(Orders { plan: verdict.plan, limits: verdict.limits, to: self.to.clone() })
        });
        let mut steps = steps(self.session, decide, Vec::new());
        carry_out(self.session, journal, &mut steps)?;
        drop(steps);
        let (members, plan) = decided.into_inner();
        let freed = freed(before, self.driver.free().ok());
        // The processes are suspended; a record that cannot be completed is no reason to undo that.
        let _ = journal.note(|record| {
            record.needed = device_demand(&members, &plan, &record.gpus, freed.as_deref());
            record.suspended = true;
        });
        let total =
            freed.map_or(0, |freed| freed.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes)));
        let pids = named(self.session.all().into_iter().map(|target| target.pid));
        Ok(format!("suspended {pids}; {} of GPU memory became free", bytes(total)))
    }
}

/// What became free on each GPU.
fn freed(before: Option<Vec<u64>>, after: Option<Vec<u64>>) -> Option<Vec<u64>> {
    let (before, after) = (before?, after?);
    Some(after.iter().zip(before).map(|(after, before)| after.saturating_sub(before)).collect())
}

/// Looks again at what the processes hold, once they have come to rest: since the check they may have made, shared or
/// freed memory.
pub(super) fn decide_anew(
    machine: &Machine,
    session: &Session,
    around: &Around,
    to: &SaveTo,
) -> Result<(Vec<Member>, Verdict), StepError> {
    let seen = session.inspect(&session.shimmed(), true);
    if let Some((_, trouble)) = seen.failed.first() {
        return Err(StepError::Blocked(chain(trouble)));
    }
    let members = Member::of(seen.done);
    let mut verdict = plan(&machine.proc, &members, around);
    if !to.is_memory() {
        verdict = verdict.with_store(&machine.proc);
        verdict.limits = host_shares(&machine.proc, members.iter().map(|member| member.pid));
    }
    match refusal(&verdict.findings) {
        Some(text) => Err(StepError::Blocked(text)),
        None => Ok((members, verdict)),
    }
}
