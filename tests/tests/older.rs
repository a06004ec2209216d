//! Drivers that lack something: the program runs as without the library, and what cannot be done is said.

use anyhow::Result;
use integration::{Machine, Target};

/// A worker on a driver that lacks these functions.
fn worker(lacks: &str, road: &str, preload: bool) -> Result<(Machine, Target)> {
    let mut machine = Machine::stand_in()?;
    machine.set("FAKECUDA_WITHOUT", lacks);
    let worker = machine.worker("a").preload_if(preload).argument(road).start()?;
    Ok((machine, worker))
}

#[test]
fn a_program_runs_as_without_the_library() -> Result<()> {
    const LINES: [&str; 9] = [
        "begin 0",
        "malloc x 4M",
        "fill x 0 4M 7",
        "sum x 0 4M",
        "extent x 4096",
        "create y 2M device:0 fd",
        "reserve r 2M",
        "memory",
        "free x",
    ];
    for lacks in ["cuGetProcAddress_v2", "multicast", "vmm", "checkpoint", "cuMemAllocAsync", "ipc"] {
        let road = if lacks == "cuGetProcAddress_v2" { "dlsym" } else { "resolver" };
        let mut sides = Vec::new();
        for preload in [false, true] {
            let (machine, worker) = worker(lacks, road, preload)?;
            let answers: Result<Vec<String>> = LINES.iter().map(|line| worker.ask(line)).collect();
            sides.push(answers?);
            machine.take_violations()?;
        }
        assert_eq!(sides.first(), sides.last(), "without {lacks}");
        assert_eq!(
            sides.concat().iter().filter(|answer| answer.starts_with("usage")).count(),
            0,
            "{sides:?}"
        );
    }
    Ok(())
}

/// Native memory is the driver's own to save.
#[test]
fn memory_of_a_driver_without_virtual_memory_is_left_to_it() -> Result<()> {
    let (machine, worker) = worker("vmm", "resolver", true)?;
    for line in ["begin 0", "malloc x 4M", "fill x 0 4M 7"] {
        worker.ok(line)?;
    }
    let sum = worker.ok("sum x 0 4M")?;
    let status = machine.status(worker.pid())?;
    let by_driver = status.pointer("/bytes/driver").and_then(serde_json::Value::as_u64);
    assert!(by_driver >= Some(4 << 20), "{status}");
    machine.suspend(&[worker.pid()])?.done()?;
    machine.resume(&[worker.pid()])?.done()?;
    assert_eq!(worker.ok("sum x 0 4M")?, sum);
    Ok(())
}
