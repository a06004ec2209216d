//! Registered host memory with `NVSNAP_GPUSHARE_REREGISTER`: what is ended and made again when, what is left alone, and a
//! fault at every driver call of it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use integration::{Call, Machine, Place, Target, at_each};

const SWITCH: &str = "NVSNAP_GPUSHARE_REREGISTER";
const REGISTER: &str = "cuMemHostRegister_v2";
const UNREGISTER: &str = "cuMemHostUnregister";
const POINTER: &str = "cuMemHostGetDevicePointer_v2";

/// What each worker registers: name, offset, bytes, flags. The first is a file that both map; the last is read-only.
const RANGES: [(&str, u64, &str, u32); 3] =
    [("shared", 0, "1M", 3), ("odd", 100, "5000", 1), ("fixed", 0, "64K", 8)];

/// Two workers that have registered one range of a file, and two ranges each of their own.
struct Pair {
    machine: Machine,
    workers: [Target; 2],
    seen: Vec<String>,
}

fn pair(switch: &str, fault: &str) -> Result<Pair> {
    let machine = Machine::stand_in()?;
    let path = machine.path("shared");
    let start = |name: &str, index: &str| -> Result<Target> {
        let worker = machine.worker(name).preload().set("FAKECUDA_INDEX", index).set(SWITCH, switch);
        let worker = worker.set("FAKECUDA_FAULTS", fault).start()?;
        all(&worker, &["begin 0", "new own 2M device:0", "fill own 0 2M 5"])?;
        all(&worker, &[&format!("pages shared 1M {}", path.display()), "pages odd 64K", "pages fixed 64K"])?;
        worker.ok("cpu-write fixed 0 0badcafe")?;
        for (name, offset, size, flags) in RANGES {
            worker.ok(&format!("register {name} {offset} {size} {flags}"))?;
            worker.ok(&format!("device-pointer d-{name} {name} {offset} {size}"))?;
        }
        all(&worker, &[&format!("cpu-write odd 100 0000000{index}"), "fill d-shared 0 1M 9"])?;
        Ok(worker)
    };
    let workers = [start("a", "1")?, start("b", "2")?];
    let mut pair = Pair { machine, workers, seen: Vec::new() };
    pair.seen = pair.look()?;
    Ok(pair)
}

fn all(worker: &Target, lines: &[&str]) -> Result<()> {
    lines.iter().try_for_each(|line| worker.ok(line).map(drop))
}

impl Pair {
    fn pids(&self) -> Vec<i32> {
        self.workers.iter().map(Target::pid).collect()
    }

    /// What programs see: flags, how far device pointers have moved, bytes as the device and as the processor sees them.
    fn look(&self) -> Result<Vec<String>> {
        let mut seen = Vec::new();
        for worker in &self.workers {
            for (name, offset, size, _) in RANGES {
                let lines = [
                    format!("host-flags {name} {offset}"),
                    format!("device-pointer d-{name} {name} {offset} {size}"),
                    format!("sum d-{name} 0 4096"),
                    format!("cpu-read {name} {offset} 8"),
                ];
                for line in lines {
                    seen.push(worker.ok(&line)?);
                }
                // There is one registration of it, and the driver has it.
                worker.refused(&format!("register {name} {offset} {size} 0"), 712)?;
            }
            seen.push(worker.ok("sum own 0 2M")?);
        }
        Ok(seen)
    }

    fn is_as_it_was(&self) -> Result<()> {
        ensure!(self.look()? == self.seen, "{:?} is now {:?}", self.seen, self.look()?);
        let [a, b] = &self.workers;
        a.ok("add d-shared 0 1M 1")?;
        let sums = [a, b].map(|worker| worker.ok("sum d-shared 0 1M"));
        let [first, second] = sums;
        ensure!(first? == second?, "not one memory any more");
        a.ok(&format!("add d-shared 0 1M {}", u32::MAX))?;
        for pid in self.pids() {
            let status = self.machine.status(pid)?;
            ensure!(status.get("phase").is_some_and(|phase| phase == "running"), "{status}");
        }
        Ok(())
    }

    fn logs(&self) -> Result<Vec<Vec<Call>>> {
        self.pids().into_iter().map(|pid| self.machine.calls(pid)).collect()
    }

    fn cycle(&self) -> Result<()> {
        self.machine.suspend(&self.pids())?.done()?;
        self.machine.resume(&self.pids())?.done()?;
        Ok(())
    }
}

/// Calls of these names behind the first `before`: name, and the address they are about.
fn about(log: &[Call], before: usize, names: &[&str]) -> Vec<(String, String)> {
    let chosen = log.iter().skip(before).filter(|call| names.contains(&call.name.as_str()));
    let address = |call: &Call| call.arguments.split(',').next().unwrap_or_default().trim().to_owned();
    chosen.map(|call| (call.name.clone(), address(call))).collect()
}

