//! The tables themselves: spans by address, what they hold, and where slabs have room.

use std::collections::{BTreeMap, BTreeSet};

use cuda_sys::Context;
use protocol::AllocationId;

use super::slab::{self, Slab};
use super::{Block, Found, Owner, Span};

/// What the mutex protects.
#[derive(Debug)]
pub(super) struct State {
    pub(super) spans: BTreeMap<u64, Entry>,
    /// Spans of opened memory by the allocation they show.
    pub(super) opened: BTreeMap<AllocationId, u64>,
    /// Slabs by context, and by what they have room for.
    pub(super) room: BTreeMap<usize, BTreeSet<(u32, u64)>>,
    pub(super) next_id: u64,
}

/// A span.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) len: u64,
    pub(super) owner: Owner,
    pub(super) holds: Holds,
}

/// What is in it.
#[derive(Debug)]
pub(super) enum Holds {
    /// `None` while its block is on its way out.
    Large(Option<Small>),
    Slab(Box<Slab>),
    /// By offset: a peer's slab may hold several blocks that were opened.
    Opened {
        allocation: AllocationId,
        blocks: BTreeMap<u64, (Small, u64)>,
        /// Whether another context than the owner has opened it too: then it does not end with the owner.
        elsewhere: bool,
    },
}

/// A block without what its span tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Small {
    pub(super) size: u64,
    pub(super) id: u64,
    pub(super) sync_memops: bool,
}

pub(super) fn key(context: Context) -> usize {
    context.0.addr()
}

impl State {
    pub(super) const fn new() -> Self {
        Self { spans: BTreeMap::new(), opened: BTreeMap::new(), room: BTreeMap::new(), next_id: 1 << 32 }
    }

    /// A new block, with a number that no other has had.
    pub(super) fn block(&mut self, size: u64) -> Small {
        let id = self.next_id;
        self.next_id += 1;
        Small { size, id, sync_memops: false }
    }

    pub(super) fn offer(&mut self, owner: Owner, largest: u32, base: u64) {
        if largest > 0 {
            self.room.entry(key(owner.context)).or_default().insert((largest, base));
        }
    }

    pub(super) fn withdraw(&mut self, owner: Owner, largest: u32, base: u64) {
        if let Some(room) = self.room.get_mut(&key(owner.context)) {
            room.remove(&(largest, base));
            if room.is_empty() {
                self.room.remove(&key(owner.context));
            }
        }
    }

    /// Whether the context has a slab without blocks among those on offer.
    pub(super) fn has_an_empty_slab(&self, owner: Owner) -> bool {
        self.room.get(&key(owner.context)).is_some_and(|room| room.range((slab::UNITS, 0)..).next().is_some())
    }

    pub(super) fn find(&self, address: u64) -> Found {
        let Some((base, entry)) = self.spans.range(..=address).next_back() else { return Found::Foreign };
        let span = Span { base: *base, len: entry.len };
        if address - base >= entry.len {
            return Found::Foreign;
        }
        let (base, small, opened) = match &entry.holds {
            Holds::Large(Some(small)) => (span.base, *small, false),
            Holds::Large(None) => return Found::Gap,
            Holds::Opened { blocks, .. } => match blocks.range(..=address - base).next_back() {
                Some((offset, (small, _))) => (span.base + offset, *small, true),
                None => return Found::Gap,
            },
            Holds::Slab(slab) => match slab.block_at(address - base) {
                Some((offset, small)) => (span.base + offset, small, false),
                None => return Found::Gap,
            },
        };
        if address - base >= small.size {
            return Found::Gap;
        }
        let Small { size, id, sync_memops } = small;
        Found::Block(Block { base, size, id, sync_memops, owner: entry.owner, span, opened })
    }

    pub(super) fn take_where(&mut self, mut gone: impl FnMut(&Entry) -> bool) -> Vec<Span> {
        let bases: Vec<u64> =
            self.spans.iter().filter(|(_, entry)| gone(entry)).map(|(base, _)| *base).collect();
        let mut spans = Vec::with_capacity(bases.len());
        for base in bases {
            let Some(entry) = self.spans.remove(&base) else { continue };
            match &entry.holds {
                Holds::Slab(slab) => self.withdraw(entry.owner, slab.largest(), base),
                Holds::Opened { allocation, .. } => drop(self.opened.remove(allocation)),
                Holds::Large(_) => {}
            }
            spans.push(Span { base, len: entry.len });
        }
        spans
    }
}
