//! Processes that are stopped by job control: stopping whole processes, and continuing them for a resume.
//!
//! A stopped process cannot answer, so it is continued before anything else is done about it; its threads meet the closed
//! gate. One that somebody else has stopped is stopped again in the end.

use std::time::{Duration, Instant};

use rustix::process::{Pid as KernelPid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::pid::{Pid, Target};
use crate::proc::{ProcFs, TaskState};
use crate::state::Record;

/// How long a process may take to stop or to go on.
const PATIENCE: Duration = Duration::from_secs(10);
const GLANCE: Duration = Duration::from_millis(2);

/// Processes that are to be stopped again when this is dropped.
#[derive(Debug)]
pub(super) struct Stopped {
    again: Vec<Target>,
    /// Those that were stopped for a while only, by `stop`.
    for_now: Vec<Target>,
}

impl Stopped {
    /// Continues those of these processes that are stopped.
    pub(super) fn go_on(proc: &ProcFs, pids: &[Pid], records: &[Record]) -> Self {
        let (mut again, mut for_now) = (Vec::new(), Vec::new());
        for &pid in pids {
            let Ok(stat) = proc.stat(pid) else { continue };
            if !proc.is_stopped(pid, stat.state) {
                continue;
            }
            let target = Target { pid, start: stat.start };
            send(proc, target, Signal::CONT);
            wait_until(|| proc.stat(pid).map_or(true, |stat| !proc.is_stopped(pid, stat.state)));
            // Without a record of this boot it comes from an image, which was made of a process that `stop` had stopped.
            let record = records.iter().find(|record| record.targets.contains(&target));
            let of_somebody_else = record.is_some_and(|record| !record.stopped);
            if of_somebody_else { &mut again } else { &mut for_now }.push(target);
        }
        Self { again, for_now }
    }

    /// Those that `stop` has stopped are not to be stopped again: they are brought back.
    pub(super) fn go_on_for_good(&mut self) {
        self.for_now.clear();
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for target in self.again.iter().chain(&self.for_now) {
            send(&ProcFs::default(), *target, Signal::STOP);
        }
    }
}

/// Stops these processes. Their threads stop when nobody holds them any more; see [`all_stopped`].
pub(super) fn stop(proc: &ProcFs, targets: &[Target]) {
    for target in targets {
        send(proc, *target, Signal::STOP);
    }
}

/// Waits until every thread of these processes is stopped and nobody holds it. Those that are not are returned.
pub(super) fn all_stopped(proc: &ProcFs, targets: &[Target]) -> Vec<Pid> {
    let is_stopped = |target: &Target| {
        let threads = proc.threads(target.pid).unwrap_or_default();
        threads.into_iter().all(|tid| {
            let state = proc.task(target.pid, tid).map(|task| task.state);
            matches!(state, None | Some(TaskState::Stopped | TaskState::Ended))
        })
    };
    wait_until(|| targets.iter().all(is_stopped));
    targets.iter().filter(|target| !is_stopped(target)).map(|target| target.pid).collect()
}

/// Sends a signal to a process, and to no later one of its number.
pub(super) fn send(proc: &ProcFs, target: Target, signal: Signal) {
    let Some(pid) = KernelPid::from_raw(target.pid.number()) else { return };
    let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if proc.lives(target) {
        // One that has ended meanwhile needs no signal.
        let _ = pidfd_send_signal(&fd, signal);
    }
}

/// Looks until it is so, or the time is up.
pub(super) fn wait_until(is_so: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(GLANCE);
    }
    true
}
