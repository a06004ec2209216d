//! A fault at every driver call that a suspend or a resume makes, in every process: afterwards everything is as it was at the
//! start, or the next `resume` makes it so.
//!
//! The places are never listed by hand: they come from the call logs of a run without faults.

use anyhow::{Context, Result, ensure};
use integration::{Machine, Outcome, Place, Target, at_each};

/// Two workers that share two buffers, each other's, and have one of their own.
struct Pair {
    machine: Machine,
    workers: [Target; 2],
    sums: Vec<String>,
    /// Where the fault is put, and what it does, if any.
    fault: Option<(Place, &'static str)>,
}

const BUFFERS: [&str; 3] = ["left", "right", "own"];

fn pair(fault: Option<(Place, &'static str)>) -> Result<Pair> {
    let machine = Machine::stand_in()?;
    // The stand-in of a worker leaves calls about other processes alone.
    let faults = fault.as_ref().map(|(place, effect)| place.fault(effect)).unwrap_or_default();
    let start = |name: &str, index: &str| -> Result<Target> {
        let worker = machine.worker(name).preload().set("FAKECUDA_INDEX", index);
        let worker = worker.set("FAKECUDA_FAULTS", &faults).start()?;
        for line in ["listen", "begin 0", "new own 2M device:0", "fill own 0 2M 5"] {
            worker.ok(line)?;
        }
        Ok(worker)
    };
    let workers = [start("a", "1")?, start("b", "2")?];
    let [a, b] = &workers;
    for (owner, other, name, to) in [(a, b, "left", "b"), (b, a, "right", "a")] {
        owner.ok(&format!("new {name} 4M device:0 fd"))?;
        owner.ok(&format!("fill {name} 0 4M 3"))?;
        owner.ok(&format!("export {name} {name}"))?;
        owner.ok(&format!("send {name} {to}"))?;
        for line in ["receive X", "import X X", "show X 4M", "close X"] {
            other.ok(&line.replace('X', name))?;
        }
    }
    let mut pair = Pair { machine, workers, sums: Vec::new(), fault };
    pair.sums = pair.look()?;
    Ok(pair)
}

impl Pair {
    fn pids(&self) -> Vec<i32> {
        self.workers.iter().map(Target::pid).collect()
    }

    fn suspend(&self) -> Result<Outcome> {
        self.machine.suspend(&self.pids())
    }

    fn resume(&self) -> Result<Outcome> {
        self.machine.resume(&self.pids())
    }

    /// The same with the fault, if that is in a call that the command makes: a process counts its own calls, and each
    /// command is a process of its own.
    fn faulty(&self, verb: &str) -> Result<Outcome> {
        let tool = self.machine.tool();
        match &self.fault {
            Some((place, effect)) => {
                tool.set("FAKECUDA_FAULTS", place.fault(effect)).verb(verb, &self.pids())
            }
            None => tool.verb(verb, &self.pids()),
        }
    }

    /// What each sees in each buffer.
    fn look(&self) -> Result<Vec<String>> {
        let mut sums = Vec::new();
        for worker in &self.workers {
            for buffer in BUFFERS {
                sums.push(worker.ok(&format!("sum {buffer} 0 2M"))?);
            }
        }
        Ok(sums)
    }

    /// Contents, sharing and phases are those of the start.
    fn is_as_it_was(&self) -> Result<()> {
        ensure!(self.look()? == self.sums, "contents changed");
        let [a, b] = &self.workers;
        for (writer, reader, buffer) in [(a, b, "left"), (b, a, "left"), (a, b, "right"), (b, a, "right")] {
            writer.ok(&format!("add {buffer} 0 2M 1"))?;
            let (written, read) =
                (writer.ok(&format!("sum {buffer} 0 2M"))?, reader.ok(&format!("sum {buffer} 0 2M"))?);
            ensure!(written == read, "{buffer} is not one memory any more");
            writer.ok(&format!("add {buffer} 0 2M {}", u32::MAX))?;
        }
        for pid in self.pids() {
            let status = self.machine.status(pid)?;
            ensure!(status.get("phase").is_some_and(|phase| phase == "running"), "{status}");
        }
        Ok(())
    }

    /// The start again, with nothing lost of what the next cycle needs.
    fn cycles_once_more(&self) -> Result<()> {
        self.suspend()?.done().context("a later suspend")?;
        self.resume()?.done().context("a later resume")?;
        self.is_as_it_was().context("after a later cycle")
    }
}

/// Where a suspend calls the driver, and where a resume does.
fn all_places() -> Result<(Vec<Place>, Vec<Place>)> {
    let pair = pair(None)?;
    let lengths = |pair: &Pair| -> Result<Vec<usize>> {
        pair.pids().iter().map(|pid| Ok(pair.machine.calls(*pid)?.len())).collect()
    };
    let start = lengths(&pair)?;
    let suspend = pair.suspend()?.done()?;
    let middle = lengths(&pair)?;
    let resume = pair.resume()?.done()?;
    let (mut suspending, mut resuming) = (Vec::new(), Vec::new());
    for (index, pid) in pair.pids().into_iter().enumerate() {
        let log = pair.machine.calls(pid)?;
        let (begin, half) = (start.get(index).context("two")?, middle.get(index).context("two")?);
        suspending.extend(Place::behind(log.get(..*half).context("a log")?, *begin, index + 1));
        resuming.extend(Place::behind(&log, *half, index + 1));
    }
    // Calls of the checkpoint API are made by the command, about a process.
    for (tool, found) in [(suspend.pid, &mut suspending), (resume.pid, &mut resuming)] {
        let log = pair.machine.calls(tool)?;
        for call in
            ["Lock", "Checkpoint", "Restore", "Unlock"].map(|call| format!("cuCheckpointProcess{call}"))
        {
            if log.iter().any(|logged| logged.name == call) {
                found.extend([1, 2].map(|process| Place { call: call.clone(), nth: 1, process }));
            }
        }
    }
    Ok((suspending, resuming))
}

fn each(
    mut places: Vec<Place>,
    effect: &'static str,
    check: impl Fn(&Pair, &Place) -> Result<bool> + Sync,
) -> Result<()> {
    Place::without_most_questions(&mut places);
    ensure!(places.len() > 10, "only {} places: {places:?}", places.len());
    let bitten = at_each(&places, |place| check(&pair(Some((place.clone(), effect)))?, place))?;
    ensure!(bitten > 0, "no fault made a command fail");
    Ok(())
}

/// A suspend that meets a fault either undid everything, or carried on without what failed; or it says what to do, and that
/// then works.
fn recovers(pair: &Pair) -> Result<bool> {
    let suspend = pair.faulty("suspend")?;
    match suspend.code {
        1 => pair.is_as_it_was().with_context(|| suspend.text())?,
        0 | 3 => {
            let resume = pair.resume()?;
            if resume.code != 0 {
                pair.resume()?.done().with_context(|| resume.text())?;
            }
            pair.is_as_it_was().with_context(|| suspend.text())?;
        }
        other => anyhow::bail!("exit status {other}: {}", suspend.text()),
    }
    pair.cycles_once_more()?;
    Ok(suspend.code != 0)
}

#[test]
fn a_failing_call_anywhere_in_a_suspend_is_undone() -> Result<()> {
    let (suspending, _) = all_places()?;
    each(suspending, "error(999)", |pair, _| recovers(pair))
}

#[test]
fn a_call_that_says_it_failed_but_did_its_work_is_undone_all_the_same() -> Result<()> {
    let (suspending, _) = all_places()?;
    // A release is left out: its value may mean another allocation by then, so nobody may try it a second time.
    let repeatable =
        |place: &Place| place.call.starts_with("cuMem") && place.call != "cuMemRelease" && place.process == 1;
    each(suspending.into_iter().filter(repeatable).collect(), "late(999)", |pair, _| recovers(pair))
}

#[test]
fn a_failing_call_anywhere_in_a_resume_is_made_good_by_the_next() -> Result<()> {
    let (_, resuming) = all_places()?;
    each(resuming, "oom", |pair, place| {
        pair.suspend()?.done()?;
        let resume = pair.faulty("resume")?;
        if resume.code != 0 {
            ensure!(resume.code == 3, "exit status {}: {}", resume.code, resume.text());
            let pid = pair.pids().get(place.process - 1).copied().context("two")?;
            ensure!(resume.text().contains(&pid.to_string()), "it names no process: {}", resume.text());
            pair.resume()?.done().with_context(|| resume.text())?;
        }
        pair.is_as_it_was()?;
        // A repeated resume has nothing to do and does no harm.
        pair.resume()?.done().context("a resume of what runs")?;
        pair.cycles_once_more()?;
        Ok(resume.code != 0)
    })
}
