//! Programs whose watchdogs are shorter than a suspend, with threads held still and with threads that run.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use integration::{Machine, Outcome, Target};

const LIMIT: Duration = Duration::from_millis(2000);
/// Longer than any limit, from the end of the suspend on.
const SUSPENDED: Duration = Duration::from_millis(2600);

fn watched(machine: &Machine, watchdog: &str, limit: Duration) -> Result<Target> {
    let worker = machine.worker("a").preload().start()?;
    for line in ["begin 0", "new x 4M device:0 fd", "fill x 0 4M 7"] {
        worker.ok(line)?;
    }
    worker.ok(&format!("{watchdog} {}", limit.as_millis()))?;
    Ok(worker)
}

fn suspend(machine: &Machine, worker: &Target, freezes: bool) -> Result<Outcome> {
    let pids = [worker.pid()];
    if freezes { machine.suspend(&pids)? } else { machine.suspend_running(&pids)? }.done()
}

/// What is waited for is the time itself.
fn for_long() {
    let begun = Instant::now();
    while begun.elapsed() < SUSPENDED {
        std::thread::sleep(SUSPENDED.saturating_sub(begun.elapsed()));
    }
}

/// With threads held still, and with threads that run: both at once, since next to all of it is waiting.
fn both_ways(check: impl Fn(bool) -> Result<()> + Sync) -> Result<()> {
    let checked = |freezes| check(freezes).with_context(|| format!("frozen: {freezes}"));
    std::thread::scope(|scope| {
        let running = scope.spawn(|| checked(false));
        let frozen = checked(true);
        frozen.and(running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn outlives(watchdog: &str) -> Result<()> {
    both_ways(|freezes| {
        let machine = Machine::stand_in()?;
        let worker = watched(&machine, watchdog, LIMIT)?;
        let before = worker.ok("sum x 0 4M")?;
        for _ in 0..2 {
            suspend(&machine, &worker, freezes)?;
            for_long();
            machine.resume(&[worker.pid()])?.done()?;
        }
        // It is looked at for longer than the watchdog waits.
        for_long();
        ensure!(worker.ok("sum x 0 4M")? == before, "contents changed");
        Ok(())
    })
}

#[test]
fn one_that_looks_whether_a_thread_has_made_progress_finds_some() -> Result<()> {
    outlives("heartbeat")
}

#[test]
fn one_with_a_limit_for_work_on_the_gpu_finds_it_finished() -> Result<()> {
    outlives("work-limit")
}

#[test]
fn one_that_compares_the_clock_with_the_last_progress_outlives_a_suspend_within_its_limit() -> Result<()> {
    both_ways(|freezes| {
        let machine = Machine::stand_in()?;
        let worker = watched(&machine, "clock-limit", Duration::from_secs(600))?;
        let before = worker.ok("sum x 0 4M")?;
        suspend(&machine, &worker, freezes)?;
        for_long();
        machine.resume(&[worker.pid()])?.done()?;
        ensure!(worker.ok("sum x 0 4M")? == before, "contents changed");
        Ok(())
    })
}

/// Nothing outside of the program can help it, as the documents say.
#[test]
fn beyond_its_limit_it_ends_the_program_when_that_goes_on() -> Result<()> {
    both_ways(|freezes| {
        let machine = Machine::stand_in()?;
        let worker = watched(&machine, "clock-limit", LIMIT)?;
        suspend(&machine, &worker, freezes)?;
        if freezes {
            for_long();
            ensure!(machine.status(worker.pid())?["phase"] == "released", "it ended while it was held still");
            // The process may end at any moment of it.
            let resume = machine.resume(&[worker.pid()])?;
            ensure!(resume.text().contains(&worker.pid().to_string()), "{}", resume.text());
        }
        let status = worker.wait()?;
        ensure!(status.signal() == Some(libc::SIGABRT), "{status}");
        let gone = machine.resume(&[worker.pid()])?;
        ensure!(gone.text().contains("there is no such process"), "{}", gone.text());
        Ok(())
    })
}
