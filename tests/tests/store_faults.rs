//! A fault at every call, of the driver and of files, that a suspend to a store and a resume from it make in a process:
//! afterwards everything is as it was, or the next `resume` makes it so.
//!
//! The places are never listed by hand: they come from the logs of a run without faults.
#![allow(clippy::indexing_slicing, reason = "a test that cannot go on fails, and says where")]

use anyhow::{Context, Result, ensure};
use integration::{Calls, Machine, Outcome, Place, Target, at_each};

const BUFFERS: [&str; 2] = ["shared", "own"];

/// A place and what happens there.
type Fault<'a> = (Calls, &'a Place, &'static str);

/// Two workers that share a buffer and have one of their own each.
struct Pair {
    machine: Machine,
    workers: [Target; 2],
    sums: Vec<String>,
}

impl Pair {
    fn new(fault: Option<Fault<'_>>) -> Result<Self> {
        let machine = Machine::stand_in()?;
        let start = |name: &str, process: usize| -> Result<Target> {
            let mut worker = machine.worker(name).preload().set("FAKECUDA_INDEX", process.to_string());
            match fault {
                Some((calls, place, effect)) if calls == Calls::Driver || place.process == process => {
                    let (variable, value) = calls.fault(place, effect);
                    worker = worker.set(variable, value);
                }
                Some(_) => {}
                None => worker = worker.set(Calls::FILE_TRACE, machine.path(&trace(process))),
            }
            let worker = worker.start()?;
            for line in ["listen", "begin 0", "new own 2M device:0"] {
                worker.ok(line)?;
            }
            worker.ok(&format!("fill own 0 2M {}", 5 + process))?;
            Ok(worker)
        };
        let workers = [start("a", 1)?, start("b", 2)?];
        let [a, b] = &workers;
        let lines =
            ["new shared 4M device:0 fd", "fill shared 0 4M 3", "export shared shared", "send shared b"];
        for line in lines {
            a.ok(line)?;
        }
        for line in ["receive shared", "import shared shared", "show shared 4M", "close shared"] {
            b.ok(line)?;
        }
        let mut pair = Self { machine, workers, sums: Vec::new() };
        pair.sums = pair.look()?;
        Ok(pair)
    }

    fn pids(&self) -> Vec<i32> {
        self.workers.iter().map(Target::pid).collect()
    }

    fn suspend(&self) -> Result<Outcome> {
        let tool = self.machine.tool().option("--store").argument(self.machine.path("store"));
        tool.option("--ckpt-dir").argument(self.machine.path("ckpt")).verb("suspend", &self.pids())
    }

    fn resume(&self) -> Result<Outcome> {
        self.machine.resume(&self.pids())
    }

    fn look(&self) -> Result<Vec<String>> {
        let both = self.workers.iter().flat_map(|worker| BUFFERS.map(|buffer| (worker, buffer)));
        both.map(|(worker, buffer)| worker.ok(&format!("sum {buffer} 0 2M"))).collect()
    }

    fn is_as_it_was(&self) -> Result<()> {
        ensure!(self.look()? == self.sums, "contents changed");
        let [a, b] = &self.workers;
        a.ok("add shared 0 4M 1")?;
        ensure!(a.ok("sum shared 0 4M")? == b.ok("sum shared 0 4M")?, "not one memory any more");
        a.ok(&format!("add shared 0 4M {}", u32::MAX))?;
        for pid in self.pids() {
            let status = self.machine.status(pid)?;
            ensure!(status["phase"] == "running", "{status}");
        }
        Ok(())
    }

    fn cycles_once_more(&self) -> Result<()> {
        self.suspend()?.done().context("a later suspend")?;
        self.resume()?.done().context("a later resume")?;
        self.is_as_it_was().context("after a later cycle")
    }

    /// The calls of a process so far.
    fn log(&self, calls: Calls, process: usize) -> Result<Vec<String>> {
        calls.so_far(&self.machine, self.pids()[process - 1], &trace(process))
    }
}

fn trace(process: usize) -> String {
    format!("logs/files-{process}")
}

