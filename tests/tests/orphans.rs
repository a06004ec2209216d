//! Memory whose exporter is gone: what the descriptor alone keeps is imported, suspended, undone and brought back as one memory,
//! and nothing of it stays on the GPU meanwhile. (What programs see of it is in the scenarios.)

use anyhow::{Context, Result, ensure};
use integration::threads::{Thread, signal};
use integration::{Machine, Place, Target, at_each};

/// The bytes of the memory that is handed out.
const SIZE: u64 = 4 << 20;
/// What a worker has besides.
const OWN: u64 = 2 << 20;

/// Two workers that hold the descriptor of an exporter, which may be gone.
struct Heirs {
    machine: Machine,
    exporter: Target,
    workers: [Target; 2],
    sum: String,
}

impl Heirs {
    /// Nobody has imported.
    fn new(fault: &str) -> Result<Self> {
        let machine = Machine::stand_in()?;
        let start = |name: &str, index: &str| -> Result<Target> {
            let worker = machine.worker(name).preload().set("FAKECUDA_INDEX", index);
            let worker = worker.set("FAKECUDA_FAULTS", fault).start()?;
            all(&worker, &["listen", "begin 0"])?;
            Ok(worker)
        };
        let (exporter, b, c) = (start("a", "3")?, start("b", "1")?, start("c", "2")?);
        all(&exporter, &["new x 4M device:0 fd", "fill x 0 4M 90", "export fd x", "send fd b", "send fd c"])?;
        let sum = exporter.ok("sum x 0 4M")?;
        let heirs = Self { machine, exporter, workers: [b, c], sum };
        for worker in &heirs.workers {
            worker.ok("receive fd")?;
        }
        Ok(heirs)
    }

    /// The exporter was killed, and then both have imported.
    fn orphaned(fault: &str) -> Result<Self> {
        let heirs = Self::new(fault)?;
        heirs.exporter.kill()?;
        for worker in &heirs.workers {
            all(worker, &["import x fd", "show x 4M"])?;
        }
        Ok(heirs)
    }

    fn pids(&self) -> [i32; 2] {
        let [b, c] = &self.workers;
        [b.pid(), c.pid()]
    }

    /// Both see the bytes, and what the other writes.
    fn share_one_memory(&self) -> Result<()> {
        let [b, c] = &self.workers;
        for (writer, reader) in [(b, c), (c, b)] {
            ensure!(reader.ok("sum x 0 4M")? == self.sum, "other bytes than the exporter's");
            writer.ok("add x 0 4M 1")?;
            let (written, read) = (writer.ok("sum x 0 4M")?, reader.ok("sum x 0 4M")?);
            ensure!(written == read && read != self.sum, "x is not one memory any more");
            writer.ok(&format!("add x 0 4M {}", u32::MAX))?;
        }
        Ok(())
    }

    /// What of the GPU is in use, by whomever.
    fn uses(&self, bytes: u64) -> Result<()> {
        let used = self.machine.usage()?.device(0);
        ensure!(used == bytes, "{used} bytes of the card are in use, not {bytes}");
        Ok(())
    }

    fn cycle(&self) -> Result<()> {
        self.machine.suspend(&self.pids())?.done()?;
        self.machine.resume(&self.pids())?.done().map(drop)
    }
}

fn all(worker: &Target, lines: &[&str]) -> Result<()> {
    lines.iter().try_for_each(|line| worker.ok(line).map(drop))
}

