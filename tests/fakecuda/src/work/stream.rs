//! Streams: a queue each, run in order by a thread of its own that starts with the first work.
//!
//! Work is numbered in the order of its submission; the numbers of a stream never go back, not even when the place
//! of a destroyed stream is used again, so that "completed" is one comparison for whoever remembers a number.
//!
//! The legacy default stream waits for what blocking streams of its context were given before, and they wait for it
//! (the rule of the header's `CU_STREAM_DEFAULT`). A queue has room for `FAKECUDA_QUEUE` items; a call that finds it full
//! waits for room, as a launch does on a real GPU.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use cuda_sys::{CuError, CuResult, Stream as Handle};

use super::capture::Part;
use super::op::Op;
use crate::config::config;
use crate::context::{Ctx, current};
use crate::driver::{Driver, driver};
use crate::hold;
use crate::slab::address_of;
use crate::trace::violation;

/// `CU_STREAM_NON_BLOCKING`
const NON_BLOCKING: u32 = 1;

/// What kind of stream it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Kind {
    Created = 0,
    Legacy = 1,
    PerThread = 2,
}

/// A piece of work, by the stream it was given to and its number there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(crate) stream: &'static Stream,
    pub(crate) number: u64,
}

#[derive(Debug)]
struct Item {
    op: Op,
    after: Vec<Ticket>,
}

#[derive(Debug, Default)]
struct Queue {
    /// The first one is being run.
    items: VecDeque<Item>,
    has_thread: bool,
    /// The thread waits for work.
    idle: bool,
    ended: bool,
}

/// One stream. Its handle is its address, but for the default ones.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    context: AtomicPtr<Ctx>,
    kind: AtomicU32,
    pub(super) flags: AtomicU32,
    pub(super) priority: AtomicI32,
    pub(super) id: AtomicU64,
    submitted: AtomicU64,
    completed: AtomicU64,
    pub(super) part: Part,
    queue: Mutex<Queue>,
    work: Condvar,
    done: Condvar,
}

impl Ticket {
    pub(crate) fn is_done(&self) -> bool {
        self.stream.completed.load(Ordering::Acquire) >= self.number
    }

    /// Waits until the work has completed.
    pub(crate) fn wait(&self) {
        if self.is_done() {
            return;
        }
        let mut queue = crate::lock(&self.stream.queue);
        while !self.is_done() {
            queue = wait(&self.stream.done, queue);
        }
    }
}

/// Starts a thread of the driver, which takes no signals: those are the program's.
pub(crate) fn without_signals(start: impl FnOnce()) {
    let mut all = std::mem::MaybeUninit::uninit();
    let mut before = std::mem::MaybeUninit::uninit();
    // SAFETY: the set is writable.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the first set is initialised, the second is writable.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    start();
    // SAFETY: initialised by the call before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
}

