//! Who traces which thread, and letting go what a holder holds. The kernel knows; nothing is remembered.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::{Pid as KernelPid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::NotFrozen;
use crate::pid::{Pid, Target};
use crate::proc::ProcFs;

/// The name by which a holder is known.
pub const HOLDER: &std::ffi::CStr = c"nvsnap-holder";
/// How long a holder may take to let go.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often to look.
const GLANCE: Duration = Duration::from_millis(2);

/// A process that traces threads of another.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Tracer {
    /// Its number.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// One of the threads it traces.
    pub tid: i32,
}

impl Tracer {
    /// Whether it is a holder of this command's.
    pub fn is_holder(&self) -> bool {
        self.name.as_bytes() == HOLDER.to_bytes()
    }
}

/// Who traces threads of this process, each with one of the threads.
pub fn of(proc: &ProcFs, pid: Pid) -> Vec<Tracer> {
    let mut found: Vec<Tracer> = Vec::new();
    for tid in proc.threads(pid).unwrap_or_default() {
        let Some(tracer) = proc.tracer(pid, tid) else { continue };
        if !found.iter().any(|known| known.pid == tracer) {
            let name = Pid::new(tracer).and_then(|tracer| proc.stat(tracer).ok()).map(|stat| stat.name);
            found.push(Tracer { pid: tracer, name: name.unwrap_or_default(), tid });
        }
    }
    found
}

/// Has every holder of threads of these processes let go, and waits until it has.
pub fn dismiss(proc: &ProcFs, targets: &[Target]) -> Result<(), Vec<(Pid, NotFrozen)>> {
    let deadline = Instant::now() + PATIENCE;
    let mut told = BTreeSet::new();
    loop {
        let mut held = Vec::new();
        for target in targets.iter().filter(|target| proc.lives(**target)) {
            for tracer in of(proc, target.pid).into_iter().filter(Tracer::is_holder) {
                if told.insert(tracer.pid) {
                    tell(tracer.pid);
                }
                held.push((target.pid, tracer));
            }
        }
        if held.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            let failed =
                |(pid, Tracer { pid: tracer, name, tid })| (pid, NotFrozen::Traced { tid, tracer, name });
            return Err(held.into_iter().map(failed).collect());
        }
        std::thread::sleep(GLANCE);
    }
}

/// Asks a holder to let go. One that is gone has.
fn tell(holder: i32) {
    let Some(pid) = KernelPid::from_raw(holder) else { return };
    if let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) {
        let _ = pidfd_send_signal(&fd, Signal::TERM);
        // One that somebody has stopped takes no notice before it goes on.
        let _ = pidfd_send_signal(&fd, Signal::CONT);
    }
}