#[test]
fn nothing_stays_on_the_gpu_while_those_are_suspended_who_have_imported() -> Result<()> {
    let heirs = Heirs::new("")?;
    heirs.exporter.kill()?;
    let [b, c] = &heirs.workers;
    all(b, &["import x fd", "show x 4M"])?;
    heirs.uses(2 * OWN + SIZE)?;
    for _ in 0..2 {
        // The other has the descriptor still, and the memory in it.
        heirs.machine.suspend(&[b.pid()])?.done()?;
        heirs.uses(OWN)?;
        heirs.machine.resume(&[b.pid()])?.done()?;
    }
    all(c, &["import x fd", "show x 4M"])?;
    heirs.share_one_memory()?;
    heirs.machine.suspend(&heirs.pids())?.done()?;
    heirs.uses(0)?;
    heirs.machine.resume(&heirs.pids())?.done()?;
    heirs.share_one_memory()?;
    for worker in &heirs.workers {
        all(worker, &["drop x", "close fd"])?;
    }
    heirs.uses(2 * OWN)
}

/// Nobody can take it off the GPU; that is said, and its bytes are there afterwards.
#[test]
fn what_nobody_has_imported_stays_and_is_told() -> Result<()> {
    let heirs = Heirs::new("")?;
    let [b, c] = &heirs.workers;
    let check = |criu: bool| {
        let tool = heirs.machine.tool();
        let tool = if criu { tool.option("--criu") } else { tool };
        tool.verb("check", &heirs.pids())
    };
    let told = "bytes that process";
    ensure!(!check(false)?.done()?.text().contains(told), "its exporter is there");
    heirs.exporter.kill()?;
    let checked = check(false)?.done()?;
    for pid in heirs.pids() {
        ensure!(checked.text().contains(&format!("process {pid} holds descriptor")), "{}", checked.text());
    }
    check(true)?.exits(4)?;
    heirs.machine.suspend(&heirs.pids())?.done()?;
    heirs.uses(SIZE)?;
    heirs.machine.resume(&heirs.pids())?.done()?;
    all(b, &["import x fd", "show x 4M"])?;
    ensure!(!check(false)?.done()?.text().contains(told), "it was imported");
    check(true)?.done()?;
    all(c, &["import x fd", "show x 4M"])?;
    heirs.share_one_memory()?;
    heirs.cycle()?;
    // What was suspended without its exporter ends with those who have it, and CRIU would stumble over the descriptor.
    for worker in &heirs.workers {
        worker.ok("drop x")?;
    }
    b.refused("import x fd", 400)?;
    ensure!(!check(false)?.done()?.text().contains(told), "it keeps nothing");
    ensure!(check(true)?.exits(4)?.text().contains(told), "it is in the way of CRIU");
    all(b, &["close fd"])?;
    all(c, &["close fd"])?;
    check(true)?.done()?;
    heirs.machine.take_violations()?;
    Ok(())
}

/// The descriptor keeps the memory across cycles of its exporter too: it leads to what was made again.
#[test]
fn an_exporter_may_end_after_it_was_suspended_and_resumed() -> Result<()> {
    let heirs = Heirs::new("")?;
    for _ in 0..3 {
        heirs.machine.suspend(&[heirs.exporter.pid()])?.done()?;
        heirs.uses(2 * OWN)?;
        heirs.machine.resume(&[heirs.exporter.pid()])?.done()?;
    }
    heirs.exporter.kill()?;
    for worker in &heirs.workers {
        all(worker, &["import x fd", "show x 4M"])?;
    }
    heirs.share_one_memory()?;
    heirs.cycle()?;
    heirs.share_one_memory()
}

/// An importer that has seen the exporter's memory made again, and then its end.
#[test]
fn what_was_imported_before_a_cycle_is_let_go_of_after_the_exporters_end() -> Result<()> {
    let heirs = Heirs::new("")?;
    let [b, c] = &heirs.workers;
    all(b, &["import x fd", "show x 4M"])?;
    let three = [heirs.exporter.pid(), b.pid(), c.pid()];
    heirs.machine.suspend(&three)?.done()?;
    heirs.machine.resume(&three)?.done()?;
    heirs.exporter.kill()?;
    heirs.machine.suspend(&[b.pid()])?.done()?;
    heirs.uses(OWN)?;
    heirs.machine.resume(&[b.pid()])?.done()?;
    all(c, &["import x fd", "show x 4M"])?;
    heirs.share_one_memory()
}

