//! What of its memory a process moves when it is suspended: the GPU looks at the bytes first, and zeros stay where
//! they are.

#![allow(clippy::indexing_slicing, reason = "a test ends where what it relies on fails")]

use anyhow::{Context, Result};
use integration::{Machine, Target};

const MIB: u64 = 1 << 20;
/// What is looked at as one.
const GRAIN: u64 = 2 * MIB;
/// The block in which a worker sums lies in a slab of its own.
const SLAB: u64 = 2 * MIB;

/// Bytes that a process has copied from its device, in pieces too large for tables.
fn copied(machine: &Machine, worker: &Target) -> Result<u64> {
    let mut bytes = 0;
    for call in machine.calls(worker.pid())? {
        if call.name == "cuMemcpyDtoHAsync_v2" && call.result == 0 {
            let size = call.arguments.split(", ").nth(2).context("a copy has a size")?;
            let size: u64 = size.parse().with_context(|| format!("{}: {size}", call.arguments))?;
            bytes += if size >= MIB { size } else { 0 };
        }
    }
    Ok(bytes)
}

/// A worker with 64 MiB of which a grain is not zero, a block that nobody has mapped, and what they hold.
fn worker(machine: &Machine, faults: &str) -> Result<(Target, Vec<String>)> {
    let worker = machine.worker("a").preload().set("FAKECUDA_FAULTS", faults).start()?;
    for line in
        ["begin 0", "new wide 64M device:0", "fill wide 0 64M 0", "fill wide 20M 1M 9", "new own 6M device:0"]
    {
        worker.ok(line)?;
    }
    worker.ok("fill own 0 6M 0")?;
    worker.ok("fill own 5M 1M 3")?;
    let sums = look(&worker)?;
    Ok((worker, sums))
}

fn look(worker: &Target) -> Result<Vec<String>> {
    let ranges = ["wide 0 64M", "wide 20M 1M", "own 0 6M", "own 5M 1M"];
    ranges.iter().map(|range| worker.ok(&format!("sum {range}"))).collect()
}

fn count(machine: &Machine, worker: &Target, name: &str) -> Result<usize> {
    Ok(machine.calls(worker.pid())?.iter().filter(|call| call.name == name).count())
}

#[test]
fn zeros_do_not_cross_the_bus_and_nothing_of_the_kernels_stays() -> Result<()> {
    let machine = Machine::stand_in()?;
    let (worker, sums) = worker(&machine, "")?;
    let (used, loaded) = (machine.usage()?, count(&machine, &worker, "cuModuleLoadData")?);
    for cycle in 1..=3 {
        machine.suspend(&[worker.pid()])?.done()?;
        assert_eq!(
            copied(&machine, &worker)?,
            cycle * (2 * GRAIN + SLAB),
            "one grain of each, in cycle {cycle}"
        );
        machine.resume(&[worker.pid()])?.done()?;
        assert_eq!(look(&worker)?, sums, "cycle {cycle}");
        assert_eq!(machine.usage()?, used, "cycle {cycle}");
    }
    assert_eq!(count(&machine, &worker, "cuModuleLoadData")? - loaded, 3, "once in each cycle");
    assert_eq!(count(&machine, &worker, "cuModuleUnload")?, 3);
    Ok(())
}

/// The calls that looking takes, each as a fault: from the load of the kernels to the answer of the last one.
fn places(machine: &Machine, worker: &Target) -> Result<Vec<String>> {
    let calls = machine.calls(worker.pid())?;
    let load = calls.iter().rposition(|call| call.name == "cuModuleLoadData").context("no load")?;
    let launch = calls.iter().rposition(|call| call.name == "cuLaunchKernel").context("no launch")?;
    let wait = calls.iter().skip(launch).position(|call| call.name == "cuStreamSynchronize");
    let end = launch + wait.context("nobody waits for the kernels")?;
    let fault = |at: usize| {
        let name = &calls[at].name;
        let nth = calls[..=at].iter().filter(|call| call.name == *name).count();
        format!("{name}:{nth}:*=oom")
    };
    Ok((load..=end).map(fault).collect())
}

