//! Calls that come when the program is on its way out, and a program that starts again in place.

use anyhow::Result;
use integration::{Machine, Target};

fn last_words(machine: &Machine, name: &str) -> Result<Vec<String>> {
    Ok(std::fs::read_to_string(machine.path(&format!("{name}.last")))?.lines().map(str::to_owned).collect())
}

fn goodbye(machine: &Machine, name: &str, preload: bool) -> Result<Vec<String>> {
    let worker = machine.worker(name).preload_if(preload).start()?;
    for line in ["begin 0", "new x 2M device:0 fd", "malloc y 4K", "new z 2M device:0", "close-stderr"] {
        worker.ok(line)?;
    }
    for line in ["at-exit unmap x", "at-exit release x", "at-exit free y", "on t at-thread-exit drop z"] {
        worker.ok(line)?;
    }
    let status = worker.end()?;
    assert!(status.success(), "{name} ended with {status}");
    last_words(machine, name)
}

#[test]
fn calls_from_exit_handlers_and_thread_destructors_answer_as_they_would_without() -> Result<()> {
    let machine = Machine::stand_in()?;
    let without = goodbye(&machine, "without", false)?;
    for round in 0..20 {
        assert_eq!(goodbye(&machine, &format!("with-{round}"), true)?, without);
    }
    Ok(())
}

#[test]
fn a_program_that_execs_itself_is_suspended_like_any_other() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = machine.worker("a").preload().start()?;
    for round in 0..3 {
        for line in ["begin 0", "new x 4M device:0 fd", "export fd x"] {
            worker.ok(line)?;
        }
        worker.ok(&format!("fill x 0 4M {round}"))?;
        cycle(&machine, &worker)?;
        worker.ok("exec")?;
    }
    Ok(())
}

fn cycle(machine: &Machine, worker: &Target) -> Result<()> {
    let before = worker.ok("sum x 0 4M")?;
    machine.suspend(&[worker.pid()])?.done()?;
    machine.resume(&[worker.pid()])?.done()?;
    assert_eq!(worker.ok("sum x 0 4M")?, before);
    Ok(())
}
