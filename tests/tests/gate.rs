//! What goes on behind closed gates: captures come to their end, questions about finished work are answered, held
//! launches are let through where running work waits for them.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use integration::{Machine, Target};

fn worker(machine: &Machine) -> Result<Target> {
    let worker = machine.worker("a").preload().start()?;
    for line in [
        "begin 0",
        "new x 2M device:0 fd",
        "memset x 0 64 0",
        "stream s",
        "stream t",
        "event e",
        "record e s",
        "launch s spin u64:3000000",
        "event f",
        "record f s",
    ] {
        worker.ok(line)?;
    }
    worker.ok("sync")?;
    Ok(worker)
}

/// Waits until the line that the thread was given is answered.
fn answered(worker: &Target, thread: &str) -> Result<()> {
    let begun = Instant::now();
    while worker.ok(&format!("busy {thread}"))? == "yes" {
        ensure!(begun.elapsed() < Duration::from_secs(20), "{thread} waits");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[test]
fn questions_about_finished_work_are_answered_while_suspended() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = worker(&machine)?;
    let questions =
        ["query s", "sync s", "event-query e", "event-sync e", "sync", "current", "memory", "elapsed e f"];
    let figures = [worker.ok("memory")?, worker.ok("elapsed e f")?];
    for number in 0..=questions.len() {
        worker.ok(&format!("on q{number} context 0"))?;
    }
    machine.suspend_running(&[worker.pid()])?.done()?;
    // What only the driver knows has to wait.
    let range = questions.len();
    worker.ok(&format!("start q{range} extent x 0"))?;
    for (number, question) in questions.iter().enumerate() {
        worker.ok(&format!("start q{number} {question}"))?;
        answered(&worker, &format!("q{number}")).map_err(|error| error.context((*question).to_owned()))?;
        let answer = worker.ask(&format!("wait q{number}"))?;
        let Some(said) = answer.strip_prefix("ok") else {
            panic!("`{question}` was answered by `{answer}`");
        };
        match *question {
            "memory" => assert_eq!(Some(said.trim()), figures.first().map(String::as_str)),
            "elapsed e f" => {
                let difference = said.trim().parse::<f32>()? - figures[1].parse::<f32>()?;
                assert!(difference.abs() < 0.003, "{said} ms, and before {} ms", figures[1]);
            }
            _ => {}
        }
    }
    assert_eq!(worker.ok(&format!("busy q{range}"))?, "yes");
    machine.resume(&[worker.pid()])?.done()?;
    assert_eq!(worker.ask(&format!("wait q{range}"))?, format!("ok 0 {}", 2 << 20));
    assert_eq!(worker.ok("elapsed e f")?, figures[1], "the driver itself says something else");
    worker.ok("sync")?;
    Ok(())
}

#[test]
fn a_capture_comes_to_its_end_and_no_other_begins() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = worker(&machine)?;
    for thread in ["launcher", "beginner"] {
        worker.ok(&format!("on {thread} context 0"))?;
    }
    worker.ok("capture s relaxed")?;
    let quiesce = machine.tool().start_verb("quiesce", &[worker.pid()])?;
    machine.status_until(worker.pid(), |status| status["phase"] == "quiescing")?;
    // From another thread than the one that began it.
    worker.ok("start launcher launch s increment x")?;
    answered(&worker, "launcher")?;
    assert_eq!(worker.ask("wait launcher")?, "ok");
    worker.ok("start beginner capture t relaxed")?;
    machine.status_until(worker.pid(), |status| status["waiting"] == 1)?;
    worker.ok("end-capture s g")?;
    quiesce.outcome()?.done()?;
    assert_eq!(worker.ok("busy beginner")?, "yes", "a capture began at a closed gate");
    machine.tool().verb("reopen", &[worker.pid()])?.done()?;
    assert_eq!(worker.ask("wait beginner")?, "ok");
    for line in ["end-capture t h", "instantiate i g", "launch-graph i s", "sync s"] {
        worker.ok(line)?;
    }
    assert_eq!(
        worker.ok("read x 0 8")?,
        "0100000000000000",
        "the captured launch ran more or less than once"
    );
    Ok(())
}

#[test]
fn a_capture_without_an_end_makes_the_command_fail_and_all_goes_on() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = worker(&machine)?;
    worker.ok("capture s relaxed")?;
    let outcome = machine.tool().option("--timeout=1").verb("suspend", &[worker.pid()])?.exits(1)?;
    assert!(outcome.text().contains("capture"), "{}", outcome.text());
    assert_eq!(machine.status(worker.pid())?["phase"], "running");
    for line in ["launch t increment x", "launch s increment x", "end-capture s g", "sync"] {
        worker.ok(line)?;
    }
    assert_eq!(worker.ok("read x 0 8")?, "0100000000000000");
    machine.suspend(&[worker.pid()])?.done()?;
    machine.resume(&[worker.pid()])?.done()?;
    Ok(())
}

#[test]
fn a_held_launch_that_running_work_waits_for_is_let_through() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = worker(&machine)?;
    worker.ok("on other context 0")?;
    // Runs until the word at x is 1, which only a launch on the other stream makes it.
    worker.ok("launch s wait_flag x u32:1")?;
    let quiesce = machine.tool().start_verb("quiesce", &[worker.pid()])?;
    machine.status_until(worker.pid(), |status| status["phase"] == "quiescing")?;
    worker.ok("start other launch t increment x")?;
    quiesce.outcome()?.done()?;
    assert_eq!(worker.ask("wait other")?, "ok");
    machine.tool().verb("reopen", &[worker.pid()])?.done()?;
    worker.ok("sync")?;
    assert_eq!(worker.ok("read x 0 8")?, "0100000000000000");
    Ok(())
}

#[test]
fn nothing_of_ours_disturbs_a_capture() -> Result<()> {
    let machine = Machine::stand_in()?;
    let (a, b) = (worker(&machine)?, machine.worker("b").preload().start()?);
    for line in ["listen", "begin 0"] {
        b.ok(line)?;
    }
    for (round, mode) in ["global", "thread", "relaxed"].into_iter().enumerate() {
        for line in
            ["new shared 2M device:0 fd", "export fd shared", "send fd b", "write x 0 0000000000000000"]
        {
            a.ok(line)?;
        }
        a.ok(&format!("capture s {mode}"))?;
        a.ok("launch s increment x")?;
        // The library of the one exports, imports and saves nothing of its own accord, but is asked for all of this meanwhile.
        for line in ["receive fd", "import shared fd", "show shared 2M", "fill shared 0 2M 1", "drop shared"]
        {
            b.ok(line)?;
        }
        for verb in ["check", "status"] {
            machine.tool().verb(verb, &[a.pid(), b.pid()])?.done()?;
        }
        for verb in ["quiesce", "suspend"] {
            let busy = machine.tool().option("--timeout=0.3").verb(verb, &[a.pid(), b.pid()])?.exits(1)?;
            assert!(busy.text().contains("1 stream capture(s) under way"), "{}", busy.text());
        }
        for line in
            ["launch s increment x", "end-capture s g", "instantiate i g", "launch-graph i s", "sync s"]
        {
            a.ok(line).map_err(|error| error.context(format!("after a {mode} capture")))?;
        }
        assert_eq!(a.ok("read x 0 8")?, "0200000000000000", "round {round}");
        a.ok("drop shared")?;
    }
    Ok(())
}
