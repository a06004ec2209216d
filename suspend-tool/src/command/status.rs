//! `status` and `list`: where processes stand.

use cuda_sys::ProcessState;
use protocol::{Contents, Inventory, Moved, Native, Origin};
use serde_json::{Value, json};

use super::outcome::with_event;
use super::resume::{forgotten, runs};
use super::set::resume_command;
use super::suspend::are_suspended;
use super::{Context, Exit, Outcome};
use crate::check::{Finding, Seen, Standing, judge};
use crate::driver::state_name;
use crate::freeze::tracers::{self, Tracer};
use crate::lifecycle::Trouble;
use crate::pid::Pid;
use crate::report::{bytes, chain, columns, fates, print_line, print_object};
use crate::state::{Claim, Record, StateDir};

/// Shows where these processes stand.
pub(super) fn status(context: &Context, pids: &[Pid], json: bool) -> Outcome {
    let (seen, unseen) = context.machine.look_at(pids, true);
    let mut rows = vec![heading(&["PID", "NAME", "PHASE", "DRIVER", "OWN", "IMPORTED", "ON GPU", "SAVED"])];
    for seen in &seen {
        if json {
            print_object(&with_event("process", described(seen, holder(context, seen))));
        } else {
            rows.push(row(seen));
        }
    }
    if !json && !seen.is_empty() {
        print_line(&columns(&rows));
        for seen in &seen {
            for line in details(seen, holder(context, seen)) {
                print_line(&line);
            }
        }
    }
    let findings: Vec<Finding> = unseen
        .iter()
        .map(|(pid, trouble)| match trouble {
            Trouble::Stopped { .. } => Finding::warning("process", chain(trouble), "").of(*pid),
            _ => Finding::blocker("process", chain(trouble), "").of(*pid),
        })
        .collect();
    let exit = if findings.iter().any(Finding::blocks) { Exit::Failed } else { Exit::Done };
    let stopped =
        |(pid, trouble): &(Pid, Trouble)| matches!(trouble, Trouble::Stopped { .. }).then_some(*pid);
    let work = Work::on(context, &seen, unseen.iter().filter_map(stopped).collect());
    if !json {
        work.told().iter().for_each(|line| print_line(line));
    }
    Outcome { findings, next: work.next, ..Outcome::new("status", exit, "") }.about(pids.to_vec())
}

/// What is being done with processes, or is left to be done.
struct Work {
    /// Processes that a command works on, each with that command.
    at: Vec<(Pid, u64)>,
    /// What brings them back, where nobody is at work and not all of them run.
    next: Option<String>,
}

impl Work {
    /// What there is about the processes that were seen, and those that are stopped.
    fn on(context: &Context, seen: &[Seen], stopped: Vec<Pid>) -> Self {
        let mut idle: Vec<Pid> =
            seen.iter().filter(|seen| seen.takes_part() && !runs(seen)).map(|seen| seen.target.pid).collect();
        // Without a state directory, or with one that is not ours, nobody is known to be at work.
        let Ok(state) = StateDir::find(context.state_dir.as_deref()) else {
            return Self { at: Vec::new(), next: next(&idle) };
        };
        let worker = |pid: Pid| Some((pid, Claim::holder(&state, pid).ok()??));
        let at: Vec<(Pid, u64)> = seen
            .iter()
            .map(|seen| seen.target.pid)
            .chain(stopped.iter().copied())
            .filter_map(worker)
            .collect();
        let boot = context.machine.proc.boot_id().unwrap_or_default();
        // One that is stopped and cannot answer is known to be suspended by its record.
        let known = |pid: &Pid| {
            let records = Record::of(&state, &boot, &[*pid]).unwrap_or_default();
            let mut targets = records.iter().flat_map(|record| &record.targets);
            targets.any(|target| target.pid == *pid && context.machine.proc.lives(*target))
        };
        idle.extend(stopped.into_iter().filter(known));
        if !idle.is_empty() && at.is_empty() {
            let records = Record::of(&state, &boot, &idle).unwrap_or_default();
            idle.extend(forgotten(context, &idle, &records));
        }
        idle.sort_unstable();
        Self { next: next(&idle).filter(|_| at.is_empty()), at }
    }

    fn told(&self) -> Vec<String> {
        let worked_on = |(pid, command): &(Pid, u64)| {
            format!("process {pid}: nvsnap-gpu-suspend (process {command}) is at work on it")
        };
        self.at.iter().map(worked_on).collect()
    }
}

