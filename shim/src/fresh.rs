//! A static of the process that a forked child does without.
//!
//! Another thread may have been in the middle of changing it when the process forked, holding its lock. So the
//! child leaves the parent's value behind as it is and makes its own at first use.

use core::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value that is made at first use, lives as long as the process, and is not taken over by a fork.
#[derive(Debug)]
pub(crate) struct Fresh<T>(AtomicPtr<T>);

impl<T: Default> Fresh<T> {
    /// Nothing yet.
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The value.
    pub(crate) fn get(&self) -> &'static T {
        // SAFETY: null, or a box that is never freed.
        match unsafe { self.0.load(Ordering::Acquire).as_ref() } {
            Some(value) => value,
            None => self.make(),
        }
    }

    #[cold]
    fn make(&self) -> &'static T {
        let new = Box::into_raw(Box::<T>::default());
        match self.0.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: never freed from here on.
            Ok(_) => unsafe { &*new },
            Err(other) => {
                // SAFETY: nobody else has seen it.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: never freed.
                unsafe { &*other }
            }
        }
    }

    /// Leaves the parent's value behind: called in a forked child. Takes no lock.
    pub(crate) fn forked(&self) {
        self.0.store(ptr::null_mut(), Ordering::Release);
    }
}

/// Locks a leaf: what it protects stays usable after a panic, since every change is made in one step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
