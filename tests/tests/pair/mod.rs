//! Two workers that share a buffer, and the places of a verb at which something may happen to the command.
//!
//! The places are the calls that the command makes about processes, taken from a run that nobody disturbs.
#![allow(
    dead_code,
    clippy::indexing_slicing,
    reason = "each test file uses its own part, and fails where it cannot go on"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use integration::threads::Thread;
use integration::{Machine, Outcome, Running, Target, Tool};

pub(crate) const FAULTS: &str = "NVSNAP_GPU_SUSPEND_FAULTS";
const TRACE: &str = "NVSNAP_GPU_SUSPEND_TRACE";
/// How long it may take until everything runs again by itself.
const PATIENCE: Duration = Duration::from_secs(20);

/// Two workers that share a buffer and have one each.
pub(crate) struct Pair {
    pub(crate) machine: Machine,
    pub(crate) workers: [Target; 2],
    saving: Saving,
    sums: Vec<String>,
}

/// Where a suspend saves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Saving {
    InPlace,
    Store,
    StoreAndCache,
}

/// A call of the command about a process: which, of which worker, and the how manieth.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    pub(crate) call: String,
    worker: usize,
    pub(crate) nth: usize,
}

impl Place {
    /// Whether a resume has begun something by then: the first look at each process is none.
    pub(crate) fn is_begun(&self) -> bool {
        let looks = matches!(self.call.as_str(), "inspect" | "cuCheckpointProcessGetState");
        !looks || self.nth > 1
    }
}

impl Pair {
    pub(crate) fn new(saving: Saving) -> Result<Self> {
        let machine = Machine::stand_in()?;
        let start = |name: &str| -> Result<Target> {
            let worker = machine.worker(name).preload().start()?;
            for line in ["listen", "begin 0", "new own 2M device:0 fd", "fill own 0 2M 5"] {
                worker.ok(line)?;
            }
            Ok(worker)
        };
        let workers = [start("a")?, start("b")?];
        let [a, b] = &workers;
        for line in ["new left 4M device:0 fd", "fill left 0 4M 3", "export left left", "send left b"] {
            a.ok(line)?;
        }
        for line in ["receive left", "import left left", "show left 4M", "close left"] {
            b.ok(line)?;
        }
        let mut pair = Self { machine, workers, saving, sums: Vec::new() };
        pair.sums = pair.look()?;
        Ok(pair)
    }

    pub(crate) fn pids(&self) -> Vec<i32> {
        self.workers.iter().map(Target::pid).collect()
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.machine.path("store")
    }

    /// The options of a verb: where a suspend saves.
    fn with_options(&self, tool: Tool, verb: &str) -> Tool {
        if verb != "suspend" || self.saving == Saving::InPlace {
            return tool;
        }
        let tool = tool.option("--store").argument(self.store());
        let tool = tool.option("--ckpt-dir").argument(self.machine.path("ckpt"));
        if self.saving == Saving::Store {
            return tool;
        }
        tool.option("--cache").argument(self.machine.path("cache"))
    }

    pub(crate) fn look(&self) -> Result<Vec<String>> {
        let sums = self.workers.iter().flat_map(|worker| ["left", "own"].map(|name| (worker, name)));
        sums.map(|(worker, name)| worker.ok(&format!("sum {name} 0 2M"))).collect()
    }

    /// Starts a verb, and waits until it makes this call.
    pub(crate) fn start_traced(&self, tool: Tool, verb: &str, call: &str) -> Result<Running> {
        let trace = self.machine.path("trace-of-another");
        let running = tool.set(TRACE, &trace).start_verb(verb, &self.pids())?;
        let deadline = Instant::now() + PATIENCE;
        while !std::fs::read_to_string(&trace).unwrap_or_default().contains(call) {
            ensure!(Instant::now() < deadline, "`{verb}` does not get to `{call}`");
        }
        std::fs::remove_file(&trace)?;
        Ok(running)
    }

