//! What waits while the gates are closed, and what goes on.

use anyhow::Result;
use integration::{Machine, Target};

struct Entry {
    class: &'static str,
    name: &'static str,
}

macro_rules! entries {
    ($($class:ident $family:ident fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(on $($stream:ident).+)?;)*) => {
        const ENTRIES: &[Entry] =
            &[$(Entry { class: stringify!($class), name: stringify!($name) },)*];
    };
}

cuda_sys::for_each_call!(entries);

fn worker(machine: &Machine) -> Result<Target> {
    with_objects(machine.worker("a").preload().start()?)
}

fn with_objects(worker: Target) -> Result<Target> {
    for line in ["begin 0", "new x 2M device:0 fd", "stream s", "event e", "record e s", "sync"] {
        worker.ok(line)?;
    }
    Ok(worker)
}

/// The name that the resolver is asked for, which stands for all forms of a function.
fn base(name: &str) -> &str {
    let plain = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    match plain.rsplit_once("_v") {
        Some((base, version)) if version.bytes().all(|byte| byte.is_ascii_digit()) => base,
        _ => plain,
    }
}

/// The roads lead to every held function: the resolver to one form of each, the others to all forms.
fn are_all_there(road: &str, held: &[&str], wanted: &[&str]) {
    let by_resolver = ["resolver", "per-thread"].contains(&road);
    let is_there = |name: &&&str| {
        if by_resolver { held.iter().any(|found| base(found) == base(name)) } else { held.contains(name) }
    };
    let missing: Vec<&&str> = wanted.iter().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "{road} does not lead to {missing:?}");
}

/// Calls every held function by one road while the gates are closed, each on a thread of its own. All have to wait.
fn all_are_held_by(road: &str) -> Result<()> {
    let machine = Machine::stand_in()?;
    let program = if road == "linked" { "worker-linked" } else { "worker" };
    let worker = with_objects(machine.program(program, "a").preload().start()?)?;
    let pid = worker.pid();
    machine.tool().verb("quiesce", &[pid])?.done()?;
    let mut held = Vec::new();
    let classes = ["launch", "memory", "object"];
    let wanted: Vec<&str> =
        ENTRIES.iter().filter(|entry| classes.contains(&entry.class)).map(|entry| entry.name).collect();
    for name in &wanted {
        if worker.ok(&format!("there {road} {name}"))? == "true" {
            worker.ok(&format!("start {name} raw {road} {name}"))?;
            held.push(*name);
        }
    }
    are_all_there(road, &held, &wanted);
    println!("{road}: {} of {} functions called", held.len(), wanted.len());
    let all_wait = |status: &serde_json::Value| status["waiting"] == held.len();
    if let Err(error) = machine.status_until(pid, all_wait) {
        let mut passed = Vec::new();
        for name in &held {
            if worker.ok(&format!("busy {name}"))? == "no" {
                passed.push(*name);
            }
        }
        return Err(error.context(format!("not held by {road}: {passed:?}")));
    }
    machine.tool().verb("reopen", &[pid])?.done()?;
    for name in held {
        worker.ask(&format!("wait {name}"))?;
    }
    // Called with nothing but zeros, most of them were wrong.
    machine.take_violations()?;
    Ok(())
}

#[test]
fn every_call_looked_up_by_dlsym_is_held() -> Result<()> {
    all_are_held_by("dlsym")
}

#[test]
fn every_call_from_the_resolver_is_held() -> Result<()> {
    all_are_held_by("resolver")
}

#[test]
fn every_call_from_the_resolver_for_the_per_thread_stream_is_held() -> Result<()> {
    all_are_held_by("per-thread")
}

#[test]
fn every_call_looked_up_in_the_default_scope_is_held() -> Result<()> {
    all_are_held_by("scope")
}

#[test]
fn every_linked_call_is_held() -> Result<()> {
    all_are_held_by("linked")
}

#[test]
fn a_copy_that_running_work_waits_for_passes_while_launches_are_held() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = worker(&machine)?;
    for line in ["memset x 0 2M 0", "sync", "on held context 0", "launch s wait_flag x u32:1", "stream t"] {
        worker.ok(line)?;
    }
    let quiesce = machine.tool().start_verb("quiesce", &[worker.pid()])?;
    machine.status_until(worker.pid(), |status| status["phase"] == "quiescing")?;
    worker.ok("write x 0 01000000")?;
    quiesce.outcome()?.done()?;
    worker.ok("start held launch t increment x+8")?;
    machine.status_until(worker.pid(), |status| status["waiting"] == 1)?;
    assert!(worker.ok("busy held")? == "yes", "a launch was not held");
    machine.tool().verb("reopen", &[worker.pid()])?.done()?;
    assert!(worker.ask("wait held")? == "ok");
    for line in ["sync", "read x 8 8"] {
        worker.ok(line)?;
    }
    assert!(worker.ok("read x 8 8")? == "0100000000000000", "the held launch ran more or less than once");
    Ok(())
}

#[test]
fn buffers_freed_while_suspended_are_freed_once_and_not_made_again() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = worker(&machine)?;
    for number in 0..9 {
        worker.ok(&format!("new b{number} 4M device:0 fd"))?;
        worker.ok(&format!("fill b{number} 0 4M {number}"))?;
    }
    let sums: Vec<String> =
        (0..9).map(|number| worker.ok(&format!("sum b{number} 0 4M"))).collect::<Result<_>>()?;
    let before = machine.usage()?.device(0);
    machine.suspend_running(&[worker.pid()])?.done()?;
    for number in [0, 4, 8] {
        worker.ok(&format!("start t{number} drop b{number}"))?;
    }
    machine.resume(&[worker.pid()])?.done()?;
    for number in [0, 4, 8] {
        assert!(worker.ask(&format!("wait t{number}"))? == "ok", "b{number} could not be freed");
    }
    let after = machine.usage()?.device(0);
    assert!(
        before - after == 3 * (4 << 20),
        "{before} bytes before, {after} after three of 4 MiB were freed"
    );
    for _ in 0..2 {
        for number in [1, 2, 3, 5, 6, 7] {
            assert!(
                Some(&worker.ok(&format!("sum b{number} 0 4M"))?) == sums.get(number),
                "b{number} changed"
            );
        }
        machine.suspend(&[worker.pid()])?.done()?;
        machine.resume(&[worker.pid()])?.done()?;
    }
    Ok(())
}

#[test]
fn questions_asked_while_suspended_are_answered_and_hurt_nobody() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = worker(&machine)?;
    let questions =
        ["sync s", "sync", "query s", "event-query e", "event-sync e", "current", "memory", "extent x 0"];
    machine.suspend_running(&[worker.pid()])?.done()?;
    for (number, question) in questions.iter().enumerate() {
        worker.ok(&format!("start q{number} context 0"))?;
        worker.ok(&format!("start q{number} {question}"))?;
    }
    machine.resume(&[worker.pid()])?.done()?;
    for (number, question) in questions.iter().enumerate() {
        worker.ask(&format!("wait q{number}"))?;
        let answer = worker.ask(&format!("wait q{number}"))?;
        assert!(answer.starts_with("ok"), "`{question}` answered `{answer}`");
    }
    worker.ok("sum x 0 2M")?;
    Ok(())
}
