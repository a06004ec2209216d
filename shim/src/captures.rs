//! Captures under way: streams that record a graph instead of running work.
//!
//! A capture belongs to the stream it was begun on, whichever threads launch into it. It is recorded before the
//! begin returns to the program, under the pass that counts it as a launch: once nobody launches and none is
//! recorded here, there is none.

use core::ffi::c_uint;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use cuda_sys::{CAPTURE_STATUS_NONE, Context, CuError, Stream};
use shim_core::calls::CallId;

use crate::callers;
use crate::driver::real;
use crate::fresh::{Fresh, lock};

/// `CU_STREAM_LEGACY`, which null means in most calls.
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`, which null means in calls whose names end in `_ptsz`.
const PER_THREAD: usize = 2;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`
pub(crate) const RELAXED: c_uint = 2;

/// A stream as the driver tells them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Name {
    stream: usize,
    /// The thread whose default stream it is; 0 for others.
    thread: i32,
}

impl Name {
    fn new(call: CallId, stream: Stream) -> Self {
        let stream = match stream.0.addr() {
            0 if call.is_per_thread() => PER_THREAD,
            0 => LEGACY,
            other => other,
        };
        // SAFETY: takes nothing.
        let thread = if stream == PER_THREAD { unsafe { libc::gettid() } } else { 0 };
        Self { stream, thread }
    }

    /// Whether the stream went with its thread.
    fn is_dead(self) -> bool {
        self.thread != 0
            // SAFETY: signal 0 is not sent; only whether it could be is answered.
            && unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), self.thread, 0) } != 0
    }
}

#[derive(Clone, Copy, Debug)]
struct Capture {
    name: Name,
    context: Context,
}

#[derive(Debug, Default)]
struct Captures {
    under_way: Mutex<Vec<Capture>>,
    /// How many of them there are, to be read without the lock.
    count: AtomicU32,
}

static CAPTURES: Fresh<Captures> = Fresh::new();

/// How many captures are under way.
pub(crate) fn active() -> u32 {
    CAPTURES.get().count.load(Ordering::Acquire)
}

/// Forgets the parent's captures: called in a forked child.
pub(crate) fn forked() {
    CAPTURES.forked();
}

/// For a call that the gate is about to hold: whether `stream`, as `call` understands it (the per-thread forms have another default
/// stream), records a graph. A launch into it then starts no work. Asks the driver only where any stream can be recording.
pub(crate) fn capturing(call: CallId, stream: Stream) -> bool {
    callers::waits(call, stream);
    active() != 0
        && match status(call, stream) {
            Ok(status) => status != CAPTURE_STATUS_NONE,
            // A legacy stream beside a capture: the launch will fail, and must do so at once as without us.
            Err(error) => error == CuError::STREAM_CAPTURE_IMPLICIT,
        }
}

fn status(call: CallId, stream: Stream) -> Result<c_uint, CuError> {
    let mut status = CAPTURE_STATUS_NONE;
    let place = &raw mut status;
    if call.is_per_thread() {
        // SAFETY: the program's stream, and a writable place.
        unsafe { real::cuStreamIsCapturing_ptsz(stream, place) }?;
    } else {
        // SAFETY: as above.
        unsafe { real::cuStreamIsCapturing(stream, place) }?;
    }
    Ok(status)
}

/// The context of a stream that is about to record.
pub(crate) fn context_of(call: CallId, stream: Stream) -> Context {
    let mut context = Context::NULL;
    let place = &raw mut context;
    let result = if call.is_per_thread() {
        // SAFETY: the program's stream, and a writable place.
        unsafe { real::cuStreamGetCtx_ptsz(stream, place) }
    } else {
        // SAFETY: as above.
        unsafe { real::cuStreamGetCtx(stream, place) }
    };
    // Unknown, it cannot be told that the capture goes with its context; it still goes with its stream.
    if result.is_ok() { context } else { Context::NULL }
}

/// A capture has begun.
pub(crate) fn begun(call: CallId, stream: Stream, context: Context) {
    let name = Name::new(call, stream);
    change(|captures| {
        captures.retain(|capture| capture.name != name);
        captures.push(Capture { name, context });
    });
}

/// The program has asked for the end of a capture. Where that failed, the driver says whether it goes on.
pub(crate) fn ended(call: CallId, stream: Stream, succeeded: bool) {
    if succeeded || status(call, stream) == Ok(CAPTURE_STATUS_NONE) {
        let name = Name::new(call, stream);
        change(|captures| captures.retain(|capture| capture.name != name));
    }
}

/// A stream is destroyed, and what it recorded with it. Whether it recorded.
pub(crate) fn stream_gone(call: CallId, stream: Stream) -> Option<Gone> {
    if active() == 0 {
        return None;
    }
    let name = Name::new(call, stream);
    let mut gone = None;
    change(|captures| gone = captures.extract_if(.., |capture| capture.name == name).next());
    gone.map(Gone)
}

/// A capture that went with its stream.
#[derive(Debug)]
pub(crate) struct Gone(Capture);

impl Gone {
    /// The stream was not destroyed after all.
    pub(crate) fn put_back(self) {
        change(|captures| captures.push(self.0));
    }
}

/// A context is destroyed, and the captures of its streams with it.
pub(crate) fn context_gone(context: Context) {
    if active() != 0 {
        change(|captures| captures.retain(|capture| capture.context != context));
    }
}

/// Drops the captures of default streams whose threads have ended.
pub(crate) fn sweep() {
    if active() != 0 {
        change(|captures| captures.retain(|capture| !capture.name.is_dead()));
    }
}

fn change(change: impl FnOnce(&mut Vec<Capture>)) {
    let all = CAPTURES.get();
    let mut captures = lock(&all.under_way);
    change(&mut captures);
    all.count.store(u32::try_from(captures.len()).unwrap_or(u32::MAX), Ordering::Release);
}
