//! Which streams have work that has not ended: what decides whose held call is let through, and what a suspend says that gives up
//! waiting for it.
//!
//! A thread of its own asks the driver, since that may not answer while another thread is stuck in it. One that has not
//! come back is not joined by a second, and asks nothing more once nobody waits for it: held calls go on after that, and a
//! stream that it was going to ask may be destroyed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use cuda_sys::{Context, CuError, Stream};
use protocol::BusyStream;

use crate::callers::Caller;
use crate::contexts::Known;
use crate::driver::real;
use crate::fresh::{Fresh, lock};
use crate::{answers, contexts};

/// What the driver needs for a question.
const STACK: usize = 256 << 10;

/// A question that a thread of its own asks the driver.
#[derive(Debug)]
struct Asking<T> {
    found: Mutex<Option<T>>,
    changed: Condvar,
    /// Whether nobody waits for the answer any more.
    given_up: AtomicBool,
}

/// A thread is at it, until this is dropped, also by a panic.
struct UnderWay(&'static AtomicBool);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Whether a thread is at it.
static UNDER_WAY: Fresh<AtomicBool> = Fresh::new();

/// Forgets the parent's thread: called in a forked child.
pub(crate) fn forked() {
    UNDER_WAY.forked();
}

/// The streams whose work has not ended, if the driver says so within `wait`. Calls at the memory level must be held, nobody be inside
/// one, and no stream be recording: a question to a stream invalidates the captures in its context.
pub(crate) fn streams(wait: Duration) -> Vec<BusyStream> {
    let question = |given_up: &AtomicBool| {
        contexts::all().into_iter().flat_map(|known| busy_in(known, given_up)).collect()
    };
    answer(question, wait).unwrap_or_default()
}

/// For each of these held calls whether its stream has work that has not ended, as far as the driver says so within `wait`. No call
/// may be under way that begins a capture, and no stream be recording, as above.
pub(crate) fn unfinished(callers: Vec<Option<Caller>>, wait: Duration) -> Vec<Option<bool>> {
    let nothing = vec![None; callers.len()];
    let question = move |given_up: &AtomicBool| {
        let streams = callers.into_iter().map(|caller| caller.and_then(Caller::stream));
        let asked = streams.map(|stream| stream.filter(|_| !given_up.load(Ordering::Acquire)));
        asked.map(|stream| stream.and_then(|(context, stream)| is_busy_in(context, stream))).collect()
    };
    answer(question, wait).unwrap_or(nothing)
}

/// What a thread of its own finds out, if it does within `wait`. The question is told when that is over.
fn answer<T: Send + 'static>(
    question: impl FnOnce(&AtomicBool) -> T + Send + 'static,
    wait: Duration,
) -> Option<T> {
    let flag = UNDER_WAY.get();
    if flag.swap(true, Ordering::AcqRel) {
        return None;
    }
    let under_way = UnderWay(flag);
    let (found, changed, given_up) = (Mutex::new(None), Condvar::new(), AtomicBool::new(false));
    let asking = Arc::new(Asking { found, changed, given_up });
    let asks = Arc::clone(&asking);
    let started = shim_core::control::spawn(c"nvsnap-streams", STACK, move || {
        let found = question(&asks.given_up);
        let mut place = lock(&asks.found);
        // First: whoever has the answer may ask the next question.
        drop(under_way);
        *place = Some(found);
        drop(place);
        asks.changed.notify_all();
    });
    if let Err(error) = started {
        log!("no thread to ask for streams: {error}");
        return None;
    }
    let found = lock(&asking.found);
    let waited = asking.changed.wait_timeout_while(found, wait, |found| found.is_none());
    let (mut found, _) = waited.unwrap_or_else(PoisonError::into_inner);
    asking.given_up.store(true, Ordering::Release);
    found.take()
}

/// Whether a stream of a context has work that has not ended. Nothing where the driver does not say.
fn is_busy_in(context: Context, stream: Stream) -> Option<bool> {
    // SAFETY: a context that is current on a thread which is held in a call; one that goes meanwhile is the driver's to refuse.
    unsafe { real::cuCtxPushCurrent_v2(context) }.ok()?;
    // SAFETY: a stream that lives: a thread is held in a call on it.
    let answer = unsafe { real::cuStreamQuery(stream) };
    pop();
    match answer {
        Ok(()) => Some(false),
        Err(CuError::NOT_READY) => Some(true),
        Err(_) => None,
    }
}

/// The busy streams of a context: those that the program made, else the default one, which is busy with them where they are
/// blocking ones.
fn busy_in(known: Known, given_up: &AtomicBool) -> Vec<BusyStream> {
    // SAFETY: a context the program has; one that goes meanwhile is the driver's to refuse.
    if unsafe { real::cuCtxPushCurrent_v2(known.context) }.is_err() {
        return Vec::new();
    }
    let is_busy = |handle: &usize| {
        if given_up.load(Ordering::Acquire) {
            return false;
        }
        let stream = Stream(core::ptr::with_exposed_provenance_mut(*handle));
        // SAFETY: a stream that lives: who would destroy it is held.
        let answer = unsafe { real::cuStreamQuery(stream) };
        answer == Err(CuError::NOT_READY)
    };
    let mut busy: Vec<usize> = answers::streams_of(known.context).into_iter().filter(is_busy).collect();
    if busy.is_empty() && is_busy(&0) {
        busy.push(0);
    }
    pop();
    let device = known.device.0;
    busy.into_iter()
        .map(|handle| BusyStream { device, handle: u64::try_from(handle).unwrap_or(u64::MAX) })
        .collect()
}

fn pop() {
    let mut popped = Context::NULL;
    // SAFETY: `popped` is writable.
    if let Err(error) = unsafe { real::cuCtxPopCurrent_v2(&raw mut popped) } {
        log!("cuCtxPopCurrent_v2: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// As often as it takes: a thread that nobody waits for ends when it does.
    fn asked(question: impl Fn() -> u8 + Clone + Send + 'static) -> u8 {
        loop {
            let question = question.clone();
            if let Some(found) = answer(move |_| question(), Duration::from_secs(100)) {
                return found;
            }
        }
    }

    // One test: one question is asked at a time in the whole process.
    #[test]
    fn a_question_is_given_up_for_good_and_hinders_the_next_no_longer_than_it_lasts() {
        assert_eq!(asked(|| 7), 7);
        let (go_on, goes_on) = channel::<()>();
        let (told, is_told) = channel();
        let late = move |given_up: &AtomicBool| {
            goes_on.recv().unwrap();
            told.send(given_up.load(Ordering::Acquire)).unwrap();
        };
        assert_eq!(answer(late, Duration::ZERO), None);
        assert_eq!(answer(|_| 7, Duration::from_secs(100)), None, "a second thread has joined the first");
        go_on.send(()).unwrap();
        assert!(is_told.recv().unwrap(), "it goes on asking");
        assert_eq!(asked(|| 8), 8);
        let panics = |_: &AtomicBool| -> u8 { std::panic::resume_unwind(Box::new(())) };
        assert_eq!(answer(panics, Duration::from_millis(1)), None);
        assert_eq!(asked(|| 9), 9);
    }
}
