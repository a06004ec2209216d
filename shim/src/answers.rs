//! Answers to "is it done?" while the driver must not be asked.
//!
//! Once the driver's memory is gone, asking it about streams, events and contexts ends the process (580.159.04), and
//! waiting would make a watchdog of the program believe that its work hangs. So just before, when all work has drained, the
//! driver is asked about every stream, event and context there is, and what it said is said again to whoever
//! asks. Nothing can change meanwhile, since whatever would change it is held. So it is with the memory that is free, and the time
//! between events. A question about anything else waits.

mod figures;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use cuda_sys::{Context, CuError, CuResult, Event, Stream};
use shim_core::calls::CallId;

use crate::contexts;
use crate::driver::real;
use crate::fresh::{Fresh, lock};

pub(crate) use figures::Memory;

/// Streams up to this one are names that stand for a default stream of the current context.
const LAST_NAME: usize = 2;

/// What lives, and the context it goes with.
#[derive(Debug, Default)]
struct Living {
    streams: BTreeMap<usize, usize>,
    events: BTreeMap<usize, Made>,
}

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Made {
    /// The context it goes with.
    context: usize,
    /// Whether another process may have opened it, or it was opened of another one.
    shared: bool,
}

/// What the driver said.
#[derive(Debug, Default)]
struct Answers {
    contexts: BTreeMap<usize, CuResult>,
    streams: BTreeMap<usize, CuResult>,
    events: BTreeMap<usize, CuResult>,
    memory: BTreeMap<usize, CuResult<Memory>>,
    times: figures::Times,
}

static LIVING: Fresh<Mutex<Living>> = Fresh::new();
static ANSWERS: Fresh<Mutex<Option<Arc<Answers>>>> = Fresh::new();

/// A stream was made.
pub(crate) fn stream_made(stream: Stream) {
    let context = current();
    lock(LIVING.get()).streams.insert(stream.0.addr(), context.0.addr());
}

/// A stream was destroyed, or is about to be.
pub(crate) fn stream_gone(stream: Stream) -> Option<usize> {
    lock(LIVING.get()).streams.remove(&stream.0.addr())
}

/// It was not destroyed after all.
pub(crate) fn stream_stays(stream: Stream, context: Option<usize>) {
    if let Some(context) = context {
        lock(LIVING.get()).streams.insert(stream.0.addr(), context);
    }
}

/// An event was made.
pub(crate) fn event_made(event: Event) {
    living(event, false);
}

/// An event of another process was opened.
pub(crate) fn event_opened(event: Event) {
    living(event, true);
}

fn living(event: Event, shared: bool) {
    let made = Made { context: current().0.addr(), shared };
    lock(LIVING.get()).events.insert(event.0.addr(), made);
}

/// A handle of an event was made, by which others can open it.
pub(crate) fn event_shared(event: Event) {
    // One that is not known was destroyed meanwhile.
    if let Some(made) = lock(LIVING.get()).events.get_mut(&event.0.addr()) {
        made.shared = true;
    }
}

/// How many events connect the process with others, and the name of one.
pub(crate) fn shared_events() -> (u64, Option<usize>) {
    let living = lock(LIVING.get());
    let shared = || living.events.iter().filter(|(_, made)| made.shared).map(|(event, _)| *event);
    (u64::try_from(shared().count()).unwrap_or(u64::MAX), shared().next())
}

/// An event is about to be destroyed.
pub(crate) fn event_gone(event: Event) -> Option<Made> {
    lock(LIVING.get()).events.remove(&event.0.addr())
}

/// It was not destroyed after all.
pub(crate) fn event_stays(event: Event, made: Option<Made>) {
    if let Some(made) = made {
        lock(LIVING.get()).events.insert(event.0.addr(), made);
    }
}

/// A context is destroyed, and its streams and events with it.
pub(crate) fn context_gone(context: Context) {
    let mut living = lock(LIVING.get());
    living.streams.retain(|_, owner| *owner != context.0.addr());
    living.events.retain(|_, made| made.context != context.0.addr());
}

/// Forgets what the parent had: called in a forked child.
pub(crate) fn forked() {
    LIVING.forked();
    ANSWERS.forked();
}

/// The streams of a context that the program made.
pub(crate) fn streams_of(context: Context) -> Vec<usize> {
    of(&lock(LIVING.get()).streams, context.0.addr()).collect()
}

