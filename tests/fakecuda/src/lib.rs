//! A stand-in for `libcuda.so.1` that runs without a GPU and behaves as the real driver was measured to behave.
//!
//! * [`exports`] and [`api`]: every function of `cuda.h`, and where its body is.
//! * [`trace`], [`hold`], [`faults`]: what goes round each call.
//! * [`machine`]: what the processes with one `FAKECUDA_DIR` share.
//! * [`driver`], [`device`], [`context`], [`memory`], [`work`], [`checkpoint`]: the families.
//!
//! What a quirk is for is said where it is implemented, by the section of docs/DRIVER-VERSIONS.md it follows.
//! The stand-in knows nothing of the libraries that may stand before it.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

mod api;
mod args;
mod checkpoint;
mod config;
mod context;
mod device;
mod driver;
mod entry;
mod exports;
mod faults;
mod futex;
mod hold;
mod hold_class;
mod machine;
mod memory;
mod pass;
mod ranges;
mod slab;
mod trace;
mod work;

/// Locks. A panic elsewhere ends the process at the boundary of the call, so a poisoned lock is never met.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for reading; see [`lock`].
fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for writing; see [`lock`].
fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
