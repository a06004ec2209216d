//! The gate between the program's driver calls and a suspend.
//!
//! A hook holds a [`Pass`] while it is inside the driver. Closing never waits: it lets no new pass out, and
//! [`inside`] then tells who still holds one. A thread that holds a pass gets further ones although the gate is
//! closed, since the driver calls back into hooked functions. Three leaves close one after the other:
//!
//! ```text
//!            close(Launch)          close(Memory)              suspend_answers()
//!   open ------------------> launches ----------> + memory, objects -----------> + completion, information
//!    ^                          |  ^                    |                                |
//!    |                          |  +--------------------+ reopen_memory()                |
//!    +--------------------------+-----------------------+--------------------------------+ open()
//! ```
//!
//! The begin of a capture closes with the launches; a launch into a stream that records passes a closed gate,
//! since it starts no work and the capture has to come to its end.
//!
//! While the gate is open a call costs two stores to a cache line that only its thread writes, a load of the
//! gate's word, which nobody writes, and a branch. There is no lock. `docs/GATE.md` has the argument why that
//! is enough, and the measured costs.

mod algorithm;
mod linux;
mod machine;
mod rule;
mod slots;
mod waiters;

#[cfg(test)]
mod model;
#[cfg(test)]
mod stress;

use core::fmt;
use core::sync::atomic::Ordering::Acquire;

use protocol::GateLevel;

pub use self::algorithm::Inside;
use self::linux::Linux;
use self::rule::{ALL_HELD, ANSWERED, ANSWERS_HELD, LAUNCHES_HELD, OBJECTS_HELD};
use crate::calls::CallId;

/// Threads with a slot of their own, threads' shared slots, seats for waiting threads.
type ProcessGate = algorithm::Gate<Linux, 512, 64, 1024>;

static GATE: ProcessGate = ProcessGate::new();

/// The right of a thread to be inside a call; given back on drop.
#[must_use = "the call counts as under way only while the pass is held"]
pub struct Pass {
    _pass: algorithm::Pass<'static, Linux>,
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pass")
    }
}

/// A thread at the closed gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// The kernel's id of the thread.
    pub thread: u32,
    /// What it wants to do.
    pub call: CallId,
}

/// The gate could not be closed: the kernel refused `membarrier`, which worked before, with this error. Nothing
/// is held that was not; from now on threads order their accesses themselves, and closing will work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CloseError(pub i32);

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kernel refused membarrier with error {}, try again", self.0)
    }
}

impl core::error::Error for CloseError {}

/// Takes a pass for a call, waiting while the call is held. Leaves `errno` as it was.
#[inline]
pub fn enter(call: CallId) -> Pass {
    enter_on(call, || false)
}

/// Takes a pass for a call on a stream. `capturing` tells whether that stream records instead of running work; it
/// is asked only where the call would have to wait.
#[inline]
pub fn enter_on(call: CallId, capturing: impl FnMut() -> bool) -> Pass {
    Pass { _pass: GATE.enter(call, capturing) }
}

/// Takes a pass for a call that only asks, waiting while the call is held. Once [`answer`] was called, `answered` may
/// answer in the driver's place; then there is no pass.
#[inline]
pub fn ask(call: CallId, answered: impl FnMut() -> bool) -> Option<Pass> {
    Some(Pass { _pass: GATE.ask(call, answered)? })
}

/// Holds the calls of this level and those below it. Does not wait; may be repeated.
pub fn close(level: GateLevel) -> Result<(), CloseError> {
    let bits = match level {
        GateLevel::Launch => LAUNCHES_HELD,
        GateLevel::Memory => LAUNCHES_HELD | OBJECTS_HELD,
    };
    GATE.close(bits).map_err(CloseError)
}

/// Holds every call: also those that only ask. Does not wait; may be repeated.
pub fn suspend_answers() -> Result<(), CloseError> {
    GATE.close(ALL_HELD).map_err(CloseError)
}

/// From now on held calls that only ask may be answered without the driver, by what [`ask`] was given.
pub fn answer() {
    GATE.answer();
}

/// Holds calls that only ask no longer; everything else stays held.
pub fn resume_answers() {
    GATE.open(ANSWERS_HELD | ANSWERED);
}

/// Holds calls of the memory level no longer; launches stay held. Must not be called while answers are held.
pub fn reopen_memory() {
    GATE.open(OBJECTS_HELD);
}

/// Holds nothing any longer. May be repeated.
pub fn open() {
    GATE.open(ALL_HELD | ANSWERED);
}

/// How far the gate is closed.
pub fn closed() -> Option<GateLevel> {
    let word = GATE.word.0.load(Acquire);
    if word & OBJECTS_HELD != 0 {
        Some(GateLevel::Memory)
    } else if word & LAUNCHES_HELD != 0 {
        Some(GateLevel::Launch)
    } else {
        None
    }
}

/// Whether also calls that only ask are held.
pub fn answers_are_held() -> bool {
    GATE.word.0.load(Acquire) & ANSWERS_HELD != 0
}

/// Lets one held call through, the one that waits longest: a launch, or what is held at the memory level; where none waits, one
/// begin of a capture. Whether there was one. It counts as inside from this moment on.
pub fn step() -> bool {
    GATE.step(None)
}

/// The same, if this thread waits.
pub fn step_thread(thread: u32) -> bool {
    GATE.step(Some(thread))
}

/// Calls under way. After closing it is exact for what was closed: who is not counted will not get in.
pub fn inside() -> Inside {
    GATE.inside()
}

/// Hands every waiting thread to `see`. Returns how many wait besides, of whom nothing more is known: there are
/// more waiting threads than seats.
pub fn waiting(mut see: impl FnMut(Waiting)) -> u32 {
    GATE.waiters.for_each_waiting(|thread, call| see(Waiting { thread, call }));
    GATE.waiters.standing()
}

/// In a forked child, on its only thread: opens the gate and forgets the parent's threads.
pub fn forked() {
    GATE.forked();
}
