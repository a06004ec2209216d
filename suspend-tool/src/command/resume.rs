//! `resume`: everything back, from wherever each process stands.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda_sys::{ProcessState, Uuid};
use protocol::{Phase, ReadFrom};

use super::gpus::{parse_uuid, read_list};
use super::set::{after_failure, finished, resume_arguments};
use super::stopped::Stopped;
use super::storage::{read_from, stage};
use super::{Context, Exit, Outcome};
use crate::check::{Before, Finding, GpuMap, Seen, Standing, enough_memory, gpu_map, refusal};
use crate::cli::PlaceArgs;
use crate::driver::Driver;
use crate::lifecycle::{Orders, StepError, Trouble, steps, undo_all};
use crate::pid::{Pid, named};
use crate::report::chain;
use crate::state::{Needed, Record};
use crate::topology::saved_bytes;

const VERB: &str = "resume";

/// Brings these processes back, from wherever each of them stands.
pub fn resume(context: &Context, pids: &[Pid], map: Option<&Path>) -> Outcome {
    resume_from(context, pids, map, &PlaceArgs::default())
}

/// The same, with what was saved to a store read where the options say.
pub(super) fn resume_from(
    context: &Context,
    pids: &[Pid],
    map_file: Option<&Path>,
    places: &PlaceArgs,
) -> Outcome {
    let begun = Instant::now();
    let held = match context.hold(pids) {
        Ok(held) => held,
        Err(finding) => return Outcome::refused(VERB, vec![finding]).about(pids.to_vec()),
    };
    let pids = held.pids.as_slice();
    if pids.is_empty() {
        return Outcome::new(VERB, Exit::Done, "another command has gone on with all of them");
    }
    let driver = match &context.machine.driver {
        Ok(driver) => Arc::clone(driver),
        Err(error) => return Outcome::failed(VERB, error),
    };
    let boot = context.machine.proc.boot_id().unwrap_or_default();
    let records = match Record::of(&held.state, &boot, pids) {
        Ok(records) => records,
        Err(error) => return Outcome::failed(VERB, &error),
    };
    // One that is stopped cannot answer. Whoever stopped it, other than `stop`, finds it stopped again afterwards.
    let mut stopped = Stopped::go_on(&context.machine.proc, pids, &records);
    let (seen, unseen) = context.machine.look_at(pids, true);
    let mut findings: Vec<Finding> = unseen
        .iter()
        .map(|(pid, trouble)| {
            let finding = if trouble.is_gone() { Finding::warning } else { Finding::blocker };
            finding("process", chain(trouble), "").of(*pid)
        })
        .collect();
    findings.extend(seen.iter().filter_map(cannot_take_part));
    let broken = Record::not_understood(&held.state);
    findings.extend(broken.iter().map(|error| Finding::warning("state", chain(error), "")));
    if !seen.iter().any(Seen::takes_part) && refusal(&findings).is_none() {
        findings.push(Finding::blocker("nothing", "none of the processes uses CUDA", ""));
    }
    if !context.rescues {
        let suspended = forgotten(context, pids, &records);
        if !suspended.is_empty() {
            findings.push(not_named(pids, &suspended));
        }
    }
    if refusal(&findings).is_none() && seen.iter().filter(|seen| seen.takes_part()).all(runs) {
        forget(&held.state, &records);
        let text = format!("running already: {}", named(pids.iter().copied()));
        return Outcome { findings, ..Outcome::new(VERB, Exit::Done, text) }.about(pids.to_vec());
    }
    let map = match on_which_gpus(&*driver, &seen, &records, map_file, pids) {
        Ok(map) => map,
        Err(found) => {
            findings.extend(found);
            GpuMap::default()
        }
    };
    let from = match read_from(places, &seen) {
        Ok(from) => from,
        Err(found) => {
            findings.extend(found);
            ReadFrom::default()
        }
    };
    if refusal(&findings).is_some() {
        return Outcome::refused(VERB, findings).about(pids.to_vec());
    }
    let session = context.session(&driver, &seen, Duration::from_secs(30)).reading(from);
    let moved = map.moves();
    // Should this command die, the same is done again.
    if let Err(error) = context.begin_watched(&held, resume_arguments(&session, map_file, places)) {
        return Outcome::failed(VERB, &error);
    }
    stopped.go_on_for_good();
    // What goes wrong with it goes wrong with the load too, which says so.
    let _ = stage(context, &session, &seen);
    // Only the undos of these steps are used.
    let decide = Box::new(|| Ok::<Orders, StepError>(Orders::default()));
    let errors = undo_all(&mut steps(&session, decide, map.pairs));
    context.hold.finish();
    let outcome = if errors.is_empty() {
        forget(&held.state, &records);
        let mut text = format!("resumed {}", named(session.all().into_iter().map(|target| target.pid)));
        text.push_str(&moved);
        if let Some(signal) = context.interrupt.pending() {
            // Half a resume helps nobody: the way out of it is the end of it.
            text.push_str(&format!(" ({signal} came meanwhile)"));
        }
        finished(VERB, Exit::Done, text, &session, begun)
    } else {
        after_failure(VERB, &session, None, &errors, begun)
    };
    Outcome { findings, ..outcome }
}

