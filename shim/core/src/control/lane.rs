//! A queue with one thread behind it.

use core::time::Duration;
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

/// What the thread behind a queue is to do.
#[derive(Debug)]
pub(super) enum Next {
    /// Carry this out.
    Job(Job),
    /// Nothing came for as long as it was willing to wait.
    Rested,
    /// End.
    Closed,
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

    /// What to do next; waits for a request, but not longer than `rest`.
    pub(super) fn next(&self, rest: Option<Duration>) -> Next {
        let mut jobs = self.lock();
        loop {
            if jobs.closed {
                return Next::Closed;
            }
            if let Some(job) = jobs.waiting.pop_front() {
                return Next::Job(job);
            }
            jobs = match rest {
                None => self.changed.wait(jobs).unwrap_or_else(PoisonError::into_inner),
                Some(rest) => {
                    let (jobs, timeout) =
                        self.changed.wait_timeout(jobs, rest).unwrap_or_else(PoisonError::into_inner);
                    if timeout.timed_out() && jobs.waiting.is_empty() && !jobs.closed {
                        return Next::Rested;
                    }
                    jobs
                }
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
