//! Tables do not grow with what is gone, and look-ups do not slow down with what is alive.

use anyhow::{Context, Result};
use integration::{Machine, Target};

/// What `churn` answers: nanoseconds per round early and late, KiB resident early and late.
fn churn(worker: &Target, rounds: usize) -> Result<[u64; 4]> {
    let answer = worker.ok(&format!("churn {rounds} r 2M"))?;
    let numbers: Vec<u64> = answer.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    numbers.try_into().ok().context("four numbers")
}

fn quiet_machine() -> Result<Machine> {
    let mut machine = Machine::stand_in()?;
    // The call log of a million calls is of no interest.
    machine.unset("FAKECUDA_LOG");
    machine.set("FAKECUDA_MEMORY", (1_u64 << 42).to_string());
    Ok(machine)
}

#[test]
fn a_million_calls_leave_memory_and_speed_as_they_were() -> Result<()> {
    // Five calls a round; the first quarter warms up what is kept.
    const ROUNDS: usize = 200_000;
    let machine = quiet_machine()?;
    let worker = machine.worker("a").preload().start()?;
    worker.ok("begin 0")?;
    worker.ok("reserve r 2M")?;
    churn(&worker, ROUNDS / 10)?;
    let [early, late, before, after] = churn(&worker, ROUNDS)?;
    assert!(after <= before + 1024, "{before} KiB resident early, {after} late");
    assert!(late <= early * 2, "{early} ns a round early, {late} late");
    Ok(())
}

#[test]
fn many_live_objects_do_not_slow_calls_down() -> Result<()> {
    const OBJECTS: usize = 10_000;
    let machine = quiet_machine()?;
    let worker = machine.worker("a").preload().start()?;
    for line in ["begin 0", "reserve r 2M"] {
        worker.ok(line)?;
    }
    let [_, alone, ..] = churn(&worker, 20_000)?;
    let launch_alone: u64 = worker.ok("time-launches 20000")?.parse()?;
    worker.ok(&format!("hoard {OBJECTS} 2M"))?;
    let [_, crowded, ..] = churn(&worker, 20_000)?;
    let launch_crowded: u64 = worker.ok("time-launches 20000")?.parse()?;
    assert!(crowded <= alone * 3, "{alone} ns a round alone, {crowded} among {OBJECTS} objects");
    assert!(
        launch_crowded <= launch_alone * 3,
        "{launch_alone} ns a launch alone, {launch_crowded} among {OBJECTS}"
    );
    Ok(())
}
