//! The same thing on all processes at once.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::Trouble;
use crate::pid::{Pid, Target};
use crate::report::Stage;

/// What came of it for one process.
#[derive(Debug)]
pub struct Arrival<T> {
    /// The process.
    pub target: Target,
    /// What came of it.
    pub result: Result<T, Trouble>,
    /// How long it took.
    pub took: Duration,
}

/// What came of it for all processes, each part in order of time.
#[derive(Debug)]
pub struct Outcome<T> {
    /// Where it went well.
    pub done: Vec<(Pid, T)>,
    /// Where it did not.
    pub failed: Vec<(Pid, Trouble)>,
}

impl<T> From<Vec<Arrival<T>>> for Outcome<T> {
    fn from(arrivals: Vec<Arrival<T>>) -> Self {
        let mut outcome = Self { done: Vec::new(), failed: Vec::new() };
        for Arrival { target, result, .. } in arrivals {
            match result {
                Ok(value) => outcome.done.push((target.pid, value)),
                Err(trouble) => outcome.failed.push((target.pid, trouble)),
            }
        }
        outcome
    }
}

/// Runs `task` for all targets at once and returns when all have come back, in the order in which they did. One that
/// has not come back after `limit` is given up: its thread stays, since a call into the driver cannot be taken back.
///
/// `seen` is called for each as it comes.
pub fn in_parallel<T: Send + 'static>(
    stage: Stage,
    targets: &[Target],
    limit: Duration,
    task: impl Fn(Target) -> Result<T, Trouble> + Send + Sync + 'static,
    mut seen: impl FnMut(&Arrival<T>),
) -> Vec<Arrival<T>> {
    let task = Arc::new(task);
    let begun = Instant::now();
    let (send, receive) = channel();
    let mut arrivals = Vec::with_capacity(targets.len());
    let mut awaited: Vec<Target> = Vec::with_capacity(targets.len());
    for &target in targets {
        let (task, send) = (Arc::clone(&task), send.clone());
        let body = move || {
            let begun = Instant::now();
            let result = task(target);
            // Nobody listens any more when this one was given up.
            let _ = send.send(Arrival { target, result, took: begun.elapsed() });
        };
        let thread = std::thread::Builder::new().name(format!("{stage} {}", target.pid));
        match thread.spawn(body) {
            Ok(_) => awaited.push(target),
            Err(source) => {
                let trouble = Trouble::NoThread { pid: target.pid, stage, source };
                arrivals.push(Arrival { target, result: Err(trouble), took: Duration::ZERO });
            }
        }
    }
    drop(send);
    while !awaited.is_empty() {
        let left = limit.saturating_sub(begun.elapsed());
        match receive.recv_timeout(left) {
            Ok(arrival) => {
                awaited.retain(|target| *target != arrival.target);
                seen(&arrival);
                arrivals.push(arrival);
            }
            // Disconnected: a task ended without a word, by a panic.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    for target in awaited {
        let trouble = Trouble::Hung { pid: target.pid, stage, limit };
        let arrival = Arrival { target, result: Err(trouble), took: begun.elapsed() };
        seen(&arrival);
        arrivals.push(arrival);
    }
    arrivals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets() -> Vec<Target> {
        (1..=4).map(|number| Target { pid: Pid::new(number).unwrap(), start: 0 }).collect()
    }

    #[test]
    fn all_run_at_once() {
        let all_there = Arc::new(std::sync::Barrier::new(4));
        let arrivals = in_parallel(
            Stage::Lock,
            &targets(),
            Duration::from_secs(60),
            move |target| {
                all_there.wait();
                Ok(target.pid)
            },
            |_| {},
        );
        assert_eq!(arrivals.len(), 4);
        assert!(arrivals.iter().all(|arrival| arrival.result.is_ok()));
    }

    #[test]
    fn one_that_does_not_come_back_is_named_and_the_others_are_kept() {
        let (never, gate) = std::sync::mpsc::channel::<()>();
        let gate = std::sync::Mutex::new(gate);
        let arrivals = in_parallel(
            Stage::Lock,
            &targets(),
            Duration::from_millis(200),
            move |target| {
                if target.pid.number() == 3 {
                    // Blocks until the test is over.
                    let _ = gate.lock().unwrap().recv();
                }
                Ok(())
            },
            |_| {},
        );
        let late: Vec<_> = arrivals.iter().filter(|arrival| arrival.result.is_err()).collect();
        assert_eq!(late.len(), 1);
        assert_eq!(late[0].target.pid.number(), 3);
        assert!(matches!(late[0].result, Err(Trouble::Hung { .. })));
        drop(never);
    }
}