    /// The calls that a verb makes, in order.
    pub(crate) fn places_of(&self, verb: &str) -> Result<Vec<Place>> {
        let trace = self.machine.path("trace");
        self.with_options(self.machine.tool().set(TRACE, &trace), verb).verb(verb, &self.pids())?.done()?;
        let text = std::fs::read_to_string(&trace)?;
        std::fs::remove_file(&trace)?;
        let mut counts = BTreeMap::new();
        let mut places = Vec::new();
        for line in text.lines() {
            let (call, pid) = line.split_once(' ').context("a call and a pid")?;
            let pid: i32 = pid.parse()?;
            let Some(worker) = self.pids().iter().position(|own| *own == pid) else { continue };
            let nth = counts.entry((call.to_owned(), worker)).or_insert(0);
            *nth += 1;
            places.push(Place { call: call.to_owned(), worker, nth: *nth });
        }
        Ok(places)
    }

    /// Runs a verb to which something happens at a place.
    pub(crate) fn disturbed(&self, verb: &str, place: &Place, effect: &str) -> Result<Outcome> {
        let pid = self.pids().get(place.worker).copied().context("a worker")?;
        let fault = format!("{}:{}:{pid}={effect}", place.call, place.nth);
        self.after_rescue(verb, &fault)
    }

    /// Runs a verb that is killed at a place. Whether it got there.
    pub(crate) fn killed(&self, verb: &str, place: &Place, effect: &str) -> Result<bool> {
        let outcome = self.disturbed(verb, place, effect)?;
        ensure!(matches!(outcome.code, -1 | 0), "{}", outcome.text());
        Ok(outcome.code == -1)
    }

    /// Runs a verb, once whoever still carries on what a killed command began has come to its end.
    pub(crate) fn after_rescue(&self, verb: &str, fault: &str) -> Result<Outcome> {
        let ready = |tool: Tool| self.with_options(tool.set(FAULTS, fault), verb);
        self.machine.verb_when_free(ready, verb, &self.pids())
    }

    /// Runs a verb that is killed at a place, after its holder was stopped; that one comes back. One that had nothing to
    /// watch over yet ends.
    pub(crate) fn stalled(&self, verb: &str, place: &Place) -> Result<Vec<i32>> {
        let before = holders_of(&self.machine)?;
        self.killed(verb, place, "stall")?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut holders = holders_of(&self.machine)?;
            holders.retain(|holder| !before.contains(holder));
            let stopped =
                |pid: &i32| Thread::all(*pid).is_ok_and(|threads| threads.iter().all(|it| it.state == 'T'));
            if holders.iter().all(stopped) {
                return Ok(holders);
            }
            ensure!(Instant::now() < deadline, "holders {holders:?} neither stop nor end");
        }
    }

    /// Waits until every process runs as if nothing had been done to it.
    pub(crate) fn runs(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut stuck = Vec::new();
            for pid in self.pids() {
                let status = self.machine.tool().option("--json").verb("status", &[pid])?;
                let events = status.events()?;
                let process = events.iter().find(|event| event["event"] == "process");
                let is_well = |process: &serde_json::Value| {
                    process["phase"] == "running" && process["driver"] == "running"
                };
                if !process.is_some_and(is_well) {
                    stuck.push(status.text());
                }
            }
            if stuck.is_empty() {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "not all run again by themselves: {}", stuck.join(" "));
        }
    }

    /// The command that `status` names to bring the processes back; nothing where they run.
    pub(crate) fn status_says(&self) -> Result<Option<String>> {
        let status = self.machine.tool().option("--json").verb("status", &self.pids())?.done()?;
        let summary = status.events()?.pop().context("a summary")?;
        Ok(summary["next"].as_str().map(str::to_owned))
    }

    /// Runs a command that was named, with a store where that is given.
    pub(crate) fn carried_out(&self, command: &str, store: Option<&Path>) -> Result<Outcome> {
        let arguments = command.strip_prefix("nvsnap-gpu-suspend ").context("a command of ours")?;
        let with_arguments = |mut tool: Tool| {
            if let Some(store) = store {
                tool = tool.option("--store").argument(store);
            }
            arguments.split(' ').fold(tool, Tool::argument)
        };
        self.machine.when_free(|tool| with_arguments(tool).run())
    }

    /// Runs what `status` names, if it names anything, and then nothing is left to be done.
    pub(crate) fn is_finished_as_status_says(&self) -> Result<()> {
        if let Some(command) = self.status_says()? {
            self.carried_out(&command, None)?.done()?;
        }
        ensure!(self.status_says()?.is_none(), "something is left to be done");
        Ok(())
    }

    /// Nobody holds a thread, contents are those of the start, and the buffer is one memory.
    pub(crate) fn is_as_it_was(&self) -> Result<()> {
        for pid in self.pids() {
            Thread::all_until(pid, |threads| {
                threads.iter().all(|thread| thread.tracer == 0 && thread.state != 'T')
            })?;
        }
        ensure!(self.look()? == self.sums, "contents changed");
        let [a, b] = &self.workers;
        a.ok("add left 0 2M 1")?;
        ensure!(a.ok("sum left 0 2M")? == b.ok("sum left 0 2M")?, "no longer one memory");
        a.ok(&format!("add left 0 2M {}", u32::MAX))?;
        Ok(())
    }
}

