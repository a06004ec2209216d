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
    is_said(&machine, &worker, "it has no virtual memory management")?;
    machine.suspend(&[worker.pid()])?.done()?;
    machine.resume(&[worker.pid()])?.done()?;
    assert_eq!(worker.ok("sum x 0 4M")?, sum);
    Ok(())
}

/// In the status, for people and for programs, for both devices of the machine.
fn is_said(machine: &Machine, worker: &Target, reason: &str) -> Result<()> {
    let status = machine.status(worker.pid())?;
    let said = |device: u32| serde_json::json!({ "device": device, "reason": reason });
    assert_eq!(status.get("native"), Some(&serde_json::json!([said(0), said(1)])), "{status}");
    let text = machine.tool().verb("status", &[worker.pid()])?.text();
    let line = format!(
        "memory of cuMemAlloc on its device 1 stays with the driver, which saves it slowly: {reason}"
    );
    assert!(text.contains(&line), "{text}");
    Ok(())
}

/// CASES 13: memory that comes in pieces small blocks cannot share, or of which the driver does not say how large they are, does
/// not stand in for `cuMemAlloc`.
#[test]
fn memory_in_pieces_of_another_size_is_made_so_or_left_to_the_driver() -> Result<()> {
    const ASKED: &str = "cuMemGetAllocationGranularity";
    let cases: [(&str, &str, Option<&str>); 5] = [
        ("FAKECUDA_GRANULARITY", "65536", None),
        ("FAKECUDA_GRANULARITY", "2097152", None),
        ("FAKECUDA_GRANULARITY", "536870912", Some("a piece of its memory has 536870912 bytes")),
        ("FAKECUDA_GRANULARITY", "0", Some("the driver does not say how large a piece of its memory is")),
        ("FAKECUDA_FAULTS", "REFUSED", Some("the driver does not say how large a piece of its memory is")),
    ];
    for (name, value, reason) in cases {
        let mut machine = Machine::stand_in()?;
        machine.set(name, value.replace("REFUSED", &format!("{ASKED}:*:*=error(1)")));
        let sizes = ["1", "4096", "3M", "64M"];
        let mut sides = Vec::new();
        for preload in [false, true] {
            let worker = machine.worker(&format!("w{preload}")).preload_if(preload).start()?;
            worker.ok("begin 0")?;
            let mut said = Vec::new();
            for size in sizes {
                said.push(worker.ask(&format!("malloc x{size} {size}"))?);
                said.push(worker.ask(&format!("extent x{size} 0"))?);
            }
            sides.push(said);
            if !preload {
                continue;
            }
            let created =
                machine.calls(worker.pid())?.iter().filter(|call| call.name == "cuMemCreate").count();
            assert_eq!(created > 0, reason.is_none(), "{name}={value}: {created} allocations of ours");
            match reason {
                Some(reason) => is_said(&machine, &worker, reason)?,
                None => assert_eq!(machine.status(worker.pid())?.get("native"), Some(&serde_json::json!([]))),
            }
            worker.ok("fill x3M 0 1M 7")?;
            let sum = worker.ok("sum x3M 0 1M")?;
            machine.suspend(&[worker.pid()])?.done()?;
            machine.resume(&[worker.pid()])?.done()?;
            assert_eq!(worker.ok("sum x3M 0 1M")?, sum);
        }
        assert_eq!(sides.first(), sides.last(), "{name}={value}");
    }
    Ok(())
}
