//! Which life of the process this is: its first, or that of a forked child.
//!
//! ```text
//!   0 (not begun, or wiped by a fork) --- settle ---> LIVE    hooks do their work
//!                                              \----> OFF     calls go straight to the driver
//! ```
//!
//! One word says it. It lies in a page that the kernel fills with zero in a child (`MADV_WIPEONFORK`), however the child
//! was made: `fork`, which also runs our handler, but as well `_Fork` and the bare system calls, which run none.
//! Whoever finds the word zero begins a life: everything the parent had is forgotten, without taking any of its
//! locks. A child that shares the parent's memory (`vfork`, `posix_spawn`) is still the parent's life.

use core::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use shim_core::gate;

use crate::boundary::{self, Errno};
use crate::{answers, blocks, busy, callers, captures, config, contexts, control, hooks, registered, world};

const NOT_BEGUN: u32 = 0;
const LIVE: u32 = 1;
const OFF: u32 = 2;
/// Somebody is about to decide; the rest of the word is that process's id.
const BEGINNING: u32 = 1 << 31;

/// The word before the page exists, and where there can be none.
static UNMAPPED: AtomicU32 = AtomicU32::new(NOT_BEGUN);
/// Where the word is.
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const UNMAPPED).cast_mut());
/// Whether this image of the process has ever begun a life.
static BORN: AtomicBool = AtomicBool::new(false);
/// Whether `cuInit` has succeeded in this life.
static USES_CUDA: AtomicBool = AtomicBool::new(false);

/// Whether hooks do their work. One look at the word, for the fast path; if not, [`settle`] decides.
#[inline(always)]
pub(crate) fn live() -> bool {
    word().load(Ordering::Acquire) == LIVE
}

/// Whether the library is known to be inert. Reachable from `resolve`.
pub(crate) fn off() -> bool {
    word().load(Ordering::Acquire) == OFF
}

/// Begins a life if none has begun, and says whether hooks do their work in it.
#[cold]
pub(crate) fn settle() -> bool {
    let _errno = Errno::save();
    // SAFETY: no preconditions.
    let own = BEGINNING | unsafe { libc::getpid() }.cast_unsigned();
    loop {
        let word = word();
        match word.load(Ordering::Acquire) {
            LIVE => return true,
            OFF => return false,
            busy if busy == own => {
                // SAFETY: no preconditions.
                unsafe { libc::sched_yield() };
            }
            // Not begun; or by a thread of the parent, which the fork left behind.
            found => {
                if word.compare_exchange(found, own, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    begin();
                }
            }
        }
    }
}

/// Notes that `cuInit` has succeeded, and says whether for the first time in this life.
pub(crate) fn uses_cuda() -> bool {
    !USES_CUDA.swap(true, Ordering::AcqRel)
}

#[inline(always)]
fn word() -> &'static AtomicU32 {
    // SAFETY: the static, or a page that is never unmapped.
    unsafe { &*WORD.load(Ordering::Acquire) }
}

fn begin() {
    if BORN.load(Ordering::Acquire) {
        forget_parent();
    } else {
        boundary::watch_panics();
        config::read();
        map_page();
        // SAFETY: the handler stays where it is: the library is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(after_fork)) };
        BORN.store(true, Ordering::Release);
    }
    word().store(if config::off() { OFF } else { LIVE }, Ordering::Release);
}

/// What a child must not take over.
fn forget_parent() {
    USES_CUDA.store(false, Ordering::Release);
    boundary::forked();
    gate::forked();
    world::forked();
    blocks::forked();
    control::forked();
    contexts::forked();
    captures::forked();
    answers::forked();
    busy::forked();
    callers::forked();
    hooks::refuse::forked();
    hooks::malloc::forked();
    hooks::sync::forked();
    registered::forked();
}

extern "C" fn after_fork() {
    // Where the kernel could not wipe the page.
    word().store(NOT_BEGUN, Ordering::Release);
    settle();
}

/// Puts the word into a page that a fork wipes. Without one (a kernel before 4.14) the handler alone has to do.
fn map_page() {
    // SAFETY: no preconditions.
    let Ok(size) = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }) else { return };
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let page = unsafe { libc::mmap(ptr::null_mut(), size, access, kind, -1, 0) };
    if page == libc::MAP_FAILED {
        return;
    }
    // SAFETY: the page just mapped.
    unsafe { libc::madvise(page, size, libc::MADV_WIPEONFORK) };
    WORD.store(page.cast(), Ordering::Release);
}
