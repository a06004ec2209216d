//! A bell for the control thread, which sleeps in `poll`: a pipe that any thread may write to.
//!
//! A pipe and not an eventfd, because a pipe has an inode of its own: a number that has come to mean another file
//! is found out (see [`Descriptors`]). Ringing takes a lock that is held for one `write` to a
//! pipe that never blocks.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use core::sync::atomic::{AtomicPtr, Ordering};

use super::descriptors::{Descriptors, Held};

/// The end that rings. Silent until [`Wake::open`], and again after a fork.
#[derive(Debug)]
pub(super) struct Wake {
    /// Leaked once per process generation; a lock of the parent's is never taken by a child.
    bell: AtomicPtr<Mutex<Option<Held>>>,
}

impl Wake {
    pub(super) const fn new() -> Self {
        Self { bell: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Makes a new pipe, and gives the end to poll.
    pub(super) fn open(&self, descriptors: &'static Descriptors) -> io::Result<Held> {
        let (read, write) = pipe()?;
        let (read, write) = (descriptors.hold(read)?, descriptors.hold(write)?);
        match self.bell() {
            Some(bell) => *lock(bell) = Some(write),
            None => {
                let bell = Box::leak(Box::new(Mutex::new(Some(write))));
                self.bell.store(bell, Ordering::Release);
            }
        }
        Ok(read)
    }

    /// Wakes the control thread, if there is one.
    pub(super) fn ring(&self) {
        let Some(bell) = self.bell() else { return };
        if let Some(write) = lock(bell).as_ref().filter(|write| write.is_ours()) {
            let byte = [1_u8];
            // SAFETY: one byte from a live array. A full pipe has woken the thread already, so the result does
            // not matter; the reading end lives as long as this one, so there is no signal.
            unsafe { libc::write(write.as_fd().as_raw_fd(), byte.as_ptr().cast(), 1) };
        }
    }

    /// Forgets the parent's pipe, in a forked child.
    pub(super) fn forked(&self) {
        self.bell.store(core::ptr::null_mut(), Ordering::Relaxed);
    }

    fn bell(&self) -> Option<&'static Mutex<Option<Held>>> {
        // SAFETY: null, or a leaked box.
        unsafe { self.bell.load(Ordering::Acquire).as_ref() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes everything out of the pipe.
pub(super) fn silence(read: &Held) {
    let mut bytes = [0_u8; 64];
    loop {
        // SAFETY: writes at most the array's length into it; the pipe does not block.
        let count = unsafe { libc::read(read.as_fd().as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
        if usize::try_from(count) != Ok(bytes.len()) {
            return;
        }
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    // SAFETY: two descriptors are written to the array.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let [read, write] = ends;
    // SAFETY: `pipe2` just made it.
    let read = unsafe { OwnedFd::from_raw_fd(read) };
    // SAFETY: as above.
    let write = unsafe { OwnedFd::from_raw_fd(write) };
    Ok((read, write))
}
