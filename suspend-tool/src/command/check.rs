//! `check`: whether a suspend would succeed.

use std::time::Instant;

use super::resume::on_which_gpus;
use super::storage::{foresee, room_for};
use super::suspend::are_suspended;
use super::{Context, Exit, Outcome};
use crate::check::{Finding, Seen, cannot_freeze, judge};
use crate::cli::SaveArgs;
use crate::pid::Pid;
use crate::report::{bytes, counted};
use crate::state::{Record, StateDir};

/// Tells whether a suspend of these processes in place would succeed, and what is in the way.
pub fn check(context: &Context, pids: &[Pid], criu: bool) -> Outcome {
    check_for(context, pids, criu, &SaveArgs::default())
}

/// The same for a suspend that saves where the options say.
pub(super) fn check_for(context: &Context, pids: &[Pid], criu: bool, save: &SaveArgs) -> Outcome {
    let begun = Instant::now();
    let survey = context.machine.survey(pids);
    let mut verdict = judge(&context.machine, &survey, criu);
    let to_store = save.places.store.is_some();
    if to_store {
        verdict = verdict.with_store(&context.machine.proc);
        verdict.findings.extend(foresee(save, &survey.seen));
        verdict.findings.extend(room_for(save, &verdict));
    }
    if context.freezes {
        verdict.findings.extend(cannot_freeze(&context.machine.proc, &survey));
    }
    if are_suspended(&survey.seen) {
        verdict.findings.extend(cannot_come_back(context, &survey.seen, pids));
    }
    let blocked = verdict.findings.iter().filter(|finding| finding.blocks()).count();
    let taking_part: Vec<Pid> =
        survey.seen.iter().filter(|seen| seen.takes_part()).map(|seen| seen.target.pid).collect();
    let takes = if to_store {
        let bytes_of = verdict.released.values().map(|amount| amount.bytes);
        format!("saves at most {} to the store", bytes(bytes_of.fold(0, u64::saturating_add)))
    } else {
        let bytes_of = verdict.saved.values().map(|need| need.most);
        format!("takes at most {} of host memory", bytes(bytes_of.fold(0, u64::saturating_add)))
    };
    let sentence = if blocked > 0 {
        let things = counted(blocked, "thing is", "things are");
        format!("a suspend would be refused: {things} in the way")
    } else {
        format!(
            "a suspend of {} would succeed; it {takes} (checked in {:.2} s)",
            counted(taking_part.len(), "process", "processes"),
            begun.elapsed().as_secs_f64()
        )
    };
    let exit = if blocked > 0 { Exit::Refused } else { Exit::Done };
    Outcome { findings: verdict.findings, ..Outcome::new("check", exit, sentence) }
        .about(survey.seen.iter().filter(|seen: &&Seen| seen.takes_part()).map(|seen| seen.target.pid))
}

/// What would be in the way of a resume of processes that are suspended.
fn cannot_come_back(context: &Context, seen: &[Seen], pids: &[Pid]) -> Vec<Finding> {
    let Ok(driver) = &context.machine.driver else { return Vec::new() };
    let boot = context.machine.proc.boot_id().unwrap_or_default();
    let records = StateDir::find(context.state_dir.as_deref());
    let records = records.and_then(|state| Record::of(&state, &boot, pids)).unwrap_or_default();
    on_which_gpus(&**driver, seen, &records, None, pids).err().unwrap_or_default()
}