/// Asks the driver about everything. All work has drained, and nobody else asks meanwhile.
pub(crate) fn prepare() {
    let (streams, events) = {
        let living = lock(LIVING.get());
        let events: BTreeMap<usize, usize> =
            living.events.iter().map(|(event, made)| (*event, made.context)).collect();
        (living.streams.clone(), events)
    };
    let mut answers = Answers::default();
    for known in contexts::all() {
        // SAFETY: a context that lives: who would destroy it is held.
        if let Err(error) = unsafe { real::cuCtxPushCurrent_v2(known.context) } {
            log!("cuCtxPushCurrent_v2: {error}");
            continue;
        }
        let owner = known.context.0.addr();
        // SAFETY: a context is current.
        answers.contexts.insert(owner, unsafe { real::cuStreamQuery(Stream::NULL) });
        for stream in of(&streams, owner) {
            // SAFETY: a stream that lives: who would destroy it is held.
            answers.streams.insert(stream, unsafe { real::cuStreamQuery(Stream(pointer(stream))) });
        }
        for event in of(&events, owner) {
            // SAFETY: as above.
            answers.events.insert(event, unsafe { real::cuEventQuery(Event(pointer(event))) });
        }
        answers.memory.insert(owner, figures::memory());
        let done = |event: &usize| answers.events.get(event) == Some(&Ok(()));
        let done = of(&events, owner).filter(done).map(|event| Event(pointer(event)));
        answers.times.ask(known.context, done);
        let mut popped = Context::NULL;
        // SAFETY: `popped` is writable.
        if let Err(error) = unsafe { real::cuCtxPopCurrent_v2(&raw mut popped) } {
            log!("cuCtxPopCurrent_v2: {error}");
        }
    }
    *lock(ANSWERS.get()) = Some(Arc::new(answers));
}

/// Whether the driver was asked, and must perhaps not be asked again.
pub(crate) fn are_there() -> bool {
    known().is_some()
}

/// The driver can be asked again.
pub(crate) fn forget() {
    *lock(ANSWERS.get()) = None;
}

/// Whether a stream's work is done. `None` where that is not known.
pub(crate) fn stream(stream: Stream) -> Option<CuResult> {
    if stream.0.addr() <= LAST_NAME {
        return context(current());
    }
    known()?.streams.get(&stream.0.addr()).copied().filter(is_final)
}

/// Whether an event has been reached.
pub(crate) fn event(event: Event) -> Option<CuResult> {
    known()?.events.get(&event.0.addr()).copied().filter(is_final)
}

/// Whether a context's work is done.
pub(crate) fn context(context: Context) -> Option<CuResult> {
    if context.is_null() {
        return Some(Err(CuError::INVALID_CONTEXT));
    }
    known()?.contexts.get(&context.0.addr()).copied().filter(is_final)
}

/// How much memory there was for the current context.
pub(crate) fn memory() -> Option<CuResult<Memory>> {
    let context = current();
    if context.is_null() {
        return Some(Err(CuError::INVALID_CONTEXT));
    }
    known()?.memory.get(&context.0.addr()).copied().filter(Result::is_ok)
}

/// The milliseconds from one event to another.
pub(crate) fn between(start: Event, end: Event) -> Option<CuResult<f32>> {
    known()?.times.between(start, end)
}

/// The calling thread's context. The driver answers this at any time, whatever state it is in (580.159.04).
pub(crate) fn current() -> Context {
    let mut context = Context::NULL;
    // SAFETY: `context` is writable.
    let found = unsafe { real::cuCtxGetCurrent(&raw mut context) };
    if found.is_ok() { context } else { Context::NULL }
}

/// An event of another process may be reached while we are suspended: whoever asks about it waits.
fn is_final(answer: &CuResult) -> bool {
    *answer != Err(CuError::NOT_READY)
}

fn known() -> Option<Arc<Answers>> {
    lock(ANSWERS.get()).clone()
}

fn of(all: &BTreeMap<usize, usize>, context: usize) -> impl Iterator<Item = usize> {
    all.iter().filter(move |(_, owner)| **owner == context).map(|(handle, _)| *handle)
}

fn pointer(handle: usize) -> *mut core::ffi::c_void {
    core::ptr::with_exposed_provenance_mut(handle)
}

/// Makes a call that only asks: of the driver, or of what it said earlier.
pub(crate) fn ask(
    call: CallId,
    answer: impl FnMut() -> Option<CuResult>,
    driver: impl FnOnce() -> CuResult,
) -> CuResult {
    ask_for(call, answer, |()| (), driver)
}

/// Makes a call that asks for a figure: of the driver, or by writing what was kept.
pub(crate) fn ask_for<T>(
    call: CallId,
    mut answer: impl FnMut() -> Option<CuResult<T>>,
    write: impl FnOnce(T),
    driver: impl FnOnce() -> CuResult,
) -> CuResult {
    let mut kept = None;
    let pass = shim_core::gate::ask(call, || {
        kept = answer();
        kept.is_some()
    });
    match (pass, kept) {
        (None, Some(kept)) => kept.map(write),
        // With a pass; without one there is an answer.
        _ => driver(),
    }
}
