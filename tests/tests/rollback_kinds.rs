//! A fault at every driver call that a suspend and a resume make for memory of `cuMemAlloc`, what was opened of it by IPC handles, memory of
//! the host, and a second device with peer access: afterwards everything is as it was at the start, or the next `resume` makes
//! it so. (`rollback.rs` does the same for memory of `cuMemCreate` and for the calls of the command, `multicast/faults.rs` for
//! multicast objects, `reregister.rs` for registered memory.)
//!
//! The places are never listed by hand: they come from the call logs of a run without faults.

use anyhow::{Context, Result, ensure};
use integration::{Machine, Place, Target, at_each};

/// What both use, and how much of it is looked at.
const SHARED: [(&str, &str); 3] = [("large", "3M"), ("small", "4096"), ("numa", "2M")];

/// An owner with memory of all kinds on two devices, and a user of what can be shared of it.
struct Pair {
    machine: Machine,
    owner: Target,
    user: Target,
    sums: Vec<String>,
}

fn pair(fault: &str) -> Result<Pair> {
    let machine = Machine::stand_in()?;
    let start = |name: &str, index: &str| -> Result<Target> {
        let worker = machine.worker(name).preload().set("FAKECUDA_INDEX", index);
        let worker = worker.set("FAKECUDA_FAULTS", fault).start()?;
        all(&worker, &["listen", "begin 0", "malloc own 64K", "fill own 0 64K 5"])?;
        Ok(worker)
    };
    let (owner, user) = (start("owner", "1")?, start("user", "2")?);
    all(&owner, &["malloc large 3M", "malloc small 4096", "new numa 2M numa:0 fd"])?;
    for (name, size) in SHARED {
        owner.ok(&format!("fill {name} 0 {size} 7"))?;
    }
    all(&owner, &["begin 1", "malloc far 3M", "malloc far-small 4096", "peer on 0"])?;
    all(&owner, &["fill far 0 3M 8", "fill far-small 0 4096 9", "context 0", "peer on 1"])?;
    for name in ["large", "small"] {
        let handle = owner.ok(&format!("ipc-get {name} 0"))?;
        user.ok(&format!("ipc-open {name} 4096 {handle}"))?;
    }
    all(&owner, &["export fd numa", "send fd user"])?;
    all(&user, &["receive fd", "import numa fd", "show numa 2M", "close fd"])?;
    let mut pair = Pair { machine, owner, user, sums: Vec::new() };
    pair.sums = pair.look()?;
    Ok(pair)
}

fn all(worker: &Target, lines: &[&str]) -> Result<()> {
    lines.iter().try_for_each(|line| worker.ok(line).map(drop))
}

impl Pair {
    fn pids(&self) -> [i32; 2] {
        [self.owner.pid(), self.user.pid()]
    }

    fn look(&self) -> Result<Vec<String>> {
        let mut sums = Vec::new();
        for worker in [&self.owner, &self.user] {
            sums.push(worker.ok("sum own 0 64K")?);
            for (name, size) in SHARED {
                sums.push(worker.ok(&format!("sum {name} 0 {size}"))?);
            }
        }
        self.owner.ok("context 1")?;
        sums.push(self.owner.ok("sum far 0 3M")?);
        sums.push(self.owner.ok("sum far-small 0 4096")?);
        self.owner.ok("context 0")?;
        Ok(sums)
    }

    fn is_as_it_was(&self) -> Result<()> {
        let sums = self.look()?;
        ensure!(sums == self.sums, "contents changed: {sums:?}, before: {:?}", self.sums);
        for (name, size) in SHARED {
            for (writer, reader) in [(&self.owner, &self.user), (&self.user, &self.owner)] {
                writer.ok(&format!("add {name} 0 {size} 1"))?;
                let sum = format!("sum {name} 0 {size}");
                ensure!(writer.ok(&sum)? == reader.ok(&sum)?, "{name} is not one memory any more");
                writer.ok(&format!("add {name} 0 {size} {}", u32::MAX))?;
            }
        }
        // A kernel of one device on memory of the other, and a copy between them.
        all(&self.owner, &["add far 0 3M 1", &format!("add far 0 3M {}", u32::MAX)])?;
        all(&self.owner, &["move own 0 far-small 0 4096", "move own 0 own 4096 4096"])?;
        self.owner.refused("peer on 1", 704)?;
        for pid in self.pids() {
            let status = self.machine.status(pid)?;
            ensure!(status.get("phase").is_some_and(|phase| phase == "running"), "{status}");
        }
        Ok(())
    }

    /// The start again, with nothing lost of what the next cycle needs.
    fn cycles_once_more(&self) -> Result<()> {
        self.machine.suspend(&self.pids())?.done().context("a later suspend")?;
        self.machine.resume(&self.pids())?.done().context("a later resume")?;
        self.is_as_it_was().context("after a later cycle")
    }
}