/// Where a suspend of these calls the driver, and where a resume does.
fn places(heirs: &Heirs, targets: &[&Target]) -> Result<[Vec<Place>; 2]> {
    let pids: Vec<i32> = targets.iter().map(|target| target.pid()).collect();
    let lengths =
        || -> Result<Vec<usize>> { pids.iter().map(|pid| Ok(heirs.machine.calls(*pid)?.len())).collect() };
    let start = lengths()?;
    heirs.machine.suspend(&pids)?.done()?;
    let middle = lengths()?;
    heirs.machine.resume(&pids)?.done()?;
    let mut found = [Vec::new(), Vec::new()];
    for ((target, start), middle) in targets.iter().zip(start).zip(middle) {
        let index = match target.name() {
            "b" => 1,
            "c" => 2,
            _ => 3,
        };
        let log = heirs.machine.calls(target.pid())?;
        let about_memory = |place: &Place| place.call.starts_with("cuMem");
        let suspending = Place::behind(log.get(..middle).context("a log")?, start, index);
        found[0].extend(suspending.into_iter().filter(about_memory));
        found[1].extend(Place::behind(&log, middle, index).into_iter().filter(about_memory));
    }
    Ok(found)
}

/// A suspend that failed has undone everything and names the call; whatever is suspended comes back, at the second try at the
/// latest. Whether any command failed comes back.
fn gets_through(machine: &Machine, pids: &[i32], place: &Place) -> Result<bool> {
    let suspend = machine.suspend(pids)?;
    if suspend.code == 1 {
        ensure!(suspend.text().contains(&place.call), "it failed, and not for this: {}", suspend.text());
        return Ok(true);
    }
    ensure!([0, 3].contains(&suspend.code), "exit status {}: {}", suspend.code, suspend.text());
    let resume = machine.resume(pids)?;
    if resume.code != 0 {
        ensure!(resume.code == 3, "exit status {}: {}", resume.code, resume.text());
        machine.resume(pids)?.done().with_context(|| resume.text())?;
    }
    Ok(suspend.code != 0 || resume.code != 0)
}

#[test]
fn a_fault_at_any_call_leaves_an_orphan_one_memory() -> Result<()> {
    let model = Heirs::orphaned("")?;
    let [b, c] = &model.workers;
    let places = places(&model, &[b, c])?.concat();
    for call in
        ["cuMemRelease", "cuMemCreate", "cuMemImportFromShareableHandle", "cuMemExportToShareableHandle"]
    {
        ensure!(places.iter().any(|place| place.call == call), "{call} is never called: {places:?}");
    }
    let bitten = at_each(&places, |place| {
        let heirs = Heirs::orphaned(&place.fault("error(999)"))?;
        let bit = gets_through(&heirs.machine, &heirs.pids(), place)?;
        heirs.share_one_memory()?;
        heirs.cycle()?;
        heirs.share_one_memory()?;
        Ok(bit)
    })?;
    ensure!(bitten > 0, "no fault made a command fail");
    Ok(())
}

/// After whatever went wrong its descriptor keeps the memory without it.
#[test]
fn a_fault_at_any_call_of_an_exporter_leaves_its_descriptor_good() -> Result<()> {
    let model = Heirs::new("")?;
    let places = places(&model, &[&model.exporter])?.concat();
    for call in ["cuMemRelease", "cuMemCreate", "cuMemExportToShareableHandle"] {
        ensure!(places.iter().any(|place| place.call == call), "{call} is never called: {places:?}");
    }
    let bitten = at_each(&places, |place| {
        let heirs = Heirs::new(&place.fault("error(999)"))?;
        let bit = gets_through(&heirs.machine, &[heirs.exporter.pid()], place)?;
        ensure!(heirs.exporter.ok("sum x 0 4M")? == heirs.sum, "other bytes");
        heirs.exporter.kill()?;
        for worker in &heirs.workers {
            all(worker, &["import x fd", "show x 4M"])?;
        }
        heirs.share_one_memory()?;
        Ok(bit)
    })?;
    ensure!(bitten > 0, "no fault made a command fail");
    Ok(())
}

