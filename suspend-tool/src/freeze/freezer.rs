//! Freezing all threads of processes, in the process that traces them.
//!
//! ```text
//!   seize --> asked --(stops)--> still --> let go
//!               |  \--(a signal is about to be delivered)--> goes on with it, and stops behind it
//!               \---(in a system call that cannot be interrupted: a vfork)--> counts as still: it stops before it
//!                    runs anything of its program, and if it is let go before that, it is not stopped at all
//! ```
//!
//! Threads are born and die meanwhile. A process is frozen when a look at its threads that began after all known ones had
//! stopped finds no further one: only a thread that runs can start another.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use super::ptrace::{self, Change};
use super::{NotFrozen, Order, tracers};
use crate::pid::Pid;
use crate::proc::{ProcFs, TaskState};

/// How long a thread may take to stop.
const PATIENCE: Duration = Duration::from_secs(5);
/// From when on a thread that cannot be interrupted counts as stopped.
const UNINTERRUPTIBLE: Duration = Duration::from_millis(50);
/// How long to wait for a change before looking again.
const GLANCE: Duration = Duration::from_millis(1);

/// Where a traced thread stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    /// It was asked to stop.
    Asked,
    /// It has.
    Still,
    /// It is to be let go as soon as it stops.
    Leaving,
}

#[derive(Clone, Copy, Debug)]
struct Thread {
    process: Pid,
    held: Held,
}

/// All threads that this process traces.
#[derive(Debug)]
pub struct Freezer {
    proc: ProcFs,
    threads: BTreeMap<i32, Thread>,
    /// Children of this process that have ended, with their status.
    ended: Vec<(i32, i32)>,
}

