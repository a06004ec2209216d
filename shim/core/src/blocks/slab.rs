//! Small blocks in one span, placed by a sub-allocator in units of 512 bytes, the driver's own alignment.

use std::collections::BTreeMap;
use std::fmt;

use offset_allocator::{Allocation, Allocator};

use super::Small;

/// Bytes of a slab: the granularity of device memory.
pub const SLAB: u64 = 2 << 20;

/// Blocks of at most this many bytes go into slabs; a larger one would leave most of a slab unused.
pub const SMALL: u64 = SLAB / 2;

const UNIT: u64 = 512;

/// Units of a slab.
pub(super) const UNITS: u32 = 4096;
const _: () = assert!(UNITS as u64 * UNIT == SLAB);

/// Blocks that any slab has room for, as far as its bytes go.
const FEWEST: u32 = 256;

/// How many slabs are asked for room. The sub-allocator rounds what it looks for up, so a slab whose largest gap is
/// just large enough may still refuse.
pub(super) const TRIES: usize = 3;

/// The units that `size` bytes take, or `None` where they do not belong into a slab.
pub(super) fn units(size: u64) -> Option<u32> {
    (1..=SMALL).contains(&size).then(|| u32::try_from(size.div_ceil(UNIT)).unwrap_or(UNITS))
}

/// The room a block takes.
pub(super) struct Room(Allocation);

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Room").field(&self.0.offset).finish()
    }
}

/// A span of small blocks.
pub(super) struct Slab {
    rooms: Allocator,
    /// By offset.
    blocks: BTreeMap<u64, (Small, Room)>,
    /// Blocks that have left the table and whose room is not free yet.
    leaving: u32,
}

impl fmt::Debug for Slab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab").field("blocks", &self.blocks.len()).field("leaving", &self.leaving).finish()
    }
}

impl Slab {
    /// A slab for blocks of `units` each, and others. To make room for the most blocks there can be takes longer than
    /// all else (65 us), so a slab that begins with a large block has room for fewer: when they are used up, it is full.
    pub(super) fn new(units: u32) -> Self {
        let most = (2 * UNITS / units.max(1)).clamp(FEWEST, UNITS);
        Self { rooms: Allocator::with_max_allocs(UNITS, most), blocks: BTreeMap::new(), leaving: 0 }
    }

    /// Units of the largest gap.
    pub(super) fn largest(&self) -> u32 {
        if self.is_empty() { UNITS } else { self.rooms.storage_report().largest_free_region }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.leaving == 0
    }

    pub(super) fn blocks(&self) -> &BTreeMap<u64, (Small, Room)> {
        &self.blocks
    }

    /// Places a block. Returns its offset in bytes.
    pub(super) fn place(&mut self, units: u32, block: Small) -> Option<u64> {
        let room = self.rooms.allocate(units)?;
        let offset = u64::from(room.offset) * UNIT;
        self.blocks.insert(offset, (block, Room(room)));
        Some(offset)
    }

    /// The block that begins at or before `offset`.
    pub(super) fn block_at(&self, offset: u64) -> Option<(u64, Small)> {
        let (at, (small, _)) = self.blocks.range(..=offset).next_back()?;
        Some((*at, *small))
    }

    pub(super) fn block_mut(&mut self, offset: u64) -> Option<&mut Small> {
        self.blocks.get_mut(&offset).map(|(small, _)| small)
    }

    /// Takes a block out of the table; its room stays taken.
    pub(super) fn take(&mut self, offset: u64) -> Option<Room> {
        let (_, room) = self.blocks.remove(&offset)?;
        self.leaving += 1;
        Some(room)
    }

    pub(super) fn put_back(&mut self, offset: u64, room: Room, block: Small) {
        self.leaving -= 1;
        self.blocks.insert(offset, (block, room));
    }

    pub(super) fn free(&mut self, room: Room) {
        self.leaving -= 1;
        self.rooms.free(room.0);
    }
}
