//! Chunks that are read before they are asked for: while the driver restores, which is when disks have nothing to do.
//!
//! ```text
//!   begin --> threads read and check the first chunks of the load, as many as may lie in host memory
//!   stop  --> no further chunk is begun; the load takes those that are there, and waits for those under way
//!   forget
//! ```
//!
//! A chunk that cannot be read, or is bad, is left to the load, which says so.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use chunkstore::{AlignedBuf, Chunk, Sources, Verify};
use shim_core::control::spawn;

use super::{fetch, width};
use crate::transfer::TransferError;
use crate::transfer::crew::strength;

/// They call files and nothing of the program's.
const STACK: usize = 256 << 10;

/// What one `stage` has begun.
#[derive(Debug)]
struct Staged {
    sources: Sources,
    state: Mutex<State>,
    /// Told when a chunk is there or a thread is gone.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Chunk>,
    /// Chunks that a thread is reading.
    reading: Vec<Chunk>,
    there: BTreeMap<Chunk, AlignedBuf>,
    threads: usize,
}

/// What was staged, and the process it belongs to: a forked child has none of it.
static STAGED: Mutex<(u32, Option<Arc<Staged>>)> = Mutex::new((0, None));

fn current() -> Option<Arc<Staged>> {
    let staged = STAGED.lock().unwrap_or_else(PoisonError::into_inner);
    if staged.0 == std::process::id() { staged.1.clone() } else { None }
}

fn replace(new: Option<Arc<Staged>>) -> Option<Arc<Staged>> {
    let own = std::process::id();
    let mut staged = STAGED.lock().unwrap_or_else(PoisonError::into_inner);
    let (owner, old) = core::mem::replace(&mut *staged, (own, new));
    if owner == own {
        return old;
    }
    // The parent's: to drop it would take its lease away.
    core::mem::forget(old);
    None
}

/// Begins to read `chunks`, in this order, up to `bytes` of them. Does nothing where something is staged already.
pub(crate) fn begin(sources: Sources, chunks: &[Chunk], bytes: u64) -> Result<(), TransferError> {
    if current().is_some() {
        return Ok(());
    }
    let mut left = Some(bytes);
    let fits = |chunk: &&Chunk| {
        left = left.and_then(|left| left.checked_sub(chunk.len.into()));
        left.is_some()
    };
    let waiting: VecDeque<Chunk> = chunks.iter().take_while(fits).copied().collect();
    let count = strength(1).min(waiting.len());
    let state = State { waiting, threads: count, ..State::default() };
    let staged = Arc::new(Staged { sources, state: Mutex::new(state), changed: Condvar::new() });
    drop(replace(Some(Arc::clone(&staged))));
    for number in 0..count {
        let own = Arc::clone(&staged);
        if let Err(error) = spawn(c"nvsnap-stage", STACK, move || own.work()) {
            staged.lock().threads -= count - number;
            let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
            return Err(TransferError::System { call: "pthread_create", errno });
        }
    }
    Ok(())
}

/// Whether something is staged already.
pub(crate) fn has_begun() -> bool {
    current().is_some()
}

/// Begins no further chunk: the load reads the rest.
pub(crate) fn stop() {
    if let Some(staged) = current() {
        staged.lock().waiting.clear();
    }
}

/// Fills `into` with a chunk, if it was staged. Waits for it if it is being read.
pub(crate) fn take(chunk: &Chunk, into: &mut [u8]) -> bool {
    let Some(staged) = current() else { return false };
    let mut state = staged.lock();
    loop {
        if let Some(buffer) = state.there.remove(chunk) {
            drop(state);
            let len = width(chunk.len);
            let (Some(from), Some(to)) = (buffer.get(..len), into.get_mut(..len)) else { return false };
            to.copy_from_slice(from);
            return true;
        }
        if !state.reading.contains(chunk) {
            return false;
        }
        state = staged.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Gives everything back. No thread of ours is left when it returns.
pub(crate) fn forget() {
    stop();
    let Some(staged) = replace(None) else { return };
    let mut state = staged.lock();
    while state.threads > 0 {
        state = staged.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

impl Staged {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        // Also after a panic.
        let _leave = Leave(self);
        while let Some(chunk) = self.next() {
            let read = self.read(&chunk);
            let mut state = self.lock();
            state.reading.retain(|other| *other != chunk);
            if let Some(buffer) = read {
                state.there.insert(chunk, buffer);
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Option<Chunk> {
        let mut state = self.lock();
        let chunk = state.waiting.pop_front()?;
        state.reading.push(chunk);
        Some(chunk)
    }

    fn read(&self, chunk: &Chunk) -> Option<AlignedBuf> {
        let mut buffer = AlignedBuf::new(width(chunk.len)).ok()?;
        match fetch(&self.sources, chunk, &mut buffer, Verify::Here) {
            Ok(_) => Some(buffer),
            Err(error) => {
                log!("the load has to read again: {error}");
                None
            }
        }
    }
}

/// Says that a thread is gone.
struct Leave<'a>(&'a Staged);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.threads = state.threads.saturating_sub(1);
        if std::thread::panicking() {
            // Nobody must wait for what it was reading.
            state.reading.clear();
            state.waiting.clear();
        }
        drop(state);
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunkstore::{Kind, Store};

    #[test]
    fn what_was_staged_is_taken_and_what_is_bad_is_left_to_the_load() {
        let root = std::env::temp_dir().join(format!("nvsnap-staged-{}", std::process::id()));
        let store = Store::create(&root, Kind::Store).unwrap();
        let writer = store.writer(false).unwrap();
        let contents: Vec<Vec<u8>> = (1..=4_u8).map(|byte| vec![byte; 100_000]).collect();
        let chunks: Vec<Chunk> =
            contents.iter().map(|bytes| writer.put(bytes).unwrap().chunk().unwrap()).collect();
        std::fs::write(store.path_of(&chunks[1].digest), vec![9; 100_000]).unwrap();
        // Room for three of the four.
        begin(Sources::new(None, Some(store)), &chunks, 350_000).unwrap();
        assert!(has_begun());
        let mut into = vec![0; 100_000];
        // Until all that is going to be read has been.
        let staged = current().unwrap();
        let mut state = staged.lock();
        while state.threads > 0 {
            state = staged.changed.wait(state).unwrap();
        }
        drop(state);
        let taken: Vec<bool> = chunks.iter().map(|chunk| take(chunk, &mut into)).collect();
        assert_eq!(taken, [true, false, true, false]);
        assert!(into == contents[2]);
        assert!(!take(&chunks[0], &mut into), "it was given away");
        forget();
        assert!(!has_begun());
        std::fs::remove_dir_all(root).unwrap();
    }
}
