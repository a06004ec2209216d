//! A queue between threads. (The standard library's channels keep a thread-local with a destructor.)
//!
//! Room for what is pushed is made by [`Queue::new`]: a thread of the crew that allocated would leave an arena of the
//! C library behind in the program.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// First in, first out; whoever finds it empty waits until something comes or it is closed.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    closed: bool,
}

impl<T> Queue<T> {
    /// A queue with room for `room` items; more make it grow.
    pub(super) fn new(room: usize) -> Self {
        let state = State { items: VecDeque::with_capacity(room), closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, item: T) {
        self.lock().items.push_back(item);
        self.changed.notify_one();
    }

    /// The next item, if there is one at this moment.
    pub(super) fn try_pop(&self) -> Option<T> {
        self.lock().items.pop_front()
    }

    /// The next item, or `None` once the queue is closed and empty.
    pub(super) fn pop(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(item) = state.items.pop_front() {
                return Some(item);
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Nothing more will come.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}