#[test]
fn each_registration_is_ended_in_release_and_made_again_in_load_once_per_cycle() -> Result<()> {
    let pair = pair("1", "")?;
    let made: Vec<_> = pair.logs()?.iter().map(|log| about(log, 0, &[REGISTER])).collect();
    for _ in 0..3 {
        let before: Vec<usize> = pair.logs()?.iter().map(Vec::len).collect();
        pair.machine.tool().verb("quiesce", &pair.pids())?.done()?;
        for (log, before) in pair.logs()?.iter().zip(&before) {
            ensure!(about(log, *before, &[REGISTER, UNREGISTER]).is_empty(), "before anything is dropped");
        }
        pair.machine.tool().verb("release", &pair.pids())?.done()?;
        // Before the driver is asked for its checkpoint.
        let between: Vec<usize> = pair.logs()?.iter().map(Vec::len).collect();
        for ((log, before), made) in pair.logs()?.iter().zip(&before).zip(&made) {
            let ended = about(log, *before, &[REGISTER, UNREGISTER]);
            let expected = made.iter().take(RANGES.len()).map(|(_, at)| (UNREGISTER.to_owned(), at.clone()));
            ensure!(ended == expected.collect::<Vec<_>>(), "ended: {ended:?}, made: {made:?}");
        }
        pair.machine.tool().verb("checkpoint", &pair.pids())?.done()?;
        pair.machine.resume(&pair.pids())?.done()?;
        for ((log, between), made) in pair.logs()?.iter().zip(&between).zip(&made) {
            let again = about(log, *between, &[REGISTER, UNREGISTER]);
            ensure!(Some(again.as_slice()) == made.get(..RANGES.len()), "again: {again:?}, made: {made:?}");
        }
        pair.is_as_it_was()?;
    }
    // What the program has ended is over.
    for worker in &pair.workers {
        all(worker, &["unregister shared 0", "unregister odd 100", "unregister fixed 0"])?;
        worker.refused("unregister odd 100", 713)?;
    }
    let before: Vec<usize> = pair.logs()?.iter().map(Vec::len).collect();
    pair.cycle()?;
    for (log, before) in pair.logs()?.iter().zip(&before) {
        ensure!(about(log, *before, &[REGISTER, UNREGISTER]).is_empty());
    }
    pair.workers.iter().try_for_each(|worker| worker.refused("unregister odd 100", 713))
}

#[test]
fn without_the_switch_registrations_are_the_drivers() -> Result<()> {
    let pair = pair("0", "")?;
    let before: Vec<usize> = pair.logs()?.iter().map(Vec::len).collect();
    pair.cycle()?;
    for (log, before) in pair.logs()?.iter().zip(&before) {
        let calls = about(log, *before, &[REGISTER, UNREGISTER, POINTER]);
        ensure!(calls.is_empty(), "{calls:?}");
    }
    pair.is_as_it_was()
}

#[test]
fn a_registration_that_ended_with_its_context_or_lost_its_memory_is_left_alone() -> Result<()> {
    let mut machine = Machine::stand_in()?;
    machine.set("FAKECUDA_DEVICES", "2").set(SWITCH, "1");
    let a = machine.worker("a").preload().start()?;
    all(&a, &["begin 0", "pages kept 64K", "pages own 64K", "pages primary 64K", "pages-apart gone 64K"])?;
    all(&a, &["register kept 0 64K 1", "register gone 0 64K 0", "device-pointer d kept 0 64K"])?;
    // Contexts that come after them have their handles.
    all(&a, &["make-context c 0", "register own 0 64K 3", "destroy-context c", "make-context c 0"])?;
    all(&a, &["begin 1", "register primary 0 64K 3", "reset-device 1", "begin 1", "context 0"])?;
    // The driver holds its pages.
    a.ok("unpages gone")?;
    let before = machine.calls(a.pid())?.len();
    for _ in 0..2 {
        machine.suspend(&[a.pid()])?.done()?;
        machine.resume(&[a.pid()])?.done()?;
        ensure!(a.ok("host-flags kept 0")? == "1" && a.ok("device-pointer d kept 0 64K")? == "0");
    }
    let log = machine.calls(a.pid())?;
    let kept = about(&log, 0, &[REGISTER]).into_iter().next().context("it was registered")?.1;
    let calls = about(&log, before, &[REGISTER, UNREGISTER]);
    let one = [UNREGISTER, REGISTER].map(|call| (call.to_owned(), kept.clone()));
    ensure!(calls == [one.clone(), one].concat(), "{calls:?}");
    a.ok("unregister gone 0").map(drop)
}