#[test]
fn where_the_gpu_cannot_be_asked_everything_is_copied() -> Result<()> {
    let machine = Machine::stand_in()?;
    let (first, _) = worker(&machine, "")?;
    machine.suspend(&[first.pid()])?.done()?;
    let places = places(&machine, &first)?;
    assert!(places.len() >= 8, "{places:?}");
    for fault in places {
        let machine = Machine::stand_in()?;
        let (worker, sums) = worker(&machine, &fault)?;
        machine.suspend(&[worker.pid()])?.done().context(fault.clone())?;
        // Without a stream of their own, the kernels run in the default one.
        let expected = if fault.starts_with("cuStreamCreate:") { 2 * GRAIN + SLAB } else { 70 * MIB + SLAB };
        assert_eq!(copied(&machine, &worker)?, expected, "{fault}");
        machine.resume(&[worker.pid()])?.done()?;
        assert_eq!(look(&worker)?, sums, "{fault}");
    }
    Ok(())
}

/// The command with a store, on this process.
fn save(machine: &Machine, worker: &Target) -> Result<()> {
    let (store, list) = (machine.path("store"), machine.path("list"));
    let tool = machine.tool().option("--store").argument(&store).option("--ckpt-dir").argument(&list);
    tool.verb("suspend", &[worker.pid()])?.done()?;
    Ok(())
}

#[test]
fn what_the_store_has_does_not_cross_the_bus_again() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = machine.worker("a").preload().start()?;
    for line in ["begin 0", "new wide 200M device:0", "noise wide 0 130M 1", "fill wide 130M 70M 0"] {
        worker.ok(line)?;
    }
    let sum = worker.ok("sum wide 0 200M")?;
    let mut before = 0;
    for expected in [192 * MIB + SLAB, 0, 0] {
        save(&machine, &worker)?;
        let now = copied(&machine, &worker)?;
        assert_eq!(now - before, expected, "130 MiB begin three chunks of 64 MiB");
        before = now;
        machine.resume(&[worker.pid()])?.done()?;
        assert_eq!(worker.ok("sum wide 0 200M")?, sum);
    }
    // The names that the GPU gave are those of the bytes.
    machine.tool().option("store-verify").argument(machine.path("store")).run()?.done()?;
    // A word in the second chunk.
    worker.ok("add wide 100M 4 1")?;
    save(&machine, &worker)?;
    assert_eq!(copied(&machine, &worker)? - before, 64 * MIB);
    machine.resume(&[worker.pid()])?.done()?;
    worker.ok(&format!("add wide 100M 4 {}", u32::MAX))?;
    assert_eq!(worker.ok("sum wide 0 200M")?, sum);
    Ok(())
}

#[test]
fn what_is_kept_does_not_cross_the_bus_again() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = machine.worker("a").preload().start()?;
    for line in ["begin 0", "new wide 200M device:0", "noise wide 0 130M 1", "fill wide 130M 70M 0"] {
        worker.ok(line)?;
    }
    let sum = worker.ok("sum wide 0 200M")?;
    let cycle = || -> Result<u64> {
        let before = copied(&machine, &worker)?;
        machine.tool().option("--keep-arena").verb("suspend", &[worker.pid()])?.done()?;
        machine.resume(&[worker.pid()])?.done()?;
        Ok(copied(&machine, &worker)? - before)
    };
    assert_eq!(cycle()?, 130 * MIB + SLAB);
    for _ in 0..2 {
        assert_eq!(cycle()?, 0, "nothing has changed");
        assert_eq!(worker.ok("sum wide 0 200M")?, sum);
    }
    // A word that was something, and one that was zero.
    worker.ok("add wide 100M 4 1")?;
    worker.ok("add wide 190M 4 1")?;
    assert_eq!(cycle()?, 2 * GRAIN);
    worker.ok(&format!("add wide 100M 4 {}", u32::MAX))?;
    worker.ok(&format!("add wide 190M 4 {}", u32::MAX))?;
    assert_eq!(cycle()?, GRAIN, "the other one is zero again");
    assert_eq!(worker.ok("sum wide 0 200M")?, sum);
    Ok(())
}
