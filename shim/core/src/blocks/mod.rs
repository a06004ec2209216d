//! Which addresses `cuMemAlloc` gave to the program out of memory of our own, and which ones opened IPC handles show.
//!
//! ```text
//!   span: one allocation, mapped          block: what the program was given
//!   +-----------------------------+
//!   | large:  one block           |       base, bytes asked for, identity
//!   | slab:   many small blocks   |
//!   | opened: one, of a peer      |
//!   +-----------------------------+
//! ```
//!
//! What holds:
//! * A block that is being freed is out of the table before anybody waits for the GPU, so that it is freed once.
//! * Its room in a slab is free only after that wait: a kernel may still use it.
//! * A slab without blocks is handed out to be given back, except for one per context, so that one small block that
//!   comes and goes does not create and destroy memory each time.
//! * One leaf mutex; a lookup costs O(log n).

mod opened;
mod slab;
mod state;

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_sys::{Context, Device};
pub use opened::Closed;
pub use slab::{SLAB, SMALL};

use slab::Slab;
use state::{Entry, Holds, Small, State, key};

/// Who a block belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The context that was current when it was made; it dies with it.
    pub context: Context,
    /// Where it is.
    pub device: Device,
}

/// What is known of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Its first address.
    pub base: u64,
    /// The bytes that were asked for.
    pub size: u64,
    /// A number no other block of the process has had.
    pub id: u64,
    /// Whether copies of it wait (`SYNC_MEMOPS`).
    pub sync_memops: bool,
    /// Whom it belongs to.
    pub owner: Owner,
    /// The span it lies in.
    pub span: Span,
    /// Whether it is memory of another process.
    pub opened: bool,
}

/// A mapping that holds blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Its first address.
    pub base: u64,
    /// Its bytes.
    pub len: u64,
}

/// What an address is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Inside a block.
    Block(Block),
    /// In a span, but in no block: to the program nothing is there.
    Gap,
    /// Nothing of ours.
    Foreign,
}

/// A block on its way out: nobody can find it any more.
#[derive(Debug)]
#[must_use = "the block is lost unless it is ended or put back"]
pub struct Taken {
    block: Block,
    room: Option<slab::Room>,
}

impl Taken {
    /// The block.
    pub const fn block(&self) -> &Block {
        &self.block
    }
}

/// Every span and block of the process.
pub struct Blocks {
    state: Mutex<State>,
}