fn next(idle: &[Pid]) -> Option<String> {
    (!idle.is_empty()).then(|| resume_command(idle.iter().copied()))
}

/// Shows the processes here that use CUDA.
pub(super) fn list(context: &Context, json: bool) -> Outcome {
    let pids = match context.machine.cuda_processes(None) {
        Ok(pids) => pids,
        Err(error) => return Outcome::failed("list", &error),
    };
    let survey = context.machine.survey(&pids);
    let verdict = judge(&context.machine, &survey, false);
    let mut rows = vec![heading(&["PID", "NAME", "PHASE", "DRIVER", "ON GPU", "SUSPEND"])];
    let mut shown = Vec::new();
    for seen in survey.seen.iter().filter(|seen| !matches!(seen.standing, Standing::Idle)) {
        let in_the_way: Vec<&Finding> = verdict
            .findings
            .iter()
            .filter(|finding| finding.blocks() && finding.pid == Some(seen.target.pid))
            .collect();
        shown.push(seen.target.pid);
        if json {
            let mut object = described(seen, holder(context, seen));
            if let Some(fields) = object.as_object_mut() {
                fields.insert("blockers".into(), json!(in_the_way));
            }
            print_object(&with_event("process", object));
            continue;
        }
        let answer = match in_the_way.first() {
            _ if are_suspended(std::slice::from_ref(seen)) => "suspended".to_owned(),
            Some(finding) => finding.kind.to_owned(),
            None => "ready".to_owned(),
        };
        let [pid, name, phase, driver, _, _, on_gpu, _] = cells(seen);
        rows.push(vec![pid, name, phase, driver, on_gpu, answer]);
    }
    if !json && !shown.is_empty() {
        print_line(&columns(&rows));
    }
    let text = if shown.is_empty() { "no process here uses CUDA" } else { "" };
    Outcome::new("list", Exit::Done, text).about(shown)
}

fn heading(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn row(seen: &Seen) -> Vec<String> {
    cells(seen).to_vec()
}

fn cells(seen: &Seen) -> [String; 8] {
    let held = Held::of(seen);
    [
        seen.target.pid.to_string(),
        seen.name.clone(),
        phase(seen).to_owned(),
        seen.state.map_or_else(|| "-".to_owned(), state_name),
        held.own.to_string(),
        held.imported.to_string(),
        bytes(held.live),
        bytes(held.saved),
    ]
}

fn phase(seen: &Seen) -> &'static str {
    match &seen.standing {
        Standing::Shimmed(inventory) => inventory.phase.name(),
        Standing::DriverOnly => "driver only",
        Standing::Unshimmed(_) => "no library",
        Standing::Idle => "no CUDA",
    }
}

/// What a process holds, in numbers.
#[derive(Default)]
struct Held {
    own: u64,
    imported: u64,
    live: u64,
    saved: u64,
    /// What of these the driver keeps and saves itself, and as much on the host.
    by_driver: u64,
    by_driver_on_host: u64,
}

impl Held {
    fn of(seen: &Seen) -> Self {
        let mut held = Self::default();
        let Some(inventory) = seen.inventory() else { return held };
        for allocation in &inventory.allocations {
            match allocation.origin {
                Origin::Created => held.own += 1,
                Origin::Imported { .. } => held.imported += 1,
            }
            let sum = match (allocation.contents, allocation.origin) {
                (Contents::Live, Origin::Created) => &mut held.live,
                (Contents::Zero | Contents::Host | Contents::Chunks, _) => &mut held.saved,
                // Counted where it was made.
                (Contents::Live | Contents::Elsewhere, _) => continue,
            };
            *sum = sum.saturating_add(allocation.size);
        }
        let driver = &inventory.driver_memory;
        held.by_driver = driver.malloc_bytes.saturating_add(driver.async_bytes);
        held.by_driver_on_host = driver.host_bytes;
        let checkpointed = seen.state == Some(ProcessState::CHECKPOINTED);
        let sum = if checkpointed { &mut held.saved } else { &mut held.live };
        *sum = sum.saturating_add(held.by_driver);
        held
    }
}

