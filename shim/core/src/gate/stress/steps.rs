//! Held calls that are let through one at a time.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::SeqCst;
use std::thread;

use super::{COPY, LAUNCH, Small, until, waiting};
use crate::gate::rule::{LAUNCHES_HELD, OBJECTS_HELD};

#[test]
fn steps_let_threads_through_one_at_a_time_in_the_order_they_came() {
    const COPIER: usize = 9;
    let gate = Small::<8, 8>::new();
    let log = std::sync::Mutex::new(Vec::new());
    gate.close(LAUNCHES_HELD | OBJECTS_HELD).unwrap();
    thread::scope(|scope| {
        for name in 0..3 {
            let (gate, log) = (&gate, &log);
            scope.spawn(move || {
                for _ in 0..2 {
                    let _pass = gate.enter(LAUNCH, || false);
                    log.lock().unwrap().push(name);
                }
            });
            until("one more waiting thread", || waiting(gate).len() == name + 1);
        }
        scope.spawn(|| {
            let _pass = gate.enter(COPY, || false);
            log.lock().unwrap().push(COPIER);
        });
        until("the waiting copy", || waiting(&gate).len() == 4);
        for step in 0..7 {
            assert!(gate.step(None), "step {step}");
            let inside = || gate.inside().launches + gate.inside().objects;
            until("the call", || log.lock().unwrap().len() == step + 1 && inside() == 0);
            // Each comes back for its second launch before the next step.
            until("the waiting threads", || waiting(&gate).len() == 4 - step.saturating_sub(2));
        }
        assert!(!gate.step(None), "nobody waits any more");
    });
    assert_eq!(*log.lock().unwrap(), [0, 1, 2, COPIER, 0, 1, 2]);
}

#[test]
fn a_step_of_a_thread_lets_only_that_through() {
    let gate = Small::<8, 8>::new();
    let through = AtomicU32::new(0);
    gate.close(LAUNCHES_HELD).unwrap();
    thread::scope(|scope| {
        for name in 0..3 {
            let (gate, through) = (&gate, &through);
            scope.spawn(move || {
                let _pass = gate.enter(LAUNCH, || false);
                through.fetch_or(1 << name, SeqCst);
            });
            until("one more waiting thread", || waiting(gate).len() == name + 1);
        }
        let [_, (second, _), _] = waiting(&gate)[..] else { unreachable!("three wait") };
        assert!(gate.step(Some(second)));
        until("the call", || through.load(SeqCst) != 0 && gate.inside().launches == 0);
        assert_eq!(through.load(SeqCst), 0b010);
        assert!(!gate.step(Some(second)), "it does not wait any more");
        assert_eq!(waiting(&gate).len(), 2);
        gate.open(LAUNCHES_HELD);
    });
    assert_eq!(through.load(SeqCst), 0b111);
}
