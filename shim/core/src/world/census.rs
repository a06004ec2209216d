//! What `inspect` tells of the tables.

use protocol::{Blocker, BlockerKind};

use super::World;
use super::record::{Allocation, Attachment, Backing, Contents, Origin};

impl<A: Attachment> World<A> {
    /// Every allocation, oldest first.
    pub fn inventory(&self) -> Vec<protocol::Allocation> {
        let state = self.lock();
        let mut held = std::collections::BTreeMap::new();
        for handle in state.handles.values() {
            *held.entry(handle.key).or_insert(0_u32) += handle.count;
        }
        let told = |(key, allocation): (_, &Allocation<A>)| protocol::Allocation {
            id: allocation.what.id,
            location: allocation.what.location(),
            size: allocation.what.size,
            origin: match allocation.what.origin {
                Origin::Imported { exporter } => protocol::Origin::Imported { exporter },
                Origin::Created | Origin::Foreign => protocol::Origin::Created,
            },
            exported: allocation.attached.held(),
            handles: held.get(key).copied().unwrap_or_default(),
            mappings: allocation.mappings,
            contents: allocation.place(),
        };
        state.allocations.iter().filter(|(_, allocation)| !allocation.leaving).map(told).collect()
    }

    /// What of it cannot be carried.
    pub fn blockers(&self) -> Vec<Blocker> {
        let state = self.lock();
        let count = |kind, is: fn(&Allocation<A>) -> bool| {
            let mut found = state.allocations.values().filter(|allocation| is(allocation));
            let first = found.next()?;
            let count = u64::try_from(found.count()).unwrap_or(u64::MAX).saturating_add(1);
            let example = format!("{} bytes on {:?}", first.what.size, first.what.location());
            Some(Blocker { kind, count, example })
        };
        let foreign =
            count(BlockerKind::ForeignImport, |allocation| allocation.what.origin == Origin::Foreign);
        let raw = count(BlockerKind::RawHandle, |allocation| allocation.raw);
        foreign.into_iter().chain(raw).collect()
    }
}

impl<A> Allocation<A> {
    fn place(&self) -> protocol::Contents {
        match (&self.backing, &self.contents) {
            (Backing::Live(_), Contents::Live | Contents::Elsewhere) => protocol::Contents::Live,
            (Backing::Dropped, Contents::Live | Contents::Elsewhere) => protocol::Contents::Elsewhere,
            (_, Contents::Saved(saved)) if saved.zero() == saved.len() => protocol::Contents::Zero,
            (_, Contents::Saved(saved)) if saved.in_chunks() => protocol::Contents::Chunks,
            (_, Contents::Saved(_)) => protocol::Contents::Host,
        }
    }
}