impl Freezer {
    /// One that holds nothing.
    pub fn new(proc: ProcFs) -> Self {
        Self { proc, threads: BTreeMap::new(), ended: Vec::new() }
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// The children that have ended since this was asked last.
    pub fn take_ended(&mut self) -> Vec<(i32, i32)> {
        std::mem::take(&mut self.ended)
    }

    /// Freezes all these processes, or none.
    pub fn freeze(&mut self, orders: &[Order]) -> Result<(), Vec<(Pid, NotFrozen)>> {
        let result = self.try_freeze(orders);
        if result.is_err() {
            self.thaw();
        }
        result
    }

    fn try_freeze(&mut self, orders: &[Order]) -> Result<(), Vec<(Pid, NotFrozen)>> {
        let begun = Instant::now();
        loop {
            let still_before = self.all_still(begun.elapsed());
            let mut fresh = false;
            let mut failed = Vec::new();
            for order in orders {
                match self.take(order) {
                    Ok(found) => fresh |= found,
                    Err(error) => failed.push((order.target.pid, error)),
                }
            }
            if !failed.is_empty() {
                return Err(failed);
            }
            if still_before && !fresh {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err(self.stubborn());
            }
            wait_for_change();
            self.look();
        }
    }

    /// Begins to trace the threads of a process that are not traced yet. Whether there were any.
    fn take(&mut self, order: &Order) -> Result<bool, NotFrozen> {
        let pid = order.target.pid;
        if !self.proc.lives(order.target) {
            return Err(NotFrozen::Gone);
        }
        let mut fresh = false;
        for tid in self.proc.threads(pid).map_err(|_| NotFrozen::Gone)? {
            if order.spared.contains(&tid) {
                continue;
            }
            if let Some(thread) = self.threads.get_mut(&tid) {
                // Frozen anew before it has noticed that it was let go.
                if thread.held == Held::Leaving {
                    thread.held = Held::Asked;
                }
                continue;
            }
            match ptrace::seize(tid).and_then(|()| ptrace::interrupt(tid)) {
                Ok(()) => {
                    self.threads.insert(tid, Thread { process: pid, held: Held::Asked });
                    fresh = true;
                }
                Err(error) => self.refused(pid, tid, &error)?,
            }
        }
        Ok(fresh)
    }

    /// Why a thread could not be seized; nothing where that is because it ends, or is the kernel's own.
    fn refused(&self, pid: Pid, tid: i32, error: &io::Error) -> Result<(), NotFrozen> {
        let Some(task) = self.proc.task(pid, tid) else { return Ok(()) };
        if task.state == TaskState::Ended || task.is_kernels || error.raw_os_error() == Some(libc::ESRCH) {
            return Ok(());
        }
        if error.raw_os_error() != Some(libc::EPERM) {
            return Err(NotFrozen::System { tid, reason: error.to_string() });
        }
        match tracers::of(&self.proc, pid)
            .into_iter()
            .find(|tracer| tracer.tid == tid || !self.is_own(tracer))
        {
            Some(tracer) => Err(NotFrozen::Traced { tid: tracer.tid, tracer: tracer.pid, name: tracer.name }),
            None => Err(NotFrozen::Denied),
        }
    }

    fn is_own(&self, tracer: &tracers::Tracer) -> bool {
        u32::try_from(tracer.pid) == Ok(std::process::id())
    }

    /// Whether all traced threads stand still, `after` they were asked.
    fn all_still(&self, after: Duration) -> bool {
        self.threads.iter().all(|(tid, thread)| match thread.held {
            Held::Still => true,
            Held::Asked => {
                let task = || self.proc.task(thread.process, *tid);
                after > UNINTERRUPTIBLE && task().is_none_or(|task| task.state == TaskState::Uninterruptible)
            }
            Held::Leaving => false,
        })
    }

    fn stubborn(&self) -> Vec<(Pid, NotFrozen)> {
        let moving = self.threads.iter().filter(|(_, thread)| thread.held != Held::Still);
        let told = moving.map(|(&tid, thread)| {
            let task = self.proc.task(thread.process, tid);
            let (name, state) =
                task.map_or_else(|| (String::new(), '?'), |task| (task.name.clone(), task.letter));
            (thread.process, NotFrozen::Stubborn { tid, name, state })
        });
        told.collect()
    }

    /// Lets everything go. What cannot be stopped at the moment is let go when it can.
    pub fn thaw(&mut self) {
        self.look();
        self.threads.retain(|&tid, thread| match thread.held {
            Held::Still => {
                // One that cannot be let go has been killed; its end is waited for like that of the others.
                ptrace::let_go(tid, 0).is_err()
            }
            Held::Asked | Held::Leaving => {
                thread.held = Held::Leaving;
                true
            }
        });
    }

    /// Takes notice of what has changed.
    pub fn look(&mut self) {
        while let Some((tid, change)) = ptrace::next_change() {
            let Some(thread) = self.threads.get_mut(&tid) else {
                if let Change::Ended(status) = change {
                    self.ended.push((tid, status));
                }
                continue;
            };
            let gone = match (change, thread.held) {
                (Change::Ended(_), _) => true,
                (Change::Stopped, Held::Leaving) => ptrace::let_go(tid, 0).is_ok(),
                (Change::Signal(signal), Held::Leaving) => ptrace::let_go(tid, signal).is_ok(),
                (Change::Stopped, _) => {
                    thread.held = Held::Still;
                    false
                }
                // The stop that was asked for comes behind the signal.
                (Change::Signal(signal), _) => {
                    let _ = ptrace::go_on(tid, signal);
                    false
                }
            };
            if gone {
                self.threads.remove(&tid);
            }
        }
    }
}

/// Waits a little, or until the kernel tells of a change: SIGCHLD is blocked here.
fn wait_for_change() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: i64::from(GLANCE.subsec_nanos()) };
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: writes the whole set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: an initialised set.
    unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD) };
    // SAFETY: an initialised set and a time; what came is not asked for.
    unsafe { libc::sigtimedwait(set.as_ptr(), std::ptr::null_mut(), &raw const time) };
}
