//! Who is inside a call, and the hold of a locked process.
//!
//! While a process is locked or checkpointed most of its driver calls wait (docs/DRIVER-VERSIONS.md, "which calls
//! block"); [`Hold`] says which. `close` lets no new call in; `drained` says whether one is still inside. Calls are counted in
//! slots by thread, so that threads do not write to one cache line.
//!
//! A page that the kernel wipes in a forked child tells the child that all this belongs to its parent.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cuda_sys::{CuError, CuResult};

use crate::futex;
use crate::hold_class::Hold;
use crate::trace::violation;

const SLOTS: usize = 64;
const LOOK_AGAIN: Duration = Duration::from_millis(5);

#[repr(align(128))]
struct Slot(AtomicUsize);

static INSIDE: [Slot; SLOTS] = [const { Slot(AtomicUsize::new(0)) }; SLOTS];
static CLOSED: AtomicU32 = AtomicU32::new(0);
static CHECKPOINTED: AtomicBool = AtomicBool::new(false);
static DRAIN: AtomicU32 = AtomicU32::new(0);
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// One word that reads 1 in the process that mapped it and 0 in its children; null before the first call.
static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
    /// Threads of the driver itself, whose calls (from host functions) belong to work and are not held.
    static EXEMPT: Cell<bool> = const { Cell::new(false) };
}

/// Stands for a call in progress.
#[derive(Debug)]
pub(crate) struct Inside(Option<&'static AtomicUsize>);

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            slot.fetch_sub(1, Ordering::SeqCst);
            changed();
        }
    }
}

fn slot() -> &'static AtomicUsize {
    let index = MINE
        .try_with(|mine| {
            if mine.get() == usize::MAX {
                mine.set(NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS);
            }
            mine.get()
        })
        .unwrap_or(0);
    let [first, ..] = &INSIDE;
    &INSIDE.get(index).unwrap_or(first).0
}

/// Begins a call; it is over when the result is dropped. Waits first, if calls of this kind are held.
#[inline]
pub(crate) fn enter(name: &str, hold: Hold) -> CuResult<Inside> {
    check_fork();
    match hold {
        Hold::Waits => {}
        Hold::Goes => return Ok(Inside(None)),
        Hold::Dies | Hold::Fails(_) => {
            return if CHECKPOINTED.load(Ordering::Acquire) {
                Err(too_late(name, hold))
            } else {
                Ok(Inside(None))
            };
        }
    }
    let slot = slot();
    // Pairs with `close`: either it sees this call or this call sees that it is closed.
    slot.fetch_add(1, Ordering::SeqCst);
    if CLOSED.load(Ordering::SeqCst) != 0 && !EXEMPT.with(Cell::get) {
        wait(slot);
    }
    Ok(Inside(Some(slot)))
}

/// A call that a checkpointed process must not make: a violation, and the driver's answer.
#[cold]
fn too_late(name: &str, hold: Hold) -> CuError {
    violation(format_args!("{name}: the process is checkpointed"));
    if let Hold::Fails(error) = hold
        && let Some(error) = CuError::from_raw(error)
    {
        return error;
    }
    // SAFETY: the default action needs no handler.
    unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
    // SAFETY: ends the process, as the driver's access to memory that is gone does.
    unsafe { libc::raise(libc::SIGSEGV) };
    CuError::UNKNOWN
}

#[cold]
fn wait(slot: &AtomicUsize) {
    loop {
        slot.fetch_sub(1, Ordering::SeqCst);
        while CLOSED.load(Ordering::SeqCst) != 0 {
            futex::wait(&CLOSED, 1, None);
        }
        slot.fetch_add(1, Ordering::SeqCst);
        if CLOSED.load(Ordering::SeqCst) == 0 {
            return;
        }
    }
}

/// Holds every call that has not begun.
pub(crate) fn close() {
    CLOSED.store(1, Ordering::SeqCst);
}

/// The memory of the process has left the devices, or is back.
pub(crate) fn set_checkpointed(checkpointed: bool) {
    CHECKPOINTED.store(checkpointed, Ordering::Release);
}

/// Lets all calls go on.
pub(crate) fn open() {
    CLOSED.store(0, Ordering::SeqCst);
    futex::wake_all(&CLOSED);
}

/// Whether no call is in progress.
pub(crate) fn drained() -> bool {
    INSIDE.iter().all(|slot| slot.0.load(Ordering::SeqCst) == 0)
}

/// Calls from this thread are never held: it runs the work of a stream.
pub(crate) fn exempt_this_thread() {
    EXEMPT.with(|exempt| exempt.set(true));
}

/// Something that whoever waits for a drain looks at has changed. Nobody waits unless calls are held.
pub(crate) fn changed() {
    if CLOSED.load(Ordering::SeqCst) == 0 {
        return;
    }
    DRAIN.fetch_add(1, Ordering::SeqCst);
    futex::wake_all(&DRAIN);
}

/// Waits until `done` says so or until the deadline, and tells which. `done` is asked again after each change.
pub(crate) fn wait_until(deadline: Option<Instant>, done: impl Fn() -> bool) -> bool {
    loop {
        let seen = DRAIN.load(Ordering::SeqCst);
        if done() {
            return true;
        }
        let now = Instant::now();
        if deadline.is_some_and(|deadline| deadline <= now) {
            return false;
        }
        // A change between the look and the wait is seen by the value; the bound covers what tells nobody.
        let at_most = deadline.map_or(LOOK_AGAIN, |deadline| (deadline - now).min(LOOK_AGAIN));
        futex::wait(&DRAIN, seen, Some(at_most));
    }
}

#[inline]
fn check_fork() {
    let mark = MARK.load(Ordering::Acquire);
    // SAFETY: null, or the page of `start`, which is never unmapped.
    if let Some(mark) = unsafe { mark.as_ref() }
        && mark.load(Ordering::Relaxed) == 0
    {
        in_child(mark);
    }
}

/// First call of a forked child: nothing of the parent's driver is its own.
#[cold]
fn in_child(mark: &AtomicU32) {
    for slot in &INSIDE {
        slot.0.store(0, Ordering::SeqCst);
    }
    CLOSED.store(0, Ordering::SeqCst);
    CHECKPOINTED.store(false, Ordering::SeqCst);
    crate::driver::forked();
    mark.store(1, Ordering::Relaxed);
}

/// Makes children recognisable. Called by `cuInit`.
pub(crate) fn start() {
    if !MARK.load(Ordering::Acquire).is_null() {
        return;
    }
    // SAFETY: a fresh private page.
    let page = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            4096,
            rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
            rustix::mm::MapFlags::PRIVATE,
        )
    };
    let Ok(page) = page else { return crate::trace::complain("no page to recognise forked children with") };
    // SAFETY: the page just mapped, whole.
    let wiped = unsafe { rustix::mm::madvise(page, 4096, rustix::mm::Advice::LinuxWipeOnFork) };
    if wiped.is_err() {
        return crate::trace::complain("the kernel does not wipe pages in forked children");
    }
    let mark = page.cast::<AtomicU32>();
    // SAFETY: the page is mapped, writable, aligned, and never unmapped.
    unsafe { &*mark }.store(1, Ordering::Relaxed);
    MARK.store(mark, Ordering::Release);
}