impl Blocks {
    /// No blocks.
    pub const fn new() -> Self {
        Self { state: Mutex::new(State::new()) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock has poisoned the shim as a whole already; hooks go on as well as they can.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a span with one block of `size` bytes.
    pub fn add_large(&self, span: Span, size: u64, owner: Owner) {
        let mut state = self.lock();
        let block = state.block(size);
        state.spans.insert(span.base, Entry { len: span.len, owner, holds: Holds::Large(Some(block)) });
    }

    /// Records a span of [`SLAB`] bytes for small blocks, the first of them of `size` bytes.
    pub fn add_slab(&self, span: Span, owner: Owner, size: u64) {
        let slab = Slab::new(slab::units(size).unwrap_or(1));
        let mut state = self.lock();
        state.offer(owner, slab.largest(), span.base);
        state.spans.insert(span.base, Entry { len: span.len, owner, holds: Holds::Slab(Box::new(slab)) });
    }

    /// Finds room for a small block in a slab of the context. `None`: a slab has to be added first.
    pub fn place(&self, size: u64, context: Context) -> Option<u64> {
        let need = slab::units(size)?;
        let mut state = self.lock();
        let block = state.block(size);
        let candidates: Vec<(u32, u64)> =
            state.room.get(&key(context))?.range((need, 0)..).take(slab::TRIES).copied().collect();
        for (largest, base) in candidates {
            let Some(Entry { holds: Holds::Slab(slab), owner, .. }) = state.spans.get_mut(&base) else {
                continue;
            };
            let owner = *owner;
            if let Some(offset) = slab.place(need, block) {
                let now = slab.largest();
                state.withdraw(owner, largest, base);
                state.offer(owner, now, base);
                return Some(base + offset);
            }
        }
        None
    }

    /// What is at an address.
    pub fn find(&self, address: u64) -> Found {
        self.lock().find(address)
    }

    /// Whether any byte of `address..address + len` lies in a span.
    pub fn touches(&self, address: u64, len: u64) -> bool {
        let state = self.lock();
        let before = state.spans.range(..=address).next_back();
        before.is_some_and(|(base, entry)| address - base < entry.len)
            || state.spans.range(address..address.saturating_add(len)).next().is_some()
    }

    /// Changes `SYNC_MEMOPS` of the block around an address. False where there is none.
    pub fn set_sync_memops(&self, address: u64, on: bool) -> bool {
        let mut state = self.lock();
        let Found::Block(block) = state.find(address) else { return false };
        let Some(entry) = state.spans.get_mut(&block.span.base) else { return false };
        let small = match &mut entry.holds {
            Holds::Large(small) => small.as_mut(),
            Holds::Opened { blocks, .. } => {
                blocks.get_mut(&(block.base - block.span.base)).map(|(small, _)| small)
            }
            Holds::Slab(slab) => slab.block_mut(block.base - block.span.base),
        };
        small.is_some_and(|small| {
            small.sync_memops = on;
            true
        })
    }

    /// Takes out the block that begins at `base` and was made here.
    pub fn take(&self, base: u64) -> Option<Taken> {
        let mut state = self.lock();
        let Found::Block(block) = state.find(base) else { return None };
        if block.base != base || block.opened {
            return None;
        }
        let room = match &mut state.spans.get_mut(&block.span.base)?.holds {
            Holds::Large(small) => {
                *small = None;
                None
            }
            Holds::Slab(slab) => Some(slab.take(base - block.span.base)?),
            Holds::Opened { .. } => return None,
        };
        Some(Taken { block, room })
    }

    /// Puts back a block that could not be freed.
    pub fn put_back(&self, taken: Taken) {
        let mut state = self.lock();
        let small =
            Small { size: taken.block.size, id: taken.block.id, sync_memops: taken.block.sync_memops };
        let Some(entry) = state.spans.get_mut(&taken.block.span.base) else { return };
        match (&mut entry.holds, taken.room) {
            (Holds::Large(empty), _) => *empty = Some(small),
            (Holds::Slab(slab), Some(room)) => {
                slab.put_back(taken.block.base - taken.block.span.base, room, small)
            }
            _ => {}
        }
    }

    /// Ends a block: nothing uses its bytes any more. Returns a span that is to be given back.
    pub fn end(&self, taken: Taken) -> Option<Span> {
        let mut state = self.lock();
        let Block { span, owner, .. } = taken.block;
        let entry = state.spans.get_mut(&span.base)?;
        let Holds::Slab(slab) = &mut entry.holds else {
            state.spans.remove(&span.base);
            return Some(span);
        };
        let before = slab.largest();
        slab.free(taken.room?);
        let (now, empty) = (slab.largest(), slab.is_empty());
        state.withdraw(owner, before, span.base);
        if empty && state.has_an_empty_slab(owner) {
            state.spans.remove(&span.base);
            return Some(span);
        }
        state.offer(owner, now, span.base);
        None
    }

    /// Takes out every slab that holds nothing, to be given back: memory is short.
    pub fn take_empty_slabs(&self) -> Vec<Span> {
        let mut state = self.lock();
        state.take_where(|entry| matches!(&entry.holds, Holds::Slab(slab) if slab.is_empty()))
    }

    /// Takes out everything that belongs to a context, which is being destroyed: also memory of peers that was opened in no
    /// other, as with the driver (580.159.04).
    pub fn take_context(&self, context: Context) -> Vec<Span> {
        let mut state = self.lock();
        state.take_where(|entry| {
            let elsewhere = matches!(entry.holds, Holds::Opened { elsewhere: true, .. });
            entry.owner.context == context && !elsewhere
        })
    }

    /// Spans, blocks and the bytes asked for.
    pub fn census(&self) -> (usize, usize, u64) {
        let state = self.lock();
        let (mut blocks, mut bytes) = (0, 0);
        for entry in state.spans.values() {
            match &entry.holds {
                Holds::Large(small) => {
                    blocks += usize::from(small.is_some());
                    bytes += small.map_or(0, |small| small.size);
                }
                Holds::Opened { .. } => {}
                Holds::Slab(slab) => {
                    blocks += slab.blocks().len();
                    bytes += slab.blocks().values().map(|(small, _)| small.size).sum::<u64>();
                }
            }
        }
        (state.spans.len(), blocks, bytes)
    }
}

impl Default for Blocks {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the lock: a log line may be written while it is held.
        f.debug_struct("Blocks").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
