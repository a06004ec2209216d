//! Coming to rest: launches that have to be let through, copies that are needed, and work that never ends.

use std::time::Duration;

use super::{Exit, suspend};
use crate::simulated::{Process, World};

fn launched(world: &World) -> Vec<(i32, u32)> {
    world.inner().processes.values().map(|process| (process.pid, process.launched)).collect()
}

#[test]
fn held_launches_are_let_through_only_where_they_help() {
    let mut busy = Process::new(101).makes(1, 11);
    busy.waits_for = Some((102, 3));
    let mut peer = Process::new(102).imports(1, 101);
    peer.held = 10;
    // Shares nothing with the two.
    let mut stranger = Process::new(103).makes(3, 33);
    stranger.held = 10;
    let world = World::of([busy, peer, stranger]);
    let outcome = suspend(&world.context(), &world.pids(), Duration::from_secs(20));
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.text());
    assert_eq!(launched(&world), [(101, 0), (102, 3), (103, 0)]);
    assert_eq!(outcome.tally.unwrap().0.steps, 3);
}

#[test]
fn the_launch_that_helps_may_be_held_in_the_busy_process_itself() {
    let mut busy = Process::new(101).makes(1, 11);
    busy.waits_for = Some((101, 2));
    busy.held = 5;
    let mut peer = Process::new(102).imports(1, 101);
    peer.held = 5;
    let world = World::of([busy, peer]);
    let outcome = suspend(&world.context(), &world.pids(), Duration::from_secs(20));
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.text());
    let counts = launched(&world);
    assert_eq!(counts[0], (101, 2));
    assert!(counts[1].1 >= 2, "the idle one comes first: {counts:?}");
}

#[test]
fn processes_that_are_connected_by_what_nobody_sees_help_each_other_too() {
    let mut busy = Process::new(101).makes(1, 11);
    busy.waits_for = Some((102, 1));
    let mut peer = Process::new(102).makes(2, 22);
    peer.held = 5;
    let world = World::of([busy, peer]);
    let outcome = suspend(&world.context(), &world.pids(), Duration::from_secs(20));
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.text());
    assert_eq!(launched(&world), [(101, 0), (102, 1)]);
}

#[test]
fn copies_that_are_needed_are_let_through_before_it_is_tried_again() {
    let mut busy = Process::new(101).makes(1, 11);
    busy.needs_copies = 2;
    let world = World::of([busy, Process::new(102).imports(1, 101)]);
    let outcome = suspend(&world.context(), &world.pids(), Duration::from_secs(20));
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.text());
    assert_eq!(world.not_suspended(), Vec::<String>::new());
}

#[test]
fn work_that_never_ends_is_named_and_everything_runs_again() {
    let mut busy = Process::new(101).makes(1, 11);
    busy.waits_for = Some((102, 3));
    busy.held = 2;
    let world = World::of([busy, Process::new(102).imports(1, 101)]);
    let outcome = suspend(&world.context(), &world.pids(), Duration::from_millis(700));
    assert_eq!(outcome.exit, Exit::Failed, "{}", outcome.text());
    let text = outcome.text();
    for part in ["did not come to rest within 0.7 s", "process 101", "device 0"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("process 102:"), "{text}");
    assert_eq!(world.damage(), Vec::<String>::new());
}
