//! A host function that needs a lock, and a thread that launches while it has it: as an interpreter has one lock for all.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use cuda_sys::{DevicePtr, Stream};

use super::pinned::{Pinned, stream, sync, zeroed};
use super::{Load, Place, expect};
use crate::driver;
use crate::program::words::Words;
use crate::program::{Session, Trouble};

/// `load locked BOARD RANK INTERVAL`
#[derive(Debug)]
pub(super) struct Locked {
    session: Arc<Session>,
    count: DevicePtr,
    launches: Stream,
    calls: Stream,
    /// Never given back: a host function may still come.
    lock: &'static Mutex<u64>,
    seen: Pinned,
}

impl Locked {
    pub(super) fn new(session: &Arc<Session>, place: &Place, _: &mut Words<'_>) -> Result<Self, Trouble> {
        Ok(Self {
            session: Arc::clone(session),
            count: zeroed(8)?,
            launches: stream(false)?,
            calls: stream(false)?,
            lock: Box::leak(Box::default()),
            seen: Pinned::new(place.interval, 1)?,
        })
    }
}

extern "C" fn count_one(lock: *mut c_void) {
    // SAFETY: the lock that `launch` gave, which lives to the end of the process.
    let lock = unsafe { &*lock.cast::<Mutex<u64>>() };
    *lock.lock().unwrap_or_else(PoisonError::into_inner) += 1;
}

impl Load for Locked {
    fn launch(&mut self, round: u64) -> Result<(), Trouble> {
        let data = std::ptr::from_ref(self.lock).cast_mut().cast();
        // SAFETY: the function and what it is given live to the end of the process.
        unsafe { driver::cuLaunchHostFunc(self.calls, Some(count_one), data) }?;
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        crate::program::work::start(&self.session, self.launches, "increment", &mut [self.count.0])?;
        drop(guard);
        Ok(self.seen.take(round, 0, self.count, 1, self.launches)?)
    }

    fn check(&mut self, first: u64, last: u64) -> Result<(), Trouble> {
        sync(self.launches)?;
        sync(self.calls)?;
        for round in first..=last {
            expect("the count of rounds", round, &self.seen.read(round, 0), &round)?;
            self.seen.clear(round);
        }
        let called = *self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        expect("the count of host functions", last, &called, &last)
    }
}
