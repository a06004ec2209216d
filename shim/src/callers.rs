//! What the calls are for that are held at the gate: so that whoever steps them knows which of their streams still has work.
//!
//! A thread notes its call on the way to its seat, and again each time that it has to wait. The note is believed only while the
//! gate says that the thread waits with that call; then the stream lives, since the program is in a call on it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use cuda_sys::{Context, Stream};
use shim_core::calls::CallId;

use crate::boundary::Errno;
use crate::driver::real;
use crate::fresh::{Fresh, lock};

/// `CU_STREAM_LEGACY`, which null means in most calls.
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`, which null means in calls whose names end in `_ptsz`.
const PER_THREAD: usize = 2;

/// A held call on a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Caller {
    call: CallId,
    /// The context that the thread has made current, as a number.
    context: usize,
    stream: usize,
}

#[derive(Debug, Default)]
struct Callers {
    by_thread: Mutex<BTreeMap<i32, Caller>>,
}

static CALLERS: Fresh<Callers> = Fresh::new();

/// The calling thread is about to wait with a call on this stream.
pub(crate) fn waits(call: CallId, stream: Stream) {
    let _errno = Errno::save();
    let mut context = Context::NULL;
    // SAFETY: a writable place; the driver answers this in every state.
    let told = unsafe { real::cuCtxGetCurrent(&raw mut context) };
    // SAFETY: takes nothing.
    let thread = unsafe { libc::gettid() };
    let mut by_thread = lock(&CALLERS.get().by_thread);
    if told.is_err() {
        // What is noted of an earlier call may name a stream that is gone.
        by_thread.remove(&thread);
        return;
    }
    by_thread.insert(thread, Caller { call, context: context.0.addr(), stream: stream.0.addr() });
}

/// What is known of the call that this thread waits with.
pub(crate) fn of(thread: i32, call: &str) -> Option<Caller> {
    lock(&CALLERS.get().by_thread).get(&thread).copied().filter(|caller| caller.call.name() == call)
}

/// Nobody waits any longer.
pub(crate) fn forget() {
    lock(&CALLERS.get().by_thread).clear();
}

/// Forgets the parent's threads: called in a forked child.
pub(crate) fn forked() {
    CALLERS.forked();
}

impl Caller {
    /// The context, and the stream as another thread may name it; a thread's own default stream has no such name.
    pub(crate) fn stream(self) -> Option<(Context, Stream)> {
        let stream = match self.stream {
            PER_THREAD => return None,
            0 if self.call.is_per_thread() => return None,
            0 => LEGACY,
            other => other,
        };
        let context = Context(core::ptr::with_exposed_provenance_mut(self.context));
        Some((context, Stream(core::ptr::with_exposed_provenance_mut(stream))))
    }
}