/// Whether a process runs as if nothing had been done to it.
pub(super) fn runs(seen: &Seen) -> bool {
    matches!(seen.state, None | Some(ProcessState::RUNNING))
        && seen
            .inventory()
            .is_none_or(|inventory| inventory.phase == Phase::Running && inventory.progress.is_none())
}

/// What is said where none of these processes takes part.
pub(super) fn nobody(seen: &[Seen]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = seen.iter().filter_map(cannot_take_part).collect();
    if refusal(&findings).is_none() {
        findings.push(Finding::blocker("nothing", "none of the processes uses CUDA", ""));
    }
    findings
}

fn cannot_take_part(seen: &Seen) -> Option<Finding> {
    let pid = seen.target.pid;
    match &seen.standing {
        Standing::Idle => Some(
            Finding::warning("no-cuda", format!("process {pid} ({}) does not use CUDA", seen.name), "")
                .of(pid),
        ),
        Standing::Unshimmed(error) => Some(Finding::blocker("no-shim", chain(error), "").of(pid)),
        Standing::Shimmed(_) | Standing::DriverOnly => None,
    }
}

/// Processes that were suspended together with the ones named, and are not named.
pub(super) fn forgotten(context: &Context, pids: &[Pid], records: &[Record]) -> Vec<Pid> {
    let others: Vec<Pid> = records
        .iter()
        .flat_map(|record| &record.targets)
        .filter(|target| !pids.contains(&target.pid) && context.machine.proc.lives(**target))
        .map(|target| target.pid)
        .collect();
    let (seen, unseen) = context.machine.look_at(&others, false);
    let stopped =
        unseen.iter().filter(|(_, trouble)| matches!(trouble, Trouble::Stopped { .. })).map(|(pid, _)| *pid);
    seen.iter().filter(|seen| !runs(seen)).map(|seen| seen.target.pid).chain(stopped).collect()
}

fn not_named(pids: &[Pid], suspended: &[Pid]) -> Finding {
    let all = pids.iter().copied().chain(suspended.iter().copied());
    let message =
        format!("suspended together with those named, and not named: {}", named(suspended.iter().copied()));
    Finding::blocker("forgotten", message, format!("`{}`", super::set::resume_command(all)))
}

fn forget(state: &crate::state::StateDir, records: &[Record]) {
    for record in records {
        // All of them run; a record that cannot be removed is out of date and does no harm.
        let _ = record.remove(state);
    }
}

/// Where the processes come back, if there is room. A restore that fails cannot be repeated: this is asked first.
pub(super) fn on_which_gpus(
    driver: &dyn Driver,
    seen: &[Seen],
    records: &[Record],
    map: Option<&Path>,
    pids: &[Pid],
) -> Result<GpuMap, Vec<Finding>> {
    let one = |error: &dyn std::error::Error| vec![Finding::blocker("gpus", chain(error), "")];
    let before = match map {
        Some(path) => {
            let order = read_list(path).map_err(|error| one(&error))?;
            Before { order, used: used(seen), ordered: true }
        }
        None => known_before(seen, records),
    };
    let now = driver.gpus().map_err(|error| one(&error))?;
    let map = gpu_map(&before, &now).map_err(|finding| vec![finding])?;
    let free = driver.free().map_err(|error| one(&error))?;
    let findings = enough_memory(&demand(seen, records), &map, &now, &free, pids);
    if findings.is_empty() { Ok(map) } else { Err(findings) }
}

/// The GPUs that the processes see, in the order in which they see them.
fn used(seen: &[Seen]) -> Vec<Uuid> {
    let devices = seen.iter().filter_map(Seen::inventory).flat_map(|inventory| &inventory.devices);
    let mut used = Vec::new();
    for device in devices {
        let uuid = Uuid { bytes: device.uuid };
        if !used.contains(&uuid) {
            used.push(uuid);
        }
    }
    used
}

/// What is known of the GPUs of the time of the suspend: the record has all of them, the processes know their own.
fn known_before(seen: &[Seen], records: &[Record]) -> Before {
    let used = used(seen);
    let recorded = records.first().map(|record| record.gpus.iter().filter_map(|gpu| parse_uuid(&gpu.uuid)));
    let mut order: Vec<Uuid> = recorded.into_iter().flatten().collect();
    let unknown = used.iter().filter(|gpu| !order.contains(gpu)).copied().collect::<Vec<_>>();
    order.extend(unknown);
    Before { order, used, ordered: false }
}

/// What the processes will need on each GPU: as recorded while nothing of it is back, else what is known of the rest.
fn demand(seen: &[Seen], records: &[Record]) -> Vec<Needed> {
    let mut taking_part = seen.iter().filter(|seen| seen.takes_part());
    let none_is_back = taking_part.all(|seen| seen.state == Some(ProcessState::CHECKPOINTED));
    if let ([record], true) = (records, none_is_back) {
        return record.needed.clone();
    }
    let mut needed: Vec<Needed> = Vec::new();
    let members = seen.iter().filter_map(|seen| Some((seen.target.pid, seen.inventory()?.clone())));
    for member in crate::topology::Member::of(members) {
        for (uuid, bytes) in saved_bytes(&member) {
            let gpu = Uuid { bytes: uuid }.to_string();
            match needed.iter_mut().find(|needed| needed.gpu == gpu) {
                Some(needed) => needed.bytes = needed.bytes.saturating_add(bytes),
                None => needed.push(Needed { gpu, bytes }),
            }
        }
    }
    needed
}
