//! What is refused before anything is touched, and what is only worth knowing.

use std::time::{Duration, Instant};

use cuda_sys::ProcessState;
use protocol::{Blocker, BlockerKind, Phase};

use super::{Exit, Outcome, check, resume, stop, suspend};
use crate::pid::Pid;
use crate::simulated::{Process, World};

fn pid(number: i32) -> Pid {
    Pid::new(number).unwrap()
}

fn pair() -> World {
    World::of([Process::new(101).makes(1, 11), Process::new(102).imports(1, 101)])
}

/// Checks and suspends: both refuse for one reason, and nothing is touched.
fn refused(world: &World, pids: &[Pid]) -> Outcome {
    let checked = check(&world.context(), pids, false);
    assert_eq!(checked.exit, Exit::Refused, "{}", checked.text());
    let outcome = suspend(&world.context(), pids, Duration::from_secs(1));
    assert_eq!(outcome.exit, Exit::Refused, "{}", outcome.text());
    assert_eq!(outcome.findings, checked.findings);
    let asked: Vec<&str> = world.inner().calls.iter().map(|call| call.what).collect();
    assert!(asked.iter().all(|what| ["inspect", "cuCheckpointProcessGetState"].contains(what)), "{asked:?}");
    assert_eq!(world.records(), Vec::<String>::new());
    outcome
}

fn kinds(outcome: &Outcome) -> Vec<(&'static str, Option<i32>)> {
    let findings = outcome.findings.iter().filter(|finding| finding.blocks());
    findings.map(|finding| (finding.kind, finding.pid.map(Pid::number))).collect()
}

#[test]
fn a_suspend_that_would_succeed_is_said_to() {
    let world = pair();
    let outcome = check(&world.context(), &world.pids(), true);
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.text());
    assert!(outcome.text().contains("2 processes"), "{}", outcome.text());
    assert!(outcome.text().contains("2.0 MiB of host memory"), "{}", outcome.text());
}

#[test]
fn everything_in_the_way_is_told_at_once_with_process_and_remedy() {
    let mut first = Process::new(101).makes(1, 11);
    first.blockers = vec![
        Blocker { kind: BlockerKind::Managed, count: 3, example: "0x7f00".into() },
        Blocker { kind: BlockerKind::Multicast, count: 1, example: String::new() },
    ];
    let mut second = Process::new(102).imports(1, 101);
    second.version = "0.0.0".into();
    let mut third = Process::new(103).makes(3, 3);
    third.phase = Phase::Quiesced;
    let world = World::of([first, second, third]);
    let outcome = refused(&world, &[pid(101), pid(102), pid(103), pid(999)]);
    assert_eq!(
        kinds(&outcome),
        [
            ("managed", Some(101)),
            ("multicast", Some(101)),
            ("phase", Some(103)),
            ("process", Some(999)),
            ("version", Some(102)),
        ]
    );
    let text = outcome.text();
    assert!(text.contains("process 101 holds 3 managed allocation(s)"), "{text}");
    assert!(text.contains("for example 0x7f00"), "{text}");
    assert!(text.contains("`nvsnap-gpu-suspend resume 103` first"), "{text}");
}

#[test]
fn an_exporter_that_is_not_named_is_in_the_way_and_so_is_an_importer() {
    assert_eq!(kinds(&refused(&pair(), &[pid(102)])), [("exporter-outside", Some(102))]);
    assert_eq!(kinds(&refused(&pair(), &[pid(101)])), [("importer-outside", Some(102))]);
}

#[test]
fn processes_without_cuda_are_left_alone() {
    let mut idle = Process::new(103);
    idle.idle = true;
    let world = World::of([Process::new(101).makes(1, 11), idle]);
    let outcome = suspend(&world.context(), &world.pids(), Duration::from_secs(5));
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.text());
    assert_eq!(outcome.pids, [pid(101)]);
    assert!(outcome.text().contains("process 103 (worker) does not use CUDA"), "{}", outcome.text());
    assert_eq!(kinds(&refused(&World::of([]), &[pid(7)])), [("process", Some(7))]);
}

#[test]
fn a_process_without_the_library_is_not_called_one_without_cuda() {
    let mut bare = Process::new(101);
    bare.bare = true;
    let world = World::of([bare]);
    std::fs::write(world.proc_of(101).join("maps"), "7f00-7f01 r-xp 0 00:00 1 /usr/lib/libcuda.so.1\n")
        .unwrap();
    let outcome = refused(&world, &[pid(101)]);
    assert_eq!(kinds(&outcome), [("no-shim", Some(101))]);
    assert!(outcome.text().contains("start it with `nvsnap-gpu-suspend run`"), "{}", outcome.text());
    assert_eq!(kinds(&stop::stop(&world.context(), &[pid(101)])), [("no-shim", Some(101))]);
}