/// Where a suspend makes such calls, and where a resume does.
fn all_places(calls: Calls) -> Result<[Vec<Place>; 2]> {
    let pair = Pair::new(None)?;
    let lengths =
        || -> Result<Vec<usize>> { (1..=2).map(|process| Ok(pair.log(calls, process)?.len())).collect() };
    let start = lengths()?;
    pair.suspend()?.done()?;
    let middle = lengths()?;
    pair.resume()?.done()?;
    let [mut suspending, mut resuming] = [Vec::new(), Vec::new()];
    for process in 1..=2 {
        let log = pair.log(calls, process)?;
        let names = || log.iter().map(String::as_str);
        let half = middle[process - 1];
        suspending.extend(Place::among(names().take(half), start[process - 1], process));
        resuming.extend(Place::among(names(), half, process));
    }
    Place::without_most_questions(&mut suspending);
    Place::without_most_questions(&mut resuming);
    Ok([suspending, resuming])
}

fn each(
    calls: Calls,
    places: &[Place],
    effect: &'static str,
    check: impl Fn(&Pair, &Place) -> Result<bool> + Sync,
) -> Result<()> {
    ensure!(places.len() > 12, "only {} places: {places:?}", places.len());
    let bitten = at_each(places, |place| {
        let pair = Pair::new(Some((calls, place, effect))).context(effect)?;
        check(&pair, place).context(effect)
    })?;
    println!("{bitten} of {} faults of {calls:?} calls made a command fail", places.len());
    ensure!(bitten > 0, "no fault made a command fail");
    Ok(())
}

/// A suspend that fails is undone by itself; one that gets over the fault is whole.
fn undone_or_whole(pair: &Pair, _: &Place) -> Result<bool> {
    Ok(tried(pair)?.code != 0)
}

fn tried(pair: &Pair) -> Result<Outcome> {
    let suspend = pair.suspend()?;
    match suspend.code {
        0 => drop(pair.resume()?.done().context("the resume")?),
        1 => {}
        code => anyhow::bail!("exit status {code}: {}", suspend.text()),
    }
    pair.is_as_it_was().with_context(|| suspend.text())?;
    pair.cycles_once_more()?;
    Ok(suspend)
}

/// A resume that fails says of which process, and the next one makes it good.
fn made_good(pair: &Pair, place: &Place) -> Result<bool> {
    pair.suspend()?.done()?;
    let resume = pair.resume()?;
    if resume.code != 0 {
        ensure!(resume.code == 3, "exit status {}: {}", resume.code, resume.text());
        let pid = pair.pids()[place.process - 1].to_string();
        ensure!(resume.text().contains(&pid), "it names no process: {}", resume.text());
        pair.resume()?.done().with_context(|| resume.text())?;
    }
    pair.is_as_it_was()?;
    pair.cycles_once_more()?;
    Ok(resume.code != 0)
}

#[test]
fn a_failing_driver_call_in_a_suspend_to_a_store_is_undone() -> Result<()> {
    let [suspending, _] = all_places(Calls::Driver)?;
    each(Calls::Driver, &suspending, "oom", undone_or_whole)
}

#[test]
fn a_failing_driver_call_in_a_resume_from_a_store_is_made_good() -> Result<()> {
    let [_, resuming] = all_places(Calls::Driver)?;
    each(Calls::Driver, &resuming, "oom", made_good)
}

#[test]
fn a_failing_call_on_files_in_a_suspend_is_undone() -> Result<()> {
    let [suspending, _] = all_places(Calls::File)?;
    each(Calls::File, &suspending, "EIO", undone_or_whole)
}

/// The calls that a full disk or a quota makes fail, with what is said then, and where.
#[test]
fn no_room_for_any_call_on_files_in_a_suspend_is_told_and_undone() -> Result<()> {
    let [mut suspending, _] = all_places(Calls::File)?;
    let writing = ["open", "write", "sync", "mkdir", "rename", "link", "syncdir"];
    suspending.retain(|place| writing.contains(&&*place.call));
    for (error, words) in [("ENOSPC", "No space left"), ("EDQUOT", "quota exceeded")] {
        each(Calls::File, &suspending, error, |pair, _| {
            let suspend = tried(pair)?;
            let (failed, text) = (suspend.code != 0, suspend.text());
            // Store and checkpoint are made in there.
            let place = pair.machine.path("store").parent().context("a folder")?.display().to_string();
            let is_told = text.contains(words) && text.contains(&place);
            ensure!(!failed || is_told, "{text}");
            Ok(failed)
        })?;
    }
    Ok(())
}

#[test]
fn a_failing_call_on_files_in_a_resume_is_made_good() -> Result<()> {
    let [_, resuming] = all_places(Calls::File)?;
    each(Calls::File, &resuming, "EIO", made_good)
}
