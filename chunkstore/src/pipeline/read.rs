//! Reading ahead: workers fill buffers with chunks, a reader takes them, in the order of the chunks or as they come.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::{Memory, OnLeave};
use crate::digest::Chunk;
use crate::error::LoadError;
use crate::lease::unpoisoned;
use crate::sources::{Fetched, Sources, Verify};

/// Chunks on their way from disk to a reader.
///
/// A worker takes a buffer first and only then a chunk. So the chunk that is due next always has a buffer, and readers
/// in order cannot starve, however few there are.
#[derive(Debug)]
pub struct ReadAhead<'a, M: Memory> {
    sources: &'a Sources,
    chunks: &'a [Chunk],
    verify: Verify,
    in_order: bool,
    state: Mutex<State<M>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<M> {
    free: VecDeque<M>,
    next: usize,
    done: BTreeMap<usize, (M, Result<Fetched, LoadError>)>,
    taken: usize,
    workers: usize,
    stopped: bool,
}

impl<'a, M: Memory> ReadAhead<'a, M> {
    /// Reads `chunks` through `buffers`, each of which holds the largest of them. `in_order`: the reader gets them in
    /// the order of `chunks`; else as they come.
    pub fn new(
        sources: &'a Sources,
        chunks: &'a [Chunk],
        verify: Verify,
        in_order: bool,
        buffers: impl IntoIterator<Item = M>,
    ) -> Self {
        let free = buffers.into_iter().collect();
        let state = State { free, next: 0, done: BTreeMap::new(), taken: 0, workers: 0, stopped: false };
        Self { sources, chunks, verify, in_order, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Reads until all chunks are read or the reader is gone. To be called on each worker.
    pub fn work(&self) {
        unpoisoned(&self.state).workers += 1;
        let _leave = OnLeave(|failed| {
            let mut state = unpoisoned(&self.state);
            state.workers -= 1;
            state.stopped |= failed;
            self.changed.notify_all();
        });
        let mut state = unpoisoned(&self.state);
        loop {
            if state.stopped || state.next == self.chunks.len() {
                return;
            }
            state = match state.begin(self.chunks) {
                Some(task) => self.read(state, task),
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// The other end. When it is dropped, the workers return. There should be one at a time.
    pub fn reader(&self) -> Reader<'_, 'a, M> {
        Reader { ahead: self }
    }

    /// The buffers, when all is over.
    pub fn into_buffers(self) -> Vec<M> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.free.into_iter().chain(state.done.into_values().map(|(buffer, _)| buffer)).collect()
    }

    fn read<'s>(
        &'s self,
        state: MutexGuard<'s, State<M>>,
        task: (usize, Chunk, M),
    ) -> MutexGuard<'s, State<M>> {
        drop(state);
        let (index, chunk, mut buffer) = task;
        let result = self.sources.fetch(&chunk, buffer.as_mut(), self.verify);
        let mut state = unpoisoned(&self.state);
        state.done.insert(index, (buffer, result));
        self.changed.notify_all();
        state
    }

    fn stop(&self) {
        unpoisoned(&self.state).stopped = true;
        self.changed.notify_all();
    }
}

impl<M> State<M> {
    /// The next chunk, and a buffer for it, if there is one.
    fn begin(&mut self, chunks: &[Chunk]) -> Option<(usize, Chunk, M)> {
        let chunk = *chunks.get(self.next)?;
        let buffer = self.free.pop_front()?;
        self.next += 1;
        Some((self.next - 1, chunk, buffer))
    }

    fn take(&mut self, in_order: bool) -> Option<(usize, M, Result<Fetched, LoadError>)> {
        let index = if in_order { self.taken } else { *self.done.keys().next()? };
        let (buffer, result) = self.done.remove(&index)?;
        self.taken += 1;
        Some((index, buffer, result))
    }
}

/// Takes chunks out of a [`ReadAhead`].
#[derive(Debug)]
pub struct Reader<'p, 'a, M: Memory> {
    ahead: &'p ReadAhead<'a, M>,
}

impl<'p, 'a, M: Memory> Reader<'p, 'a, M> {
    /// The next chunk, or `None` after the last one, or when a worker has failed for good.
    ///
    /// Waits while all buffers are in the hands of the caller: somebody must give one back.
    pub fn next_chunk(&mut self) -> Option<Filled<'p, 'a, M>> {
        let ahead = self.ahead;
        let mut state = unpoisoned(&ahead.state);
        loop {
            if state.stopped || state.taken == ahead.chunks.len() {
                return None;
            }
            if let Some((index, buffer, result)) = state.take(ahead.in_order) {
                let chunk = *ahead.chunks.get(index)?;
                return Some(Filled { ahead, index, chunk, result, buffer: Some(buffer) });
            }
            let own = if state.workers == 0 { state.begin(ahead.chunks) } else { None };
            state = match own {
                Some(task) => ahead.read(state, task),
                None => ahead.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl<M: Memory> Drop for Reader<'_, '_, M> {
    fn drop(&mut self) {
        self.ahead.stop();
    }
}

/// A chunk in a buffer. The buffer goes back when this is dropped, on whatever thread.
#[derive(Debug)]
pub struct Filled<'p, 'a, M: Memory> {
    ahead: &'p ReadAhead<'a, M>,
    /// Its place among the chunks.
    pub index: usize,
    /// Which it is.
    pub chunk: Chunk,
    /// Whether it could be read.
    pub result: Result<Fetched, LoadError>,
    buffer: Option<M>,
}

impl<M: Memory> Filled<'_, '_, M> {
    /// Reads it again from the places after the one it came from, since the caller found its bytes to be wrong: they
    /// hash to `found`.
    pub fn fetch_elsewhere(&mut self, found: crate::Digest) {
        if let (Ok(fetched), Some(buffer)) = (&self.result, &mut self.buffer) {
            let (sources, verify) = (self.ahead.sources, self.ahead.verify);
            self.result = sources.fetch_after(fetched.place, found, &self.chunk, buffer.as_mut(), verify);
        }
    }

    /// The buffer, of which the chunk is the beginning.
    pub fn buffer(&self) -> Option<&M> {
        self.buffer.as_ref()
    }
}

/// The chunk's bytes; what they are means something only if `result` is good.
impl<M: Memory> Deref for Filled<'_, '_, M> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let len = usize::try_from(self.chunk.len).unwrap_or(usize::MAX);
        self.buffer.as_ref().and_then(|buffer| buffer.as_ref().get(..len)).unwrap_or_default()
    }
}

impl<M: Memory> Drop for Filled<'_, '_, M> {
    fn drop(&mut self) {
        unpoisoned(&self.ahead.state).free.extend(self.buffer.take());
        self.ahead.changed.notify_all();
    }
}
