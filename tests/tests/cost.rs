//! Tables do not grow with what is gone, and look-ups do not slow down with what is alive.

use anyhow::{Context, Result, bail};
use integration::{Machine, Target};

/// What `churn` answers: nanoseconds per round, and KiB resident.
fn churn(worker: &Target, rounds: usize) -> Result<(u64, u64)> {
    let answer = worker.ok(&format!("churn {rounds} r 2M"))?;
    let (time, resident) = answer.split_once(' ').context("two numbers")?;
    Ok((time.parse()?, resident.parse()?))
}

fn quiet_machine() -> Result<Machine> {
    let mut machine = Machine::stand_in()?;
    // The call log of a million calls is of no interest.
    machine.unset("FAKECUDA_LOG");
    machine.set("FAKECUDA_MEMORY", (1_u64 << 42).to_string());
    Ok(machine)
}

#[test]
fn a_million_allocations_made_and_released_leave_memory_and_speed_as_they_were() -> Result<()> {
    const ROUNDS: usize = 1_000_000;
    let machine = quiet_machine()?;
    let worker = machine.worker("a").preload().start()?;
    worker.ok("begin 0")?;
    worker.ok("reserve r 2M")?;
    let tenths: Vec<_> = (0..10).map(|_| churn(&worker, ROUNDS / 10)).collect::<Result<_>>()?;
    let [(first, before), .., (last, after)] = tenths.as_slice() else { bail!("ten tenths") };
    eprintln!("{first} ns a round in the first tenth, {last} in the last; {before} and {after} KiB resident");
    assert!(*after <= before + 256, "{before} KiB resident after a tenth, {after} at the end");
    assert!(2 * last <= 3 * first, "{first} ns a round in the first tenth, {last} in the last");
    Ok(())
}

#[test]
fn a_hundred_thousand_live_objects_do_not_slow_calls_down() -> Result<()> {
    const OBJECTS: usize = 100_000;
    let machine = quiet_machine()?;
    let worker = machine.worker("a").preload().start()?;
    for line in ["begin 0", "reserve r 2M"] {
        worker.ok(line)?;
    }
    let measure = || -> Result<(u64, u64)> {
        let (round, _) = churn(&worker, 50_000)?;
        Ok((round, worker.ok("time-launches 20000")?.parse()?))
    };
    let (round, launch) = measure()?;
    worker.ok(&format!("hoard {OBJECTS} 2M"))?;
    let (crowded_round, crowded_launch) = measure()?;
    eprintln!("alone {round} ns a round, {launch} a launch; crowded {crowded_round} and {crowded_launch}");
    // Five calls with their look-ups, which grow with the logarithm.
    assert!(2 * crowded_round <= 5 * round, "{round} ns a round alone, {crowded_round} among {OBJECTS}");
    // A launch looks nothing up; but what the stand-in's queue costs differs from one time to the next.
    assert!(crowded_launch <= 3 * launch, "{launch} ns a launch alone, {crowded_launch} among {OBJECTS}");
    Ok(())
}