/// The processes that hold threads for commands of this machine, and live.
fn holders_of(machine: &Machine) -> Result<Vec<i32>> {
    let state = format!("NVSNAP_GPU_SUSPEND_DIR={}", machine.path("state").display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let process = entry?;
        let Ok(pid) = process.file_name().to_string_lossy().parse() else { continue };
        let read = |name: &str| std::fs::read(process.path().join(name)).unwrap_or_default();
        // One that has ended and is not waited for has no environment any more.
        if read("comm") == b"nvsnap-holder\n"
            && read("environ").split(|byte| *byte == 0).any(|variable| variable == state.as_bytes())
        {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Does `check` for every place, on a few pairs that save there.
pub(crate) fn each<const EFFECTS: usize>(
    saving: Saving,
    effects: [&'static str; EFFECTS],
    places: impl Fn(&Pair) -> Result<Vec<Place>>,
    check: impl Fn(&Pair, &Place, &str) -> Result<()> + Sync,
) -> Result<()> {
    let first = Pair::new(saving)?;
    let places = places(&first)?;
    drop(first);
    ensure!(places.len() > 20, "only {} places: {places:?}", places.len());
    let work: Vec<(Place, &str)> =
        places.iter().flat_map(|place| effects.map(|effect| (place.clone(), effect))).collect();
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let run = || {
        let mut pair = Pair::new(saving);
        while let Some((place, effect)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = pair
                .as_ref()
                .map_err(|error| anyhow::anyhow!("{error:#}"))
                .and_then(|pair| check(pair, place, effect));
            if let Err(error) = outcome {
                let text = format!("{place:?} {effect}: {error:#}");
                failures.lock().unwrap_or_else(PoisonError::into_inner).push(text);
                // What one failure leaves behind is not to be blamed on the next.
                pair = Pair::new(saving);
            }
        }
    };
    std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(run))));
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(failures.is_empty(), "{} of {}:\n{}", failures.len(), work.len(), failures.join("\n"));
    Ok(())
}

/// Where a suspend asks something about a process.
pub(crate) fn of_a_suspend(pair: &Pair) -> Result<Vec<Place>> {
    let places = pair.places_of("suspend")?;
    pair.machine.resume(&pair.pids())?.done()?;
    Ok(places)
}

/// Where a resume does.
pub(crate) fn of_a_resume(pair: &Pair) -> Result<Vec<Place>> {
    pair.after_rescue("suspend", "")?.done()?;
    pair.places_of("resume")
}
