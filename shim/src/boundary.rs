//! The edge between C and Rust: no panic crosses it, and `errno` is as found.
//!
//! A panic in a hook is a fault of ours in somebody's process. The call answers `CUDA_ERROR_UNKNOWN`, the
//! panic is logged, and the shim is poisoned: it goes on answering calls, but no verb is carried out any more, since
//! what it knows may be wrong.

use std::cell::UnsafeCell;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};

use cuda_sys::{CuError, CuResult};

use crate::log::Line;

const CLEAN: u8 = 0;
const WRITING: u8 = 1;
const POISONED: u8 = 2;

/// The first panic, for whoever asks why nothing is carried out.
struct Poison {
    state: AtomicU8,
    text: UnsafeCell<Line>,
}

// SAFETY: `text` is written by the one thread that moved `state` from `CLEAN` to `WRITING`, and read only after that
// thread moved it on.
unsafe impl Sync for Poison {}

static POISON: Poison = Poison { state: AtomicU8::new(CLEAN), text: UnsafeCell::new(Line::new()) };

/// What the first panic said, if there was one.
pub(crate) fn poisoned() -> Option<&'static str> {
    if POISON.state.load(Ordering::Acquire) != POISONED {
        return None;
    }
    // SAFETY: nobody writes it any more.
    Some(unsafe { &*POISON.text.get() }.as_str())
}

/// Runs `body`; a panic in it becomes `CUDA_ERROR_UNKNOWN`.
#[inline(always)]
pub(crate) fn catch(body: impl FnOnce() -> CuResult) -> CuResult {
    // What the body works on is not used again after a panic: verbs look at `poisoned` first.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(CuError::UNKNOWN))
}

/// As [`catch`], for bodies that do more than call the driver: `errno` is afterwards as it was.
#[inline]
pub(crate) fn run(body: impl FnOnce() -> CuResult) -> CuResult {
    let _errno = Errno::save();
    catch(body)
}

/// Replaces the standard library's panic hook, which prints to the program's standard error.
pub(crate) fn watch_panics() {
    panic::set_hook(Box::new(panicked));
}

/// Forgets the parent's panic: called in a forked child.
pub(crate) fn forked() {
    POISON.state.store(CLEAN, Ordering::Release);
}

fn panicked(info: &PanicHookInfo<'_>) {
    log!("{info}");
    let first = POISON.state.compare_exchange(CLEAN, WRITING, Ordering::Acquire, Ordering::Relaxed);
    if first.is_ok() {
        // SAFETY: the state is `WRITING` by our hand.
        let text = unsafe { &mut *POISON.text.get() };
        text.set(format_args!("{info}"));
        POISON.state.store(POISONED, Ordering::Release);
    }
}

/// Puts `errno` back on drop.
#[derive(Debug)]
pub(crate) struct Errno {
    place: *mut libc::c_int,
    value: libc::c_int,
}

impl Errno {
    /// Keeps the thread's `errno`.
    #[must_use]
    pub(crate) fn save() -> Self {
        // SAFETY: no preconditions.
        let place = unsafe { libc::__errno_location() };
        // SAFETY: the thread's own variable.
        Self { place, value: unsafe { place.read() } }
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: the variable of the thread that made this value, which is the one that drops it: not `Send`.
        unsafe { self.place.write(self.value) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // One test: the panic hook and what it notes belong to the whole process.
    #[test]
    fn a_panic_becomes_an_error_is_noted_and_changes_nothing_else() {
        assert_eq!(run(|| Ok(())), Ok(()));
        assert_eq!(run(|| Err(CuError::OUT_OF_MEMORY)), Err(CuError::OUT_OF_MEMORY));
        assert_eq!(poisoned(), None);

        let previous = panic::take_hook();
        watch_panics();
        // SAFETY: no preconditions.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: the thread's own variable.
        unsafe { errno.write(77) };
        let result = run(|| {
            // SAFETY: as above.
            unsafe { errno.write(1) };
            panic!("a fault of ours")
        });
        // SAFETY: as above.
        let after = unsafe { errno.read() };
        let second = catch(|| panic!("another"));
        panic::set_hook(previous);

        assert_eq!(result, Err(CuError::UNKNOWN));
        assert_eq!(second, Err(CuError::UNKNOWN));
        assert_eq!(after, 77);
        let said = poisoned().expect("noted");
        assert!(said.contains("a fault of ours") && said.contains("boundary.rs"), "{said}");
        forked();
        assert_eq!(poisoned(), None);
    }
}