/// The process that holds its threads still.
fn holder(context: &Context, seen: &Seen) -> Option<i32> {
    let tracers = tracers::of(&context.machine.proc, seen.target.pid);
    tracers.into_iter().find(Tracer::is_holder).map(|tracer| tracer.pid)
}

/// Lines that not every process has.
fn details(seen: &Seen, holder: Option<i32>) -> Vec<String> {
    let pid = seen.target.pid;
    let mut lines = Vec::new();
    if let Some(holder) = holder {
        lines.push(format!("process {pid}: its threads are held still by process {holder}"));
    }
    match &seen.standing {
        Standing::Unshimmed(error) => lines.push(format!("process {pid}: {}", chain(error))),
        Standing::Shimmed(inventory) => {
            let Held { by_driver, .. } = Held::of(seen);
            if by_driver > 0 {
                lines
                    .push(format!("process {pid}: {} of it is saved by the driver itself", bytes(by_driver)));
            }
            for (ordinal, reason) in native(inventory) {
                lines.push(format!(
                    "process {pid}: memory of cuMemAlloc on its device {ordinal} stays with the driver, which saves it \
                     slowly: {reason}"
                ));
            }
            for blocker in &inventory.blockers {
                lines.push(format!(
                    "process {pid}: cannot be carried: {} x {:?} ({})",
                    blocker.count, blocker.kind, blocker.example
                ));
            }
            for waiting in inventory.drain.waiting.iter().take(3) {
                lines.push(format!("process {pid}: thread {} waits with {}", waiting.tid, waiting.call));
            }
            let Moved { objects, moved, zero, deduplicated } = inventory.last_save;
            if objects > 0 {
                lines.push(format!(
                    "process {pid}: saved last: {} moved, {} zero, {} there already",
                    bytes(moved),
                    bytes(zero),
                    bytes(deduplicated)
                ));
            }
            if inventory.kept_bytes > 0 {
                lines.push(format!(
                    "process {pid}: {} of host memory are kept for the next suspend",
                    bytes(inventory.kept_bytes)
                ));
            }
            if inventory.poisoned {
                lines.push(format!("process {pid}: the library has met a fault of its own"));
            }
        }
        Standing::DriverOnly | Standing::Idle => {}
    }
    lines
}

fn described(seen: &Seen, holder: Option<i32>) -> Value {
    let mut object = json!({
        "pid": seen.target.pid,
        "name": seen.name,
        "phase": phase(seen),
        "driver": seen.state.map(state_name),
        "held_by": holder,
    });
    if let (Some(inventory), Some(fields)) = (seen.inventory(), object.as_object_mut()) {
        let held = Held::of(seen);
        fields.insert("version".into(), json!(inventory.shim_version));
        fields.insert("driver_version".into(), json!(inventory.driver_version));
        fields.insert("contexts".into(), json!(inventory.contexts));
        fields.insert("allocations".into(), json!({ "created": held.own, "imported": held.imported }));
        let sums = json!({
            "gpu": held.live,
            "saved": held.saved,
            "kept": inventory.kept_bytes,
            "driver": held.by_driver,
            "driver_host": held.by_driver_on_host,
        });
        fields.insert("bytes".into(), sums);
        fields.insert("last_save".into(), fates(&inventory.last_save));
        let native = native(inventory)
            .map(|(ordinal, reason)| json!({ "device": ordinal, "reason": reason.to_string() }));
        fields.insert("native".into(), json!(native.collect::<Vec<_>>()));
        fields.insert("shares".into(), json!(shares(inventory)));
        fields.insert("drained".into(), json!(inventory.drain.drained));
        fields.insert("waiting".into(), json!(inventory.drain.waiting.len()));
        fields.insert("poisoned".into(), json!(inventory.poisoned));
    }
    object
}

/// The devices on which memory of `cuMemAlloc` is the driver's own, and why.
fn native(inventory: &Inventory) -> impl Iterator<Item = (i32, Native)> {
    inventory.devices.iter().filter_map(|device| Some((device.ordinal, device.native?)))
}

/// The allocations that come from another process.
fn shares(inventory: &Inventory) -> Vec<Value> {
    let allocations = inventory.allocations.iter();
    allocations
        .filter_map(|allocation| match allocation.origin {
            Origin::Imported { exporter } => Some(json!({
                "allocation": allocation.id.to_string(),
                "exporter": exporter,
                "bytes": allocation.size,
            })),
            Origin::Created => None,
        })
        .collect()
}
