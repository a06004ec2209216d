//! What `inspect` tells of the tables.

use cuda_sys::HandleType;
use protocol::{Blocker, BlockerKind};

use super::World;
use super::record::{Allocation, Attachment, Backing, Contents, Key, Origin};
use super::table::Table;

impl<A: Attachment> World<A> {
    /// Every allocation, oldest first.
    pub fn inventory(&self) -> Vec<protocol::Allocation> {
        let state = self.lock();
        let mut held = Table::default();
        for handle in state.handles.values() {
            *held.entry(handle.key).or_insert(0_u32) += handle.count;
        }
        let tell = |key: &Key, allocation: &Allocation<A>| protocol::Allocation {
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
            has_memory: matches!(allocation.backing, Backing::Live(_)),
            multicast: allocation.team(),
        };
        let living = state.allocations.iter().filter(|(_, allocation)| !allocation.leaving);
        let mut told: Vec<_> = living.map(|(key, allocation)| (*key, tell(key, allocation))).collect();
        drop(state);
        told.sort_unstable_by_key(|(key, _)| *key);
        told.into_iter().map(|(_, told)| told).collect()
    }

    /// What of it cannot be carried. A driver may not let a restored process join a multicast object again (`rejoins`).
    pub fn blockers(&self, rejoins: bool) -> Vec<Blocker> {
        let state = self.lock();
        let count = |kind, is: &dyn Fn(&Allocation<A>) -> bool| {
            let found = || state.allocations.iter().filter(|(_, allocation)| is(allocation));
            let (_, first) = found().min_by_key(|(key, _)| **key)?;
            let count = u64::try_from(found().count()).unwrap_or(u64::MAX);
            let example = match first.what.multicast {
                Some(team) => format!("{} bytes, for {} devices", first.what.size, team.devices),
                None => format!("{} bytes on {:?}", first.what.size, first.what.location()),
            };
            Some(Blocker { kind, count, example })
        };
        let foreign =
            count(BlockerKind::ForeignImport, &|allocation| allocation.what.origin == Origin::Foreign);
        let raw = count(BlockerKind::RawHandle, &|allocation| allocation.raw);
        let multicast = count(BlockerKind::Multicast, &|allocation| {
            allocation.what.multicast.is_some() && (!rejoins || allocation.bound_for_good)
        });
        let fabric = count(BlockerKind::Fabric, &|allocation| {
            allocation.what.prop.requested_handle_types.0 & HandleType::FABRIC.0 != 0
        });
        [foreign, raw, multicast, fabric].into_iter().flatten().collect()
    }
}

impl<A> Allocation<A> {
    fn team(&self) -> Option<protocol::Team> {
        let what = self.what.multicast?;
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let (joined, bound) = (count(self.part.joined.len()), count(self.part.bindings.len()));
        Some(protocol::Team { devices: what.devices, joined, bound })
    }

    fn place(&self) -> protocol::Contents {
        match (&self.backing, &self.contents) {
            (Backing::Live(_), Contents::Live | Contents::Elsewhere) => protocol::Contents::Live,
            (Backing::Live(_), Contents::Saved(_)) if self.what.multicast.is_some() => {
                protocol::Contents::Live
            }
            (Backing::Dropped, Contents::Live | Contents::Elsewhere) => protocol::Contents::Elsewhere,
            (_, Contents::Saved(saved)) if saved.zero() == saved.len() => protocol::Contents::Zero,
            (_, Contents::Saved(saved)) if saved.in_chunks() => protocol::Contents::Chunks,
            (_, Contents::Saved(_)) => protocol::Contents::Host,
        }
    }
}
