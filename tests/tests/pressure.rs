//! Memory that runs out: while a program allocates, and while it comes back.

use anyhow::Result;
use integration::Machine;

const MIB: u64 = 1 << 20;

fn small_machine() -> Result<Machine> {
    let mut machine = Machine::stand_in()?;
    machine.set("FAKECUDA_MEMORY", (256 * MIB).to_string());
    Ok(machine)
}

const ALLOCATIONS: usize = 5;

/// Each allocation is asked for twice. Without the library the one that `native` names fails; with it memory of both kinds
/// is made by `cuMemCreate`, and the first one is the worker's own.
fn fails_alike(native: &str, failing: usize, ask: fn(usize) -> String) -> Result<()> {
    let machine = small_machine()?;
    let ours = format!("cuMemCreate:{}:*=oom", failing + 1);
    let workers = [
        machine.worker("without").set("FAKECUDA_FAULTS", native).start()?,
        machine.worker("with").set("FAKECUDA_FAULTS", ours).preload().start()?,
    ];
    let mut answers = Vec::new();
    for worker in &workers {
        worker.ok("begin 0")?;
        let mut said = Vec::new();
        for number in 0..ALLOCATIONS {
            for _ in 0..2 {
                said.push(worker.ask(&ask(number))?);
            }
        }
        answers.push(said);
    }
    assert_eq!(answers.first(), answers.last(), "allocation {failing} fails");
    assert!(answers.concat().iter().any(|answer| answer.starts_with("error 2 ")), "nothing failed");
    Ok(())
}

#[test]
fn every_creation_that_may_fail_fails_as_it_would_without_and_succeeds_when_tried_again() -> Result<()> {
    for failing in 1..=ALLOCATIONS {
        let native = format!("cuMemCreate:{failing}:*=oom");
        fails_alike(&native, failing, |number| format!("create h{number} 2M device:0 fd"))?;
    }
    Ok(())
}

#[test]
fn every_allocation_that_may_fail_fails_as_it_would_without_and_succeeds_when_tried_again() -> Result<()> {
    for failing in 1..=ALLOCATIONS {
        // The first one is the worker's own here too.
        let native = format!("cuMemAlloc_v2:{}:*=oom", failing + 1);
        fails_alike(&native, failing, |number| format!("malloc m{number} 2M"))?;
    }
    Ok(())
}

#[test]
fn a_card_too_full_to_come_back_on_is_refused_and_the_next_resume_completes() -> Result<()> {
    let machine = small_machine()?;
    let worker = machine.worker("a").preload().start()?;
    for line in ["begin 0", "new x 128M device:0 fd", "fill x 0 128M 12"] {
        worker.ok(line)?;
    }
    let sum = worker.ok("sum x 0 128M")?;
    machine.suspend(&[worker.pid()])?.done()?;
    let hog = machine.worker("hog").start()?;
    for line in ["begin 0", "new x 200M device:0"] {
        hog.ok(line)?;
    }
    let refused = machine.resume(&[worker.pid()])?;
    assert!(refused.code != 0 && refused.text().contains("memory"), "{}", refused.text());
    assert!(refused.text().contains("resume"), "it has to say what to do: {}", refused.text());
    hog.ok("drop x")?;
    machine.resume(&[worker.pid()])?.done()?;
    assert!(worker.ok("sum x 0 128M")? == sum, "the bytes changed");
    Ok(())
}

#[test]
fn a_full_card_can_be_suspended() -> Result<()> {
    let machine = small_machine()?;
    let worker = machine.worker("a").preload().start()?;
    worker.ok("begin 0")?;
    let mut count = 0;
    while worker.ask(&format!("new x{count} 2M device:0"))?.starts_with("ok") {
        worker.ok(&format!("fill x{count} 0 2M {count}"))?;
        count += 1;
    }
    assert!(count > 50, "the card was full after {count}");
    let sum = worker.ok("sum x7 0 2M")?;
    for _ in 0..2 {
        machine.suspend(&[worker.pid()])?.done()?;
        machine.resume(&[worker.pid()])?.done()?;
        assert!(worker.ok("sum x7 0 2M")? == sum, "the bytes changed");
    }
    Ok(())
}
