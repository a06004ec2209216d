//! Memory of other processes: opened by handles, as often as one likes, and gone with the last close.

use std::collections::BTreeMap;

use cuda_sys::Context;
use protocol::AllocationId;

use super::state::{Entry, Holds};
use super::{Blocks, Owner, Span};

/// What closing an opened handle comes to.
#[derive(Debug)]
pub enum Closed {
    /// Others hold it still.
    Counted,
    /// That was the last one: the span is to be given back.
    Last(Span),
}

impl Blocks {
    /// Records where memory of a peer is mapped; blocks in it are opened by [`open`](Self::open). False where the
    /// allocation is mapped already.
    pub fn add_opened(&self, span: Span, allocation: AllocationId, owner: Owner) -> bool {
        let mut state = self.lock();
        if state.opened.contains_key(&allocation) {
            return false;
        }
        state.opened.insert(allocation, span.base);
        let holds = Holds::Opened { allocation, blocks: BTreeMap::new(), elsewhere: false };
        state.spans.insert(span.base, Entry { len: span.len, owner, holds });
        true
    }

    /// Counts an opening in `context` of the block of `size` bytes at `offset` of a peer's allocation. Its address, or `None`
    /// where the allocation is not mapped.
    pub fn open(&self, allocation: AllocationId, offset: u64, size: u64, context: Context) -> Option<u64> {
        let mut state = self.lock();
        let base = *state.opened.get(&allocation)?;
        let new = state.block(size);
        let entry = state.spans.get_mut(&base)?;
        match &mut entry.holds {
            Holds::Opened { blocks, elsewhere, .. } => {
                blocks.entry(offset).or_insert((new, 0)).1 += 1;
                *elsewhere |= entry.owner.context != context;
            }
            _ => return None,
        }
        Some(base + offset)
    }

    /// Takes one opening of the block at `address` away. `None` where nothing was opened there.
    pub fn close(&self, address: u64) -> Option<Closed> {
        let mut state = self.lock();
        let (base, entry) = state.spans.range_mut(..=address).next_back()?;
        let (base, len) = (*base, entry.len);
        let Holds::Opened { allocation, blocks, .. } = &mut entry.holds else { return None };
        let (_, count) = blocks.get_mut(&(address - base))?;
        *count -= 1;
        if *count == 0 {
            blocks.remove(&(address - base));
        }
        if !blocks.is_empty() {
            return Some(Closed::Counted);
        }
        let allocation = *allocation;
        state.opened.remove(&allocation);
        state.spans.remove(&base);
        Some(Closed::Last(Span { base, len }))
    }
}
