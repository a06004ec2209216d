//! A queue with one thread behind it.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use protocol::Request;

/// A request on its way to a thread.
#[derive(Debug)]
pub(super) struct Job {
    /// Whose it is; the connection may be gone when it is done.
    pub(super) connection: u64,
    /// What is asked.
    pub(super) request: Request,
    /// How often the phase had changed when the request was handed over.
    pub(super) seen: u32,
}

#[derive(Debug, Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    closed: bool,
}

/// The queue. It is bounded by its users: a connection has one request under way.
#[derive(Debug, Default)]
pub(super) struct Lane {
    jobs: Mutex<Jobs>,
    changed: Condvar,
}

impl Lane {
    pub(super) fn push(&self, job: Job) {
        self.lock().waiting.push_back(job);
        self.changed.notify_one();
    }

    /// Ends the thread behind the queue.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// The next request; waits for one. `None` once the queue is closed.
    pub(super) fn next(&self) -> Option<Job> {
        let mut jobs = self.lock();
        loop {
            if jobs.closed {
                return None;
            }
            if let Some(job) = jobs.waiting.pop_front() {
                return Some(job);
            }
            jobs = self.changed.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
