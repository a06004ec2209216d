//! `kill`: suspend first, then end.
//!
//! A process that the driver has restored and that uses its GPU is not killed as it is: that has been reported to hang
//! hosts. Suspended, it has nothing on any GPU.

use std::time::Duration;

use rustix::process::Signal;

use super::stopped::{Stopped, send, wait_until};
use super::suspend::{are_suspended, suspend_held};
use super::{Context, Exit, Outcome};
use crate::cli::SaveArgs;
use crate::pid::{Pid, Target, named};
use crate::state::Record;

const VERB: &str = "kill";

/// Suspends these processes unless they are, and ends them.
pub(super) fn kill(context: &Context, pids: &[Pid], timeout: Duration) -> Outcome {
    let held = match context.hold(pids) {
        Ok(held) => held,
        Err(finding) => return Outcome::refused(VERB, vec![finding]).about(pids.to_vec()),
    };
    let proc = &context.machine.proc;
    let boot = proc.boot_id().unwrap_or_default();
    let records = Record::of(&held.state, &boot, pids).unwrap_or_default();
    // What is stopped cannot answer. It is found stopped again unless it ends.
    let _stopped = Stopped::go_on(proc, pids, &records);
    let (seen, _) = context.machine.look_at(pids, false);
    if !are_suspended(&seen) {
        let suspended = suspend_held(context, pids, timeout, &SaveArgs::default(), &held);
        if suspended.exit != Exit::Done {
            return Outcome { verb: VERB, ..suspended };
        }
    }
    let targets: Vec<Target> = seen.iter().filter(|seen| seen.takes_part()).map(|seen| seen.target).collect();
    if let Err(error) = context.begin(&held) {
        return Outcome::failed(VERB, &error).about(pids.to_vec());
    }
    for target in &targets {
        send(proc, *target, Signal::KILL);
    }
    wait_until(|| !targets.iter().any(|target| proc.lives(*target)));
    let left: Vec<Pid> =
        targets.iter().filter(|target| proc.lives(**target)).map(|target| target.pid).collect();
    if !left.is_empty() {
        let text = format!("suspended and not ended: {}", named(left));
        return Outcome::new(VERB, Exit::Unfinished, text).about(pids.to_vec());
    }
    for record in Record::of(&held.state, &boot, pids).unwrap_or_default() {
        if !record.targets.iter().any(|target| proc.lives(*target)) {
            // One that stays would be looked at in vain, no more.
            let _ = record.remove(&held.state);
        }
    }
    let ended = named(targets.iter().map(|target| target.pid));
    Outcome::new(VERB, Exit::Done, format!("ended {ended}")).about(pids.to_vec())
}