fn wait<'a>(condition: &Condvar, queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
    condition.wait(queue).unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    /// A new stream of a context.
    pub(crate) fn create(
        driver: &Driver,
        context: &'static Ctx,
        kind: Kind,
        flags: u32,
        priority: i32,
    ) -> &'static Self {
        driver.streams.insert(|stream| {
            stream.context.store(std::ptr::from_ref(context).cast_mut(), Ordering::Release);
            stream.kind.store(kind as u32, Ordering::Relaxed);
            stream.flags.store(flags, Ordering::Relaxed);
            stream.priority.store(priority, Ordering::Relaxed);
            stream.id.store(driver.new_stream_id(), Ordering::Relaxed);
            *crate::lock(&stream.queue) = Queue::default();
        })
    }

    pub(crate) fn handle(&'static self) -> Handle {
        let value = match self.kind.load(Ordering::Relaxed) {
            0 => address_of(self),
            default => usize::try_from(default).unwrap_or(0),
        };
        Handle(std::ptr::with_exposed_provenance_mut(value))
    }

    /// The context of the stream.
    pub(crate) fn context(&self) -> &'static Ctx {
        // SAFETY: `create` stored a context before anybody could reach the stream, and contexts are never freed.
        unsafe { &*self.context.load(Ordering::Acquire) }
    }

    pub(super) fn is_legacy(&self) -> bool {
        self.kind.load(Ordering::Relaxed) == Kind::Legacy as u32
    }

    pub(crate) fn is_blocking(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & NON_BLOCKING == 0
    }

    /// The work that was submitted last.
    pub(crate) fn tail(&'static self) -> Ticket {
        Ticket { stream: self, number: self.submitted.load(Ordering::Acquire) }
    }

    pub(crate) fn is_idle(&'static self) -> bool {
        self.tail().is_done()
    }

    /// What the rules of the default stream make work of this stream wait for.
    fn implicit(&'static self) -> Vec<Ticket> {
        if self.is_legacy() {
            let others = self.context().streams();
            let others = others.into_iter().filter(|other| other.is_blocking() && !other.is_legacy());
            return others.map(Self::tail).filter(|tail| !tail.is_done()).collect();
        }
        let legacy = self.context().legacy();
        if !self.is_blocking() || legacy.is_idle() { Vec::new() } else { vec![legacy.tail()] }
    }

    /// Gives the stream work, to be run after all it was given before and after `after`.
    pub(crate) fn submit(&'static self, op: Op, mut after: Vec<Ticket>) -> CuResult<Ticket> {
        after.extend(self.implicit());
        let mut queue = crate::lock(&self.queue);
        let limit = config().queue;
        while queue.items.len() >= limit {
            queue = wait(&self.done, queue);
        }
        let number = self.submitted.load(Ordering::Relaxed) + 1;
        let ticket = Ticket { stream: self, number };
        if queue.items.is_empty() && after.is_empty() && op.takes_no_time() {
            // Nobody can tell that it did not run on another thread.
            self.completed.store(number, Ordering::Release);
            self.submitted.store(number, Ordering::Release);
            return Ok(ticket);
        }
        self.submitted.store(number, Ordering::Release);
        queue.items.push_back(Item { op, after });
        if !queue.has_thread {
            queue.has_thread = true;
            self.start_thread();
        } else if queue.idle {
            self.work.notify_one();
        }
        Ok(ticket)
    }

    fn start_thread(&'static self) {
        without_signals(|| {
            let started = std::thread::Builder::new().name("fake-stream".into()).spawn(move || self.run());
            if let Err(error) = started {
                crate::trace::complain(&format!("no thread for a stream: {error}"));
            }
        });
    }

    /// The life of the stream's thread.
    fn run(&'static self) {
        hold::exempt_this_thread();
        loop {
            let mut queue = crate::lock(&self.queue);
            while queue.items.is_empty() && !queue.ended {
                queue.idle = true;
                queue = wait(&self.work, queue);
                queue.idle = false;
            }
            let Some(item) = queue.items.front() else { break };
            let (op, after) = (item.op.clone(), item.after.clone());
            drop(queue);
            for ticket in after {
                ticket.wait();
            }
            self.run_one(&op);
            drop(op);
            let mut queue = crate::lock(&self.queue);
            queue.items.pop_front();
            self.completed.fetch_add(1, Ordering::Release);
            self.done.notify_all();
            drop(queue);
            hold::changed();
        }
        if let Ok(driver) = driver() {
            self.context().remove_stream(self);
            driver.streams.recycle(self);
        }
    }

    fn run_one(&self, op: &Op) {
        let Ok(driver) = driver() else { return };
        let context = self.context();
        // After a fault nothing of the context runs any longer.
        if context.check().is_err() && !op.runs_after_a_fault() {
            return;
        }
        if let Err(error) = op.run(driver, context) {
            context.fail(error);
        }
    }

    /// Calls `look` with all work that has not completed.
    pub(crate) fn pending(&self, mut look: impl FnMut(&Op)) {
        for item in &crate::lock(&self.queue).items {
            look(&item.op);
        }
    }

    /// The stream gets no more work; its place is free once all is done.
    pub(crate) fn end(&'static self, driver: &Driver) {
        if driver.streams.remove(address_of(self)).is_none() {
            return;
        }
        let mut queue = crate::lock(&self.queue);
        queue.ended = true;
        let has_thread = queue.has_thread;
        drop(queue);
        if has_thread {
            self.work.notify_one();
        } else {
            self.context().remove_stream(self);
            driver.streams.recycle(self);
        }
    }
}

/// The stream that a handle means for the calling thread.
pub(crate) fn named(handle: Handle) -> CuResult<&'static Stream> {
    let value = handle.0.addr();
    match value {
        0 | 1 => Ok(current()?.legacy()),
        2 => current()?.per_thread(),
        _ => {
            let driver = driver()?;
            match driver.streams.get(value) {
                Some(stream) => {
                    stream.context().check()?;
                    Ok(stream)
                }
                None => {
                    violation(format_args!("{handle:?} is not a stream"));
                    Err(CuError::INVALID_HANDLE)
                }
            }
        }
    }
}