#[test]
fn a_process_that_the_driver_holds_is_not_suspended_over_it() {
    let mut held = Process::new(101).makes(1, 11);
    held.state = ProcessState::LOCKED;
    let world = World::of([held]);
    assert_eq!(kinds(&refused(&world, &[pid(101)])), [("driver-state", Some(101))]);
}

#[test]
fn what_is_suspended_is_suspended_already_and_what_runs_runs_already() {
    let world = pair();
    let again = || suspend(&world.context(), &world.pids(), Duration::from_secs(5));
    let back = || resume(&world.context(), &world.pids(), None);
    let first = back();
    assert_eq!(first.exit, Exit::Done);
    assert!(first.text().contains("running already"), "{}", first.text());
    assert_eq!(again().exit, Exit::Done);
    let second = again();
    assert_eq!(second.exit, Exit::Done);
    assert!(second.text().contains("already suspended"), "{}", second.text());
    assert_eq!(back().exit, Exit::Done);
    assert_eq!(back().exit, Exit::Done);
    assert_eq!(world.damage(), Vec::<String>::new());
}

#[test]
fn a_resume_without_room_on_the_gpu_is_refused_before_the_driver_is_asked() {
    let world = pair();
    assert_eq!(suspend(&world.context(), &world.pids(), Duration::from_secs(5)).exit, Exit::Done);
    let could = |world: &World| kinds(&check(&world.context(), &world.pids(), false));
    assert!(!could(&world).contains(&("gpu-memory", None)));
    world.inner().free = 1000;
    assert!(could(&world).contains(&("gpu-memory", None)), "the check tells it too");
    let calls = world.inner().calls.len();
    let outcome = resume(&world.context(), &world.pids(), None);
    assert_eq!(outcome.exit, Exit::Refused, "{}", outcome.text());
    assert_eq!(kinds(&outcome), [("gpu-memory", None)]);
    assert!(outcome.text().contains("nvsnap-gpu-suspend resume 101 102"), "{}", outcome.text());
    let asked = world.inner().calls.split_off(calls);
    assert!(
        asked.iter().all(|call| ["inspect", "cuCheckpointProcessGetState"].contains(&call.what)),
        "{asked:?}"
    );
    assert_eq!(world.not_suspended(), Vec::<String>::new());

    world.inner().free = 1 << 40;
    assert_eq!(resume(&world.context(), &world.pids(), None).exit, Exit::Done);
    assert_eq!(world.damage(), Vec::<String>::new());
}

#[test]
fn a_process_that_was_suspended_with_the_others_has_to_be_resumed_with_them() {
    let world = pair();
    assert_eq!(suspend(&world.context(), &world.pids(), Duration::from_secs(5)).exit, Exit::Done);
    let outcome = resume(&world.context(), &[pid(102)], None);
    assert_eq!(outcome.exit, Exit::Refused, "{}", outcome.text());
    assert_eq!(kinds(&outcome), [("forgotten", None)]);
    assert!(outcome.text().contains("nvsnap-gpu-suspend resume 102 101"), "{}", outcome.text());
    assert_eq!(world.not_suspended(), Vec::<String>::new());
}

#[test]
fn two_commands_do_not_work_on_one_process() {
    let world = pair();
    let held = world.context().hold(&[pid(102)]).unwrap();
    let outcome = suspend(&world.context(), &world.pids(), Duration::from_secs(5));
    assert_eq!(outcome.exit, Exit::Refused);
    assert_eq!(kinds(&outcome), [("claimed", None)]);
    assert!(outcome.text().contains("works on process 102"), "{}", outcome.text());
    drop(held);
    assert_eq!(suspend(&world.context(), &world.pids(), Duration::from_secs(5)).exit, Exit::Done);
}

#[test]
fn a_hundred_processes_are_looked_at_in_less_than_a_second() {
    let world = World::of((0..100_u8).map(|number| {
        let pid = 1000 + i32::from(number);
        Process::new(pid)
            .makes(number, 1)
            .imports(number.wrapping_add(1) % 100, 1000 + (i32::from(number) + 1) % 100)
    }));
    let begun = Instant::now();
    let outcome = check(&world.context(), &world.pids(), false);
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.text());
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}
