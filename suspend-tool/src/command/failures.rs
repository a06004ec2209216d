//! Whatever fails, everything runs again, or the command says what finishes the job.
//!
//! The calls of a suspend and of a resume are taken from a run that succeeds; then each of them is made to fail once.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

use super::{Context, Exit, Outcome, resume, suspend};
use crate::interrupt::Signal;
use crate::simulated::{Call, Fault, Process, World};

const TIMEOUT: Duration = Duration::from_secs(5);

fn suspended(world: &World, context: &Context) -> Outcome {
    suspend(context, &world.pids(), TIMEOUT)
}

fn resumed(world: &World) -> Outcome {
    resume(&world.context(), &world.pids(), None)
}

/// Three processes, one of which has memory whose maker is gone and shares it with another.
fn world() -> World {
    World::of([
        Process::new(101).makes(1, 11).makes(2, 22),
        Process::new(102).imports(1, 101).makes(3, 33).imports(9, 50),
        Process::new(103).imports(9, 50),
    ])
}

/// Every call that `run` makes, in order.
fn calls_of(world: &World, run: impl FnOnce(&World)) -> Vec<Call> {
    let before = world.inner().calls.len();
    run(world);
    world.inner().calls.split_off(before)
}

#[test]
fn processes_are_suspended_and_come_back_as_they_were() {
    let world = world();
    for _ in 0..3 {
        let outcome = suspended(&world, &world.context());
        assert_eq!(outcome.exit, Exit::Done, "{}", outcome.text());
        assert_eq!(world.not_suspended(), Vec::<String>::new());
        assert_eq!(world.records(), ["101.json"]);
        let outcome = resumed(&world);
        assert_eq!(outcome.exit, Exit::Done, "{}", outcome.text());
        assert_eq!(world.damage(), Vec::<String>::new());
        assert_eq!(world.records(), Vec::<String>::new());
    }
}

#[test]
fn a_suspend_that_fails_at_any_call_is_undone() {
    suspend_fails_at_every_call(false);
}

/// An import that outlives the memory it was of is found by what the processes hold, not by what was asked of them.
#[test]
fn also_when_memory_is_dropped_before_everybody_has_saved_theirs() {
    suspend_fails_at_every_call(true);
}

fn suspend_fails_at_every_call(all_at_once: bool) {
    let calls = calls_of(&world(), |world| drop(suspended(world, &world.context())));
    assert!(calls.len() > 30, "{calls:?}");
    for call in calls {
        for fault in [Fault::Before, Fault::After] {
            let world = world();
            world.inner().all_at_once = all_at_once;
            world.fail(call.clone(), fault);
            let outcome = suspended(&world, &world.context());
            let text = outcome.text();
            assert!(matches!(outcome.exit, Exit::Failed | Exit::Refused), "{call:?} {fault:?}: {text}");
            assert_eq!(world.damage(), Vec::<String>::new(), "{call:?} {fault:?}: {text}");
            assert_eq!(world.records(), Vec::<String>::new(), "{call:?} {fault:?}");
            assert!(text.contains(&call.pid.to_string()), "{call:?} {fault:?} names no process: {text}");
            let again = suspended(&world, &world.context());
            assert_eq!(again.exit, Exit::Done, "{call:?} {fault:?}: {}", again.text());
        }
    }
}

#[test]
fn a_resume_that_fails_at_any_call_is_finished_by_a_second_one() {
    let first = world();
    assert_eq!(suspended(&first, &first.context()).exit, Exit::Done);
    let calls = calls_of(&first, |world| drop(resumed(world)));
    assert!(calls.len() > 30, "{calls:?}");
    for call in calls {
        for fault in [Fault::Before, Fault::After] {
            let world = world();
            assert_eq!(suspended(&world, &world.context()).exit, Exit::Done);
            // The count of a call goes on from the suspend.
            world.fail(call.clone(), fault);
            let outcome = resumed(&world);
            let text = outcome.text();
            match outcome.exit {
                // The call that failed told only what had become of it.
                Exit::Done | Exit::Failed => {}
                Exit::Refused => assert_eq!(world.not_suspended(), Vec::<String>::new(), "{call:?}"),
                Exit::Unfinished => {
                    assert!(text.contains("nvsnap-gpu-suspend resume 101 102 103"), "{call:?}: {text}");
                }
                Exit::Usage => panic!("{call:?}: {text}"),
            }
            let second = resumed(&world);
            assert_eq!(second.exit, Exit::Done, "{call:?} {fault:?}: {}", second.text());
            assert_eq!(world.damage(), Vec::<String>::new(), "{call:?} {fault:?}");
        }
    }
}