/// Lets a process have so few descriptors that what has been exported is all that outlives it.
fn needs_its_descriptors(target: &Target) -> Result<()> {
    let soft = 60;
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: soft };
    // SAFETY: a limit to read, and none to write.
    let result =
        unsafe { libc::prlimit(target.pid(), libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut()) };
    ensure!(result == 0, "prlimit: {}", std::io::Error::last_os_error());
    Ok(())
}

/// Such a program is not kept from exporting; its descriptors are good for as long as it, or an importer, has the memory.
#[test]
fn a_program_that_needs_its_descriptors_hands_out_some_that_end_with_it() -> Result<()> {
    let heirs = Heirs::new("")?;
    needs_its_descriptors(&heirs.exporter)?;
    let [b, c] = &heirs.workers;
    all(&heirs.exporter, &["new y 4M device:0 fd", "fill y 0 4M 91", "export y y", "send y b", "send y c"])?;
    for worker in [b, c] {
        all(worker, &["receive y", "import y y", "show y 4M", "drop y"])?;
    }
    let sum = heirs.exporter.ok("sum y 0 4M")?;
    all(c, &["import y y", "show y 4M"])?;
    let three = [heirs.exporter.pid(), b.pid(), c.pid()];
    heirs.machine.suspend(&three)?.done()?;
    heirs.machine.resume(&three)?.done()?;
    ensure!(c.ok("sum y 0 4M")? == sum, "other bytes");
    heirs.exporter.kill()?;
    all(b, &["import y y", "show y 4M", "drop y"])?;
    c.ok("drop y")?;
    b.refused("import late y", 400)?;
    ensure!(b.log().contains("no process here has allocation"), "{}", b.log());
    // Whoever holds such a descriptor is none the worse.
    heirs.cycle()?;
    b.refused("import late y", 400)?;
    heirs.machine.take_violations()?;
    Ok(())
}

/// Everybody who listens is asked for memory whose exporter is gone, also those that have nothing to do with it.
#[test]
fn an_import_that_nobody_can_serve_waits_for_no_suspended_and_for_no_stopped_process() -> Result<()> {
    let heirs = Heirs::new("")?;
    needs_its_descriptors(&heirs.exporter)?;
    let [importer, suspended] = &heirs.workers;
    all(&heirs.exporter, &["new y 4M device:0 fd", "export y y", "send y b"])?;
    importer.ok("receive y")?;
    heirs.exporter.kill()?;
    all(suspended, &["new own 4M device:0 fd", "fill own 0 4M 3"])?;
    let sum = suspended.ok("sum own 0 4M")?;
    heirs.machine.suspend(&[suspended.pid()])?.done()?;
    importer.refused("import y y", 400)?;
    let waits = format!("process {} has not handed out", suspended.pid());
    ensure!(!importer.log().contains(&waits), "{}", importer.log());
    let stopped = heirs.machine.worker("stopped").preload().start()?;
    stopped.ok("begin 0")?;
    signal(stopped.pid(), libc::SIGSTOP)?;
    // The signal has come before all threads have heard of it.
    Thread::all_until(stopped.pid(), |threads| threads.iter().all(|thread| thread.state == 'T'))?;
    importer.refused("import y y", 400)?;
    // Which of several is named is left open: those of other tests are asked as well.
    ensure!(importer.log().contains("which does not answer"), "{}", importer.log());
    signal(stopped.pid(), libc::SIGCONT)?;
    heirs.machine.resume(&[suspended.pid()])?.done()?;
    ensure!(suspended.ok("sum own 0 4M")? == sum, "other bytes");
    heirs.machine.take_violations()?;
    Ok(())
}
