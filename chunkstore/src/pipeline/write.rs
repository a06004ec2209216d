//! Writing behind: a producer fills buffers, workers store them.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use thiserror::Error;

use super::{Memory, OnLeave};
use crate::digest::Digest;
use crate::error::PutError;
use crate::lease::unpoisoned;
use crate::writer::{Put, Writer};

/// Chunks on their way from a producer to disk.
#[derive(Debug)]
pub struct WriteBehind<'a, M: Memory> {
    writer: &'a Writer,
    state: Mutex<State<M>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<M> {
    free: VecDeque<M>,
    waiting: VecDeque<Job<M>>,
    being_written: usize,
    put: Vec<(usize, Put)>,
    workers: usize,
    ended: bool,
    failed: Option<WriteError>,
}

#[derive(Debug)]
struct Job<M> {
    index: usize,
    buffer: M,
    len: usize,
    digest: Option<Digest>,
}

/// Why nothing more is written. Whoever asks later gets the same: the first failure is the one that counts.
#[derive(Clone, Debug, Error)]
pub enum WriteError {
    /// A chunk could not be stored.
    #[error(transparent)]
    Put(Arc<PutError>),
    /// A worker ended by a panic.
    #[error("a thread that wrote chunks has failed")]
    Worker,
}

impl<'a, M: Memory> WriteBehind<'a, M> {
    /// Writes through `buffers` what a producer puts in.
    pub fn new(writer: &'a Writer, buffers: impl IntoIterator<Item = M>) -> Self {
        let state = State {
            free: buffers.into_iter().collect(),
            waiting: VecDeque::new(),
            being_written: 0,
            put: Vec::new(),
            workers: 0,
            ended: false,
            failed: None,
        };
        Self { writer, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Stores what comes until the producer is gone or something failed. To be called on each worker.
    pub fn work(&self) {
        unpoisoned(&self.state).workers += 1;
        let _leave = OnLeave(|failed| {
            let mut state = unpoisoned(&self.state);
            state.workers -= 1;
            if failed {
                state.failed.get_or_insert(WriteError::Worker);
            }
            self.changed.notify_all();
        });
        let mut state = unpoisoned(&self.state);
        loop {
            if state.failed.is_some() || (state.ended && state.waiting.is_empty()) {
                return;
            }
            state = match state.waiting.pop_front() {
                Some(job) => self.write(state, job),
                None => self.wait(state),
            };
        }
    }

    /// The other end. When it is dropped, the workers store what is waiting and return. There should be one.
    pub fn producer(&self) -> Producer<'_, 'a, M> {
        Producer { behind: self }
    }

    /// The buffers, when all is over.
    pub fn into_buffers(self) -> Vec<M> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.free.into_iter().chain(state.waiting.into_iter().map(|job| job.buffer)).collect()
    }

    fn wait<'s>(&'s self, state: MutexGuard<'s, State<M>>) -> MutexGuard<'s, State<M>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn write<'s>(&'s self, mut state: MutexGuard<'s, State<M>>, job: Job<M>) -> MutexGuard<'s, State<M>> {
        state.being_written += 1;
        drop(state);
        let bytes = job.buffer.as_ref().get(..job.len).unwrap_or_default();
        let result = match job.digest {
            Some(digest) => self.writer.put_hashed(digest, bytes),
            None => self.writer.put(bytes),
        };
        let mut state = unpoisoned(&self.state);
        state.being_written -= 1;
        state.free.push_back(job.buffer);
        match result {
            Ok(put) => state.put.push((job.index, put)),
            Err(error) => {
                state.failed.get_or_insert_with(|| WriteError::Put(Arc::new(error)));
            }
        }
        self.changed.notify_all();
        state
    }
}

/// Puts chunks into a [`WriteBehind`].
#[derive(Debug)]
pub struct Producer<'p, 'a, M: Memory> {
    behind: &'p WriteBehind<'a, M>,
}

impl<M: Memory> Producer<'_, '_, M> {
    /// A buffer to fill. What has failed is told here. Waits until one is free: the caller must not have all of them
    /// itself.
    pub fn buffer(&mut self) -> Result<M, WriteError> {
        self.until(|state| state.free.pop_front())
    }

    /// Has the first `len` bytes of `buffer` stored. `index` says which they are, for [`finish`](Self::finish); the
    /// digest is computed if it is not known.
    pub fn submit(&mut self, index: usize, buffer: M, len: usize, digest: Option<Digest>) {
        unpoisoned(&self.behind.state).waiting.push_back(Job { index, buffer, len, digest });
        self.behind.changed.notify_all();
    }

    /// Waits until all is stored, and says what became of it, by index.
    pub fn finish(mut self) -> Result<Vec<(usize, Put)>, WriteError> {
        let mut put = self.until(|state| {
            (state.waiting.is_empty() && state.being_written == 0).then(|| std::mem::take(&mut state.put))
        })?;
        put.sort_by_key(|(index, _)| *index);
        Ok(put)
    }

    /// Waits for something, and while there is no worker does the writing.
    fn until<T>(&mut self, mut look: impl FnMut(&mut State<M>) -> Option<T>) -> Result<T, WriteError> {
        let mut state = unpoisoned(&self.behind.state);
        loop {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if let Some(found) = look(&mut state) {
                return Ok(found);
            }
            let own = if state.workers == 0 { state.waiting.pop_front() } else { None };
            state = match own {
                Some(job) => self.behind.write(state, job),
                None => self.behind.wait(state),
            };
        }
    }
}

impl<M: Memory> Drop for Producer<'_, '_, M> {
    fn drop(&mut self) {
        unpoisoned(&self.behind.state).ended = true;
        self.behind.changed.notify_all();
    }
}