/// Where a suspend and a resume call the driver for registrations, told apart.
fn places() -> Result<[Vec<Place>; 2]> {
    let pair = pair("1", "")?;
    let start: Vec<usize> = pair.logs()?.iter().map(Vec::len).collect();
    pair.machine.suspend(&pair.pids())?.done()?;
    let middle: Vec<usize> = pair.logs()?.iter().map(Vec::len).collect();
    pair.machine.resume(&pair.pids())?.done()?;
    let mut found = [Vec::new(), Vec::new()];
    let [suspending, resuming] = &mut found;
    for (((log, start), middle), process) in pair.logs()?.iter().zip(start).zip(middle).zip(1..) {
        suspending.extend(Place::behind(log.get(..middle).context("a log")?, start, process));
        resuming.extend(Place::behind(log, middle, process));
    }
    // Calls of other kinds are failed in `rollback.rs`.
    let chosen = |place: &Place| {
        place.call.starts_with("cuMemHost") && place.call != "cuMemHostAlloc"
            || place.call == "cuCtxPushCurrent_v2"
    };
    for (places, own) in found.iter_mut().zip([UNREGISTER, REGISTER]) {
        places.retain(chosen);
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        places.iter().for_each(|place| *counts.entry(&place.call).or_default() += 1);
        let all = 2 * RANGES.len();
        ensure!(counts.get(own) == Some(&all) && counts.get(POINTER) == Some(&all), "{counts:?}");
        ensure!(counts.get("cuCtxPushCurrent_v2") >= Some(&all), "{counts:?}");
    }
    Ok(found)
}

fn each(places: &[Place], effects: &[&str], check: impl Fn(&str) -> Result<()> + Sync) -> Result<()> {
    let faults: Vec<String> =
        effects.iter().flat_map(|effect| places.iter().map(move |place| place.fault(effect))).collect();
    at_each(&faults, |fault| check(fault).map(|()| false)).map(drop)
}

/// One resume more is enough, and the next cycle works.
fn recovers(pair: &Pair) -> Result<()> {
    pair.machine.resume(&pair.pids())?.done()?;
    pair.is_as_it_was()?;
    pair.cycle().context("a later cycle")?;
    pair.is_as_it_was().context("after a later cycle")
}

#[test]
fn a_fault_at_any_call_that_ends_registrations_leaves_all_as_it_was() -> Result<()> {
    let [suspending, _] = places()?;
    each(&suspending, &["error(999)", "late(999)"], |fault| {
        let pair = pair("1", fault)?;
        let suspend = pair.machine.suspend(&pair.pids())?;
        match suspend.code {
            1 => pair.is_as_it_was().with_context(|| suspend.text())?,
            0 | 3 => {}
            other => anyhow::bail!("exit status {other}: {}", suspend.text()),
        }
        recovers(&pair).with_context(|| suspend.text())
    })
}

#[test]
fn a_fault_at_any_call_that_registers_anew_is_made_good_by_the_next_resume() -> Result<()> {
    let [_, resuming] = places()?;
    each(&resuming, &["oom", "late(999)"], |fault| {
        let pair = pair("1", fault)?;
        pair.machine.suspend(&pair.pids())?.done()?;
        let resume = pair.machine.resume(&pair.pids())?;
        ensure!([0, 3].contains(&resume.code), "exit status {}: {}", resume.code, resume.text());
        if fault.starts_with("cuMemHost") {
            ensure!(resume.code == 3 && resume.text().contains("the registration of"), "{}", resume.text());
        }
        recovers(&pair).with_context(|| resume.text())
    })
}

/// An answer of success without the deed: nothing is registered, or the address is another one.
#[test]
fn a_device_pointer_that_would_be_another_is_an_error_that_names_process_and_range() -> Result<()> {
    let [_, resuming] = places()?;
    let own: Vec<Place> = resuming.into_iter().filter(|place| place.call.starts_with("cuMemHost")).collect();
    ensure!(own.len() == 4 * RANGES.len(), "{own:?}");
    each(&own, &["lost"], |fault| {
        let pair = pair("1", fault)?;
        pair.machine.suspend(&pair.pids())?.done()?;
        let resume = pair.machine.resume(&pair.pids())?.exits(3)?;
        let culprit = fault.split([':', '=']).nth(2).and_then(|process| process.parse::<usize>().ok());
        let pid = culprit.and_then(|process| pair.pids().get(process - 1).copied()).context("a process")?;
        let cause = if fault.starts_with(POINTER) { "would reach it at 0x0" } else { "would not reach it" };
        for part in
            [&format!("process {pid}: load of the registration of"), " bytes of host memory at 0x", cause]
        {
            ensure!(resume.text().contains(part), "no word of {part}: {}", resume.text());
        }
        recovers(&pair).with_context(|| resume.text())
    })
}
