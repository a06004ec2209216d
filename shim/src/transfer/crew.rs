//! Threads that help with one transfer and are gone when it is over. Those of a transfer through host memory allocate
//! nothing; those that work with files do, and so do those of lanes, and leave the C library a few of its own arenas for the next
//! time.

use core::ffi::{CStr, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use super::TransferError;

/// More threads than this move no more bytes of one device.
const MOST: usize = 16;
/// However many devices there are.
const MOST_IN_ALL: usize = 64;

/// What a thread is for.
#[derive(Clone, Copy, Debug)]
struct Sort {
    name: &'static CStr,
    stack: usize,
}

/// They call plain copies and nothing of the program's.
const COPIES: Sort = Sort { name: c"nvsnap-copy", stack: 256 << 10 };
/// They call the driver, as the thread that carries out a verb does, and have its stack.
const DRIVES: Sort = Sort { name: c"nvsnap-lane", stack: 1 << 20 };

/// How many threads help with what so many lanes move: what the environment says, else one per processor that this
/// process may use.
pub(super) fn strength(lanes: usize) -> usize {
    if let Some(count) = crate::config::threads() {
        return count;
    }
    // SAFETY: an all-zero set is an empty one.
    let mut set: libc::cpu_set_t = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: the set is as large as said.
    let told = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    // SAFETY: an initialised set.
    let count = if told == 0 { unsafe { libc::CPU_COUNT(&set) } } else { 1 };
    usize::try_from(count).unwrap_or(1).clamp(1, lanes.saturating_mul(MOST).clamp(1, MOST_IN_ALL))
}

struct Work<'a> {
    sort: Sort,
    body: &'a (dyn Fn() + Sync),
    panicked: AtomicBool,
}

/// Runs `body` on every thread of a crew of `count` and `lead` on this one, and returns when all are done. `dismiss` is
/// what makes the bodies return; it is called after `lead`, also when that panics.
pub(super) fn with_crew<R>(
    count: usize,
    body: &(dyn Fn() + Sync),
    dismiss: &dyn Fn(),
    lead: impl FnOnce() -> R,
) -> Result<R, TransferError> {
    let refused = TransferError::System { call: "pthread_create", errno: libc::EAGAIN };
    run_beside(COPIES, count, body, dismiss, |threads| if threads == 0 { Err(refused) } else { Ok(lead()) })?
}

/// The same with as many threads as said, or fewer where the system has no more: `lead` gets by without.
pub(crate) fn with_threads<R>(
    count: usize,
    body: &(dyn Fn() + Sync),
    dismiss: &dyn Fn(),
    lead: impl FnOnce() -> R,
) -> Result<R, TransferError> {
    run_beside(COPIES, count, body, dismiss, |_| lead())
}

/// The same with threads that make driver calls.
pub(super) fn with_drivers<R>(
    count: usize,
    body: &(dyn Fn() + Sync),
    dismiss: &dyn Fn(),
    lead: impl FnOnce() -> R,
) -> Result<R, TransferError> {
    run_beside(DRIVES, count, body, dismiss, |_| lead())
}

/// Tells `lead` how many threads there are.
fn run_beside<R>(
    sort: Sort,
    count: usize,
    body: &(dyn Fn() + Sync),
    dismiss: &dyn Fn(),
    lead: impl FnOnce(usize) -> R,
) -> Result<R, TransferError> {
    let work = Work { sort, body, panicked: AtomicBool::new(false) };
    let threads: Vec<libc::pthread_t> = (0..count).map_while(|_| start(&work)).collect();
    let result = catch_unwind(AssertUnwindSafe(|| lead(threads.len()))).map_err(|_| TransferError::Panicked);
    dismiss();
    for thread in threads {
        // SAFETY: started above, and joined once.
        unsafe { libc::pthread_join(thread, ptr::null_mut()) };
    }
    if work.panicked.load(Ordering::Acquire) { Err(TransferError::Panicked) } else { result }
}

/// Starts a thread with all signals blocked: the program's handlers are not for it.
fn start(work: &Work<'_>) -> Option<libc::pthread_t> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: to be initialised.
    if unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: initialised. A size the system finds too small leaves the default.
    unsafe { libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), work.sort.stack) };
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    let signals = Blocked::new();
    // SAFETY: initialised attributes; `work` outlives the thread, since `with_crew` joins it before it returns.
    let error = unsafe {
        libc::pthread_create(
            thread.as_mut_ptr(),
            attributes.as_ptr(),
            run,
            ptr::from_ref(work).cast_mut().cast::<c_void>(),
        )
    };
    drop(signals);
    // SAFETY: initialised above.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    // SAFETY: written by a successful `pthread_create`.
    (error == 0).then(|| unsafe { thread.assume_init() })
}

extern "C" fn run(work: *mut c_void) -> *mut c_void {
    // SAFETY: the work that `start` was given, alive until this thread is joined.
    let work = unsafe { &*work.cast::<Work<'_>>() };
    // SAFETY: no preconditions.
    let own = unsafe { libc::pthread_self() };
    // SAFETY: this thread, and a C string of at most 15 bytes.
    unsafe { libc::pthread_setname_np(own, work.sort.name.as_ptr()) };
    let _listed = shim_core::control::own::list();
    if catch_unwind(AssertUnwindSafe(|| (work.body)())).is_err() {
        work.panicked.store(true, Ordering::Release);
    }
    ptr::null_mut()
}

/// All signals blocked on this thread, until dropped.
struct Blocked(libc::sigset_t);

impl Blocked {
    fn new() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: to be filled.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        const SET: c_int = libc::SIG_SETMASK;
        // SAFETY: one filled set, one to be written.
        unsafe { libc::pthread_sigmask(SET, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: written by `pthread_sigmask`, which fails for a bad first argument only.
        Self(unsafe { before.assume_init() })
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set that was there.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::queue::Queue;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn a_crew_works_through_a_queue_and_is_gone_afterwards() {
        let (queue, sum) = (Queue::new(100), AtomicU64::new(0));
        let body = || {
            while let Some(number) = queue.pop() {
                sum.fetch_add(number, Ordering::Relaxed);
            }
        };
        let lead = || {
            (1..=100).for_each(|number| queue.push(number));
            7
        };
        assert_eq!(with_crew(2, &body, &|| queue.close(), lead), Ok(7));
        assert_eq!(sum.into_inner(), 5050);
    }

    #[test]
    fn a_panic_in_the_crew_is_an_error() {
        let queue = Queue::new(100);
        queue.push(1);
        let body = || {
            if queue.pop().is_some() {
                std::panic::resume_unwind(Box::new(()));
            }
        };
        let result = with_crew(2, &body, &|| queue.close(), || ());
        assert_eq!(result, Err(TransferError::Panicked));
    }
}
