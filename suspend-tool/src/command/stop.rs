//! `stop`: suspended processes are left stopped, with nobody holding them.

use super::resume::nobody;
use super::suspend::are_suspended;
use super::{Context, Exit, Outcome, stopped};
use crate::check::{Finding, Seen, refusal};
use crate::pid::{Pid, Target, listed, named};
use crate::report::chain;
use crate::state::{Record, StateJournal};

const VERB: &str = "stop";

/// Stops these processes, which have to be suspended, and ends their holder.
pub(super) fn stop(context: &Context, pids: &[Pid]) -> Outcome {
    let held = match context.hold(pids) {
        Ok(held) => held,
        Err(finding) => return Outcome::refused(VERB, vec![finding]).about(pids.to_vec()),
    };
    let proc = &context.machine.proc;
    let (seen, unseen) = context.machine.look_at(pids, false);
    let mut findings: Vec<Finding> = unseen
        .iter()
        .map(|(pid, trouble)| Finding::blocker("process", chain(trouble), "").of(*pid))
        .collect();
    let suspend = || format!("`nvsnap-gpu-suspend suspend {}` first", listed(pids.iter().copied()));
    let running = |seen: &&Seen| seen.takes_part() && !are_suspended(std::slice::from_ref(*seen));
    findings.extend(seen.iter().filter(running).map(|seen| {
        let pid = seen.target.pid;
        Finding::blocker("not-suspended", format!("process {pid} is not suspended"), suspend()).of(pid)
    }));
    if refusal(&findings).is_none() && !are_suspended(&seen) {
        findings.extend(nobody(&seen));
    }
    if refusal(&findings).is_some() {
        return Outcome::refused(VERB, findings).about(pids.to_vec());
    }
    let boot = proc.boot_id().unwrap_or_default();
    let noted = Record::of(&held.state, &boot, pids).and_then(|records| {
        records.into_iter().try_for_each(|record| {
            StateJournal::new(&held.state, record).note(|record| record.stopped = true)
        })
    });
    if let Err(error) = noted {
        return Outcome::failed(VERB, &error).about(pids.to_vec());
    }
    if let Err(error) = context.begin(&held) {
        return Outcome::failed(VERB, &error).about(pids.to_vec());
    }
    let targets: Vec<Target> = seen.iter().filter(|seen| seen.takes_part()).map(|seen| seen.target).collect();
    stopped::stop(proc, &targets);
    if let Err(failed) = context.hold.thaw(&targets) {
        let told: Vec<String> = failed.iter().map(|(pid, why)| format!("process {pid}: {why}")).collect();
        return unfinished(told.join("; "), pids);
    }
    let moving = stopped::all_stopped(proc, &targets);
    let pids_stopped = named(targets.iter().map(|target| target.pid));
    if moving.is_empty() {
        Outcome::new(VERB, Exit::Done, format!("stopped {pids_stopped}")).about(pids.to_vec())
    } else {
        unfinished(format!("not stopped: {}", named(moving)), pids)
    }
}

fn unfinished(text: String, pids: &[Pid]) -> Outcome {
    let next = super::set::resume_command(pids.iter().copied());
    Outcome { next: Some(next), ..Outcome::new(VERB, Exit::Unfinished, text) }.about(pids.to_vec())
}
