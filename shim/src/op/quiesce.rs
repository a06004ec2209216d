//! `quiesce`: closes gates, and looks whether all work has drained.
//!
//! Work has drained when no call that could start any is under way, no stream records, and every context has
//! finished what it was given before that. In this order: a call that gets in after the gate has closed is none,
//! and a context is only asked once nothing can be given to it any more by what was closed.

use std::thread;
use std::time::{Duration, Instant};

use protocol::{Cause, Drain, Failure, GateLevel, Phase, QuiesceReply, QuiesceRequest, WaitingThread};
use shim_core::gate::{self, CloseError};

use super::Phases;
use crate::{answers, busy, callers, captures, contexts, world};

/// What a look costs where all is idle: a thread for each context, and a driver call on it.
const GLANCE: Duration = Duration::from_millis(2);
/// How long is waited for the names of streams.
const NAMES: Duration = Duration::from_millis(50);
/// How long the worker rests between two looks at who is inside; threads that leave tell nobody.
const FIRST_REST: Duration = Duration::from_micros(50);
const LONGEST_REST: Duration = Duration::from_millis(2);

/// Closes the gates up to the level asked for, and waits for the drain.
pub(crate) fn run(request: &QuiesceRequest, phases: &Phases) -> Result<QuiesceReply, Failure> {
    gate::close(request.level).map_err(|error| refused(error, phases.get()))?;
    // A gate that is closed further stays so, and its drain is what counts.
    let level = gate::closed().unwrap_or(request.level);
    let mut drain = drain(level, milliseconds(request.wait_ms));
    // A question to a stream needs that nobody destroys it, and invalidates a capture in its context.
    let may_ask = level == GateLevel::Memory && drain.inside == 0 && drain.captures == 0;
    if request.name_streams && !drain.drained && may_ask {
        drain.streams = busy::streams(NAMES);
    }
    tell_apart(&mut drain);
    Ok(QuiesceReply { drain })
}

/// Says of each thread that waits whether its stream has work that has not ended: of those that work goes on where they have
/// caught up, and those whose work waits for others.
fn tell_apart(drain: &mut Drain) {
    if drain.drained {
        drain.waiting.iter_mut().for_each(|waiting| waiting.unfinished = Some(false));
        return;
    }
    // No capture begins meanwhile: who would begin one is held.
    if drain.captures != 0 || gate::inside().launches != 0 {
        return;
    }
    let caller = |waiting: &WaitingThread| callers::of(waiting.tid, &waiting.call);
    let callers: Vec<_> = drain.waiting.iter().map(caller).collect();
    if callers.iter().all(Option::is_none) {
        return;
    }
    for (waiting, unfinished) in drain.waiting.iter_mut().zip(busy::unfinished(callers, NAMES)) {
        waiting.unfinished = unfinished;
    }
}

pub(super) const fn milliseconds(count: u32) -> Duration {
    Duration::from_millis(count as u64)
}

/// Waits for at most `wait` until all work has drained that a gate closed at `level` lets nobody add to.
pub(super) fn drain(level: GateLevel, wait: Duration) -> Drain {
    let deadline = Instant::now() + wait.max(GLANCE);
    let mut rest = FIRST_REST;
    loop {
        if is_quiet(level) {
            let found = contexts::look().wait(deadline);
            // Work that was given while this took is work of calls that are still held, or of none.
            if found.error.is_some() || found.idle() && is_quiet(level) {
                if found.error.is_none() && level == GateLevel::Memory {
                    // What nobody holds any more goes now, before whoever plans a suspend counts on it.
                    world::sweep_all();
                }
                let error = found.error.map(cuda_sys::CuError::raw);
                return Drain { drained: error.is_none(), contexts: found.contexts, error, ..look() };
            }
            if Instant::now() >= deadline {
                return Drain { contexts: found.contexts, ..look() };
            }
        } else if Instant::now() >= deadline {
            return look();
        }
        thread::sleep(rest);
        rest = (rest * 2).min(LONGEST_REST);
    }
}

/// Whether nobody is inside a call that a gate closed at `level` holds, and no stream records.
fn is_quiet(level: GateLevel) -> bool {
    // Who is inside first: a capture that has begun by then is recorded.
    let inside = gate::inside();
    let calls = inside.launches + if level == GateLevel::Memory { inside.objects } else { 0 };
    if calls == 0 {
        captures::sweep();
    }
    calls == 0 && captures::active() == 0
}

/// What is known without asking anybody: who is inside, who waits, what was still busy when last looked at.
pub(crate) fn look() -> Drain {
    let mut waiting = Vec::new();
    gate::waiting(|seen| {
        waiting.push(WaitingThread {
            tid: seen.thread.cast_signed(),
            call: seen.call.name().to_owned(),
            unfinished: None,
        });
    });
    let inside = gate::inside();
    Drain {
        drained: false,
        contexts: contexts::states(),
        streams: Vec::new(),
        waiting,
        inside: inside.launches + inside.objects,
        captures: captures::active(),
        error: None,
    }
}

/// Holds also the calls that only ask, since the driver must not be asked while what they ask about is gone; from then
/// on they are answered without it where that can be. Returns when none is under way; where some thread stays inside for longer than `wait`, holds them no longer and fails.
pub(crate) fn hold_answers(wait: Duration, phase: Phase) -> Result<(), Failure> {
    if gate::answers_are_held() && answers::are_there() {
        return Ok(());
    }
    gate::suspend_answers().map_err(|error| refused(error, phase))?;
    let deadline = Instant::now() + wait;
    let mut rest = FIRST_REST;
    loop {
        let inside = gate::inside();
        let calls = inside.launches + inside.objects + inside.answers;
        if calls == 0 {
            answers::prepare();
            gate::answer();
            return Ok(());
        }
        if Instant::now() >= deadline {
            resume_answers();
            return Err(Failure {
                cause: Cause::Busy,
                message: format!(
                    "process {}: {calls} calls that wait for work or ask for objects are still under way \
                     although all work of this process has drained: they wait for an event of another process",
                    std::process::id()
                ),
                phase,
            });
        }
        thread::sleep(rest);
        rest = (rest * 2).min(LONGEST_REST);
    }
}

/// Lets calls that only ask through to the driver again.
pub(super) fn resume_answers() {
    gate::resume_answers();
    answers::forget();
}

fn refused(error: CloseError, phase: Phase) -> Failure {
    let message = format!("process {}: the gate was not closed: {error}", std::process::id());
    Failure { cause: Cause::System(error.0), message, phase }
}