/// Where a suspend calls the driver, and where a resume does.
fn places() -> Result<(Vec<Place>, Vec<Place>)> {
    let pair = pair("")?;
    let lengths = || -> Result<Vec<usize>> {
        pair.pids().iter().map(|pid| Ok(pair.machine.calls(*pid)?.len())).collect()
    };
    let start = lengths()?;
    pair.machine.suspend(&pair.pids())?.done()?;
    let middle = lengths()?;
    pair.machine.resume(&pair.pids())?.done()?;
    let (mut suspending, mut resuming) = (Vec::new(), Vec::new());
    for (index, (pid, (start, middle))) in
        pair.pids().into_iter().zip(start.into_iter().zip(middle)).enumerate()
    {
        let log = pair.machine.calls(pid)?;
        suspending.extend(Place::behind(log.get(..middle).context("a log")?, start, index + 1));
        resuming.extend(Place::behind(&log, middle, index + 1));
    }
    Ok((suspending, resuming))
}

/// The calls about memory and contexts; those that ask for completion are as many as the moment wants, and failed in `rollback.rs`.
fn about_memory(place: &Place) -> bool {
    place.call.starts_with("cuMem") || place.call.starts_with("cuCtxP") || place.call.starts_with("cuIpc")
}

fn each(
    places: Vec<Place>,
    effect: &str,
    check: impl Fn(&Pair, &Place) -> Result<bool> + Sync,
) -> Result<()> {
    let places: Vec<Place> = places.into_iter().filter(about_memory).collect();
    ensure!(places.len() > 20, "only {} places: {places:?}", places.len());
    let bitten = at_each(&places, |place| check(&pair(&place.fault(effect))?, place))?;
    ensure!(bitten > 0, "no fault made a command fail");
    Ok(())
}

/// A suspend that meets a fault either undid everything, or carried on without what failed; or it says what to do, and that
/// then works.
fn recovers(pair: &Pair, place: &Place) -> Result<bool> {
    let suspend = pair.machine.suspend(&pair.pids())?;
    match suspend.code {
        1 => {
            ensure!(
                suspend.text().contains(&place.call),
                "it failed, and for another reason: {}",
                suspend.text()
            );
            pair.is_as_it_was().with_context(|| suspend.text())?;
        }
        0 | 3 => {
            let resume = pair.machine.resume(&pair.pids())?;
            if resume.code != 0 {
                pair.machine.resume(&pair.pids())?.done().with_context(|| resume.text())?;
            }
            pair.is_as_it_was().with_context(|| suspend.text())?;
        }
        other => anyhow::bail!("exit status {other}: {}", suspend.text()),
    }
    pair.cycles_once_more()?;
    Ok(suspend.code != 0)
}

#[test]
fn a_fault_at_any_call_of_a_suspend_is_undone() -> Result<()> {
    let (suspending, _) = places()?;
    for call in ["cuMemUnmap", "cuMemRelease", "cuMemcpyDtoHAsync_v2", "cuCtxPushCurrent_v2"] {
        ensure!(suspending.iter().any(|place| place.call == call), "{call} is never called: {suspending:?}");
    }
    each(suspending, "error(999)", recovers)
}

#[test]
fn a_call_that_says_it_failed_but_did_its_work_is_undone_all_the_same() -> Result<()> {
    let (suspending, _) = places()?;
    // A release is left out: its value may mean another allocation by then, so nobody may try it a second time.
    let repeatable = |place: &Place| place.call.starts_with("cuMem") && place.call != "cuMemRelease";
    each(suspending.into_iter().filter(repeatable).collect(), "late(999)", recovers)
}

#[test]
fn a_fault_at_any_call_of_a_resume_is_made_good_by_the_next() -> Result<()> {
    let (_, resuming) = places()?;
    for call in ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemImportFromShareableHandle"] {
        ensure!(resuming.iter().any(|place| place.call == call), "{call} is never called: {resuming:?}");
    }
    each(resuming, "oom", |pair, place| {
        pair.machine.suspend(&pair.pids())?.done()?;
        let resume = pair.machine.resume(&pair.pids())?;
        if resume.code != 0 {
            ensure!(resume.code == 3, "exit status {}: {}", resume.code, resume.text());
            let pid = pair.pids().get(place.process - 1).copied().context("two")?;
            ensure!(resume.text().contains(&pid.to_string()), "it names no process: {}", resume.text());
            pair.machine.resume(&pair.pids())?.done().with_context(|| resume.text())?;
        }
        pair.is_as_it_was()?;
        pair.cycles_once_more()?;
        Ok(resume.code != 0)
    })
}
