//! Few processes that use CUDA among many that do not. A program of its own: everything below it belongs to the test.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use integration::{Machine, Target};

fn worker(machine: &Machine, name: &str) -> Result<Target> {
    let worker = machine.worker(name).preload().start()?;
    worker.ok("begin 0")?;
    Ok(worker)
}

#[test]
fn two_processes_with_cuda_are_found_among_a_hundred_with_the_library_in_less_than_a_second() -> Result<()> {
    let machine = Machine::stand_in()?;
    let idle = (0..100).map(|number| machine.worker(&format!("idle{number}")).preload().start());
    let idle = idle.collect::<Result<Vec<_>>>()?;
    let using = [worker(&machine, "one")?, worker(&machine, "two")?];
    let strange = machine.worker("strange").start()?;
    strange.ok("begin 0")?;
    for worker in &idle {
        worker.ok("echo here")?;
    }
    // Everything was started by this process.
    let own = i32::try_from(std::process::id())?;
    let begun = Instant::now();
    let check = machine.tool().option("--json").option("--tree").verb("check", &[own])?;
    let took = begun.elapsed();
    ensure!(took < Duration::from_secs(1), "it took {took:?}");
    let check = check.exits(4)?;
    let events = check.events()?;
    let summary = events.last().context("a summary")?;
    let mut pids: Vec<i32> = using.iter().map(Target::pid).collect();
    pids.sort_unstable();
    ensure!(summary["pids"] == serde_json::json!(pids), "{summary}");
    let told: Vec<_> = events.iter().filter(|event| event["kind"] == "no-shim").collect();
    ensure!(told.len() == 1 && told[0]["pid"] == strange.pid(), "{told:?}");
    ensure!(!events.iter().any(|event| event["kind"] == "no-cuda"), "the others are passed over: {events:?}");

    // One cuInit whatever the number of processes, and nobody to help.
    let calls = machine.calls(check.pid)?;
    ensure!(calls.iter().filter(|call| call.name == "cuInit").count() == 1, "{calls:?}");
    Ok(())
}
