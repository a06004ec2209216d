//! At every place of a suspend and of a resume the command is killed, alone and together with the process that watches over
//! it; or asked to stop; or a call fails. Everything runs again by itself, or `resume` makes it so. Contents are looked at each
//! time.
//!
//! The places are the calls that the command makes about processes, taken from a run that nobody kills.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use integration::threads::Thread;
use integration::{Machine, Outcome, Target};

const FAULTS: &str = "NVSNAP_GPU_SUSPEND_FAULTS";
const TRACE: &str = "NVSNAP_GPU_SUSPEND_TRACE";
/// How long it may take until everything runs again by itself.
const PATIENCE: Duration = Duration::from_secs(20);

/// Two workers that share a buffer and have one each.
struct Pair {
    machine: Machine,
    workers: [Target; 2],
    sums: Vec<String>,
}

/// A call of the command about a process: which, of which worker, and the how manieth.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Place {
    call: String,
    worker: usize,
    nth: usize,
}

impl Pair {
    fn new() -> Result<Self> {
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
        let mut pair = Self { machine, workers, sums: Vec::new() };
        pair.sums = pair.look()?;
        Ok(pair)
    }

    fn pids(&self) -> Vec<i32> {
        self.workers.iter().map(Target::pid).collect()
    }

    fn look(&self) -> Result<Vec<String>> {
        let sums = self.workers.iter().flat_map(|worker| ["left", "own"].map(|name| (worker, name)));
        sums.map(|(worker, name)| worker.ok(&format!("sum {name} 0 2M"))).collect()
    }

    /// The calls that a verb makes, in order.
    fn places_of(&self, verb: &str) -> Result<Vec<Place>> {
        let trace = self.machine.path("trace");
        self.machine.tool().set(TRACE, &trace).verb(verb, &self.pids())?.done()?;
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
    fn disturbed(&self, verb: &str, place: &Place, effect: &str) -> Result<Outcome> {
        let pid = self.pids().get(place.worker).copied().context("a worker")?;
        let fault = format!("{}:{}:{pid}={effect}", place.call, place.nth);
        self.after_rescue(verb, &fault)
    }

    /// Runs a verb that is killed at a place. Whether it got there.
    fn killed(&self, verb: &str, place: &Place, effect: &str) -> Result<bool> {
        let outcome = self.disturbed(verb, place, effect)?;
        ensure!(matches!(outcome.code, -1 | 0), "{}", outcome.text());
        Ok(outcome.code == -1)
    }

    /// Runs a verb, once whoever still carries on what a killed command began has come to its end.
    fn after_rescue(&self, verb: &str, fault: &str) -> Result<Outcome> {
        self.machine.verb_when_free(|tool| tool.set(FAULTS, fault), verb, &self.pids())
    }

    /// Waits until every process runs as if nothing had been done to it.
    fn runs(&self) -> Result<()> {
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

    /// Nobody holds a thread, contents are those of the start, and the buffer is one memory.
    fn is_as_it_was(&self) -> Result<()> {
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

/// Does `check` for every place, on as many pairs as there are processors.
fn each<const EFFECTS: usize>(
    effects: [&'static str; EFFECTS],
    places: impl Fn(&Pair) -> Result<Vec<Place>>,
    check: impl Fn(&Pair, &Place, &str) -> Result<()> + Sync,
) -> Result<()> {
    let first = Pair::new()?;
    let places = places(&first)?;
    drop(first);
    ensure!(places.len() > 20, "only {} places: {places:?}", places.len());
    let work: Vec<(Place, &str)> =
        places.iter().flat_map(|place| effects.map(|effect| (place.clone(), effect))).collect();
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let run = || {
        let mut pair = Pair::new();
        while let Some((place, effect)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = pair
                .as_ref()
                .map_err(|error| anyhow::anyhow!("{error:#}"))
                .and_then(|pair| check(pair, place, effect));
            if let Err(error) = outcome {
                let text = format!("{place:?} {effect}: {error:#}");
                failures.lock().unwrap_or_else(PoisonError::into_inner).push(text);
                // What one failure leaves behind is not to be blamed on the next.
                pair = Pair::new();
            }
        }
    };
    std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(run))));
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(failures.is_empty(), "{} of {}:\n{}", failures.len(), work.len(), failures.join("\n"));
    Ok(())
}

/// Where a suspend asks something about a process.
fn of_a_suspend(pair: &Pair) -> Result<Vec<Place>> {
    let places = pair.places_of("suspend")?;
    pair.machine.resume(&pair.pids())?.done()?;
    Ok(places)
}

/// Where a resume does.
fn of_a_resume(pair: &Pair) -> Result<Vec<Place>> {
    pair.machine.suspend(&pair.pids())?.done()?;
    pair.places_of("resume")
}

#[test]
fn a_suspend_that_is_killed_is_undone_by_its_holder_or_finished_by_a_resume() -> Result<()> {
    each(["kill", "crash"], of_a_suspend, |pair, place, effect| {
        // The order in which processes are looked at is not always the same: a place may not be reached.
        if pair.killed("suspend", place, effect)? && effect == "kill" {
            pair.runs()?;
        } else {
            pair.after_rescue("resume", "")?.done()?;
        }
        pair.is_as_it_was()
    })
}

#[test]
fn a_resume_that_is_killed_is_carried_on_by_its_holder_or_by_the_next() -> Result<()> {
    each(["kill", "crash"], of_a_resume, |pair, place, effect| {
        pair.after_rescue("suspend", "")?.done()?;
        if pair.killed("resume", place, effect)? {
            // Where nothing had been begun yet, nobody carries on.
            let looks = matches!(place.call.as_str(), "inspect" | "cuCheckpointProcessGetState");
            let begun = !looks || place.nth > 1;
            if effect == "kill" && begun {
                pair.runs()?;
            } else {
                pair.after_rescue("resume", "")?.done()?;
            }
        }
        pair.is_as_it_was()
    })
}

#[test]
fn a_suspend_that_is_asked_to_stop_or_meets_a_fault_undoes_itself_or_says_what_does() -> Result<()> {
    each(["term", "int", "error", "late"], of_a_suspend, |pair, place, effect| {
        let outcome = pair.disturbed("suspend", place, effect)?;
        match outcome.code {
            // Undone, or refused before anything was begun.
            1 | 4 => {}
            // Not reached, or not in the way of anything; or left to the command that is named.
            0 | 3 => {
                let named = outcome.text().contains("to finish: nvsnap-gpu-suspend resume");
                ensure!(named == (outcome.code == 3), "{}", outcome.text());
                pair.machine.resume(&pair.pids())?.done()?;
            }
            _ => anyhow::bail!("{}", outcome.text()),
        }
        pair.is_as_it_was().with_context(|| outcome.text())
    })
}

#[test]
fn a_resume_that_meets_a_fault_is_finished_by_the_next() -> Result<()> {
    each(["term", "int", "error", "late"], of_a_resume, |pair, place, effect| {
        pair.machine.suspend(&pair.pids())?.done()?;
        let outcome = pair.disturbed("resume", place, effect)?;
        // A signal does not keep a resume from its end.
        ensure!(outcome.code == 0 || matches!(effect, "error" | "late"), "{}", outcome.text());
        if outcome.code != 0 {
            pair.machine.resume(&pair.pids())?.done().with_context(|| outcome.text())?;
        }
        pair.is_as_it_was().with_context(|| outcome.text())
    })
}