#[test]
fn when_the_undo_fails_too_the_command_that_is_named_finishes_the_job() {
    // The suspend fails at its last stage, so that everything has to be undone.
    let broken = Call { pid: 103, what: "cuCheckpointProcessCheckpoint", nth: 1 };
    let failing = world();
    failing.fail(broken.clone(), Fault::Before);
    let calls = calls_of(&failing, |world| drop(suspended(world, &world.context())));
    let at = calls.iter().position(|call| *call == broken).unwrap();
    for call in calls.into_iter().skip(at + 1) {
        let world = world();
        world.fail(broken.clone(), Fault::Before);
        world.fail(call.clone(), Fault::Before);
        let outcome = suspended(&world, &world.context());
        let text = outcome.text();
        assert!(matches!(outcome.exit, Exit::Failed | Exit::Unfinished), "{call:?}: {text}");
        if outcome.exit == Exit::Unfinished {
            assert!(text.contains("to finish: nvsnap-gpu-suspend resume 101 102 103"), "{call:?}: {text}");
            // Where only the last look failed there is nothing left to be finished.
            if !world.damage().is_empty() {
                let again = suspended(&world, &world.context());
                assert_eq!(again.exit, Exit::Refused, "{call:?}: {}", again.text());
            }
        }
        let second = resumed(&world);
        assert_eq!(second.exit, Exit::Done, "{call:?}: {}", second.text());
        assert_eq!(world.damage(), Vec::<String>::new(), "{call:?}");
    }
}

#[test]
fn a_signal_at_any_moment_of_a_suspend_undoes_it() {
    for moment in 1.. {
        let world = world();
        let asked = Cell::new(0);
        let context = world.interrupted_by(move || {
            asked.set(asked.get() + 1);
            (asked.get() == moment).then_some(Signal(libc::SIGTERM))
        });
        let outcome = suspended(&world, &context);
        if outcome.exit == Exit::Done {
            assert!(moment > 8, "only {moment} moments were tried");
            break;
        }
        assert_eq!(outcome.exit, Exit::Failed, "{}", outcome.text());
        assert!(outcome.text().contains("SIGTERM"), "{}", outcome.text());
        assert_eq!(world.damage(), Vec::<String>::new(), "moment {moment}");
    }
}

#[test]
fn a_signal_during_a_resume_does_not_leave_it_half_done() {
    let world = world();
    assert_eq!(suspended(&world, &world.context()).exit, Exit::Done);
    let context = world.interrupted_by(|| Some(Signal(libc::SIGINT)));
    let outcome = resume(&context, &world.pids(), None);
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.text());
    assert_eq!(world.damage(), Vec::<String>::new());
}

#[test]
fn the_others_run_again_when_one_dies_of_a_suspend() {
    let calls = calls_of(&world(), |world| drop(suspended(world, &world.context())));
    let until_release =
        |call: &Call| !matches!(call.what, "cuCheckpointProcessLock" | "cuCheckpointProcessCheckpoint");
    // Nobody imports from 103; when the maker of shared memory dies with the only copy, that memory is lost.
    for call in calls.iter().filter(|call| call.pid == 103 && until_release(call)) {
        let world = world();
        world.fail(call.clone(), Fault::Dies);
        let outcome = suspended(&world, &world.context());
        assert!(matches!(outcome.exit, Exit::Failed | Exit::Refused), "{call:?}: {}", outcome.text());
        assert_eq!(world.damage(), Vec::<String>::new(), "{call:?}");
        assert_eq!(world.pids().len(), 2);
    }
}

#[test]
fn one_that_dies_with_memory_of_others_leaves_them_named() {
    let world = world();
    world.fail(Call { pid: 101, what: "cuCheckpointProcessCheckpoint", nth: 1 }, Fault::Dies);
    let outcome = suspended(&world, &world.context());
    let text = outcome.text();
    assert_eq!(outcome.exit, Exit::Unfinished, "{text}");
    assert!(text.contains("ended meanwhile: process 101"), "{text}");
    assert!(text.contains("process 102: phase loaded, driver state running"), "{text}");
    assert!(text.contains("to finish: nvsnap-gpu-suspend resume 102 103"), "{text}");
}

#[test]
fn stages_follow_each_other_on_all_processes() {
    let world = world();
    let suspending = calls_of(&world, |world| drop(suspended(world, &world.context())));
    let resuming = calls_of(&world, |world| drop(resumed(world)));
    let in_order = |calls: &[Call], order: &[&str]| {
        let stages: Vec<usize> =
            calls.iter().filter_map(|call| order.iter().position(|what| *what == call.what)).collect();
        assert!(stages.is_sorted(), "{calls:?}");
        assert_eq!(stages.iter().collect::<BTreeSet<_>>().len(), order.len(), "{calls:?}");
    };
    in_order(
        &suspending,
        &["quiesce", "release", "cuCheckpointProcessLock", "cuCheckpointProcessCheckpoint"],
    );
    in_order(
        &resuming,
        &["cuCheckpointProcessRestore", "cuCheckpointProcessUnlock", "load", "remap", "reopen"],
    );
}

#[test]
fn threads_that_a_restore_waits_for_are_let_go_on() {
    let world = world();
    assert_eq!(suspended(&world, &world.context()).exit, Exit::Done);
    world.inner().processes.get_mut(&102).unwrap().restore_needs_threads = true;
    let outcome = resumed(&world);
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.text());
    assert_eq!(world.damage(), Vec::<String>::new());
}

#[test]
fn a_verb_that_a_killed_command_left_at_work_is_waited_for() {
    let world = world();
    assert_eq!(suspended(&world, &world.context()).exit, Exit::Done);
    {
        let mut inner = world.inner();
        for process in inner.processes.values_mut() {
            process.state = cuda_sys::ProcessState::RUNNING;
        }
        inner.processes.get_mut(&102).unwrap().at_work = 5;
    }
    let outcome = resumed(&world);
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.text());
    assert_eq!(world.damage(), Vec::<String>::new());
}
