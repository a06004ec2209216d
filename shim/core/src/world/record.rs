//! What is known of one allocation, of one virtual handle, and of the place where saved bytes wait.

use core::hash::{Hash, Hasher};

use cuda_sys::{AllocationProp, LocationType, MemHandle, MemLocation};
use protocol::{AllocationId, Location, Secret};

use super::names::Name;
use super::team::{Multicast, Part};

/// An allocation of this process: no other is ever called so, and none is by the default. The older is the less.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Key {
    pub(super) serial: u64,
    pub(super) name: Name,
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// What the shim keeps beside an allocation and the tables do not look into: the ticket and the real descriptor.
pub trait Attachment: Default {
    /// Whether somebody outside the shim still holds a descriptor that names the allocation.
    fn held(&self) -> bool;
}

/// Where an allocation came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Made here.
    Created,
    /// Imported by a ticket.
    Imported {
        /// The exporter's pid, as the ticket names it.
        exporter: i32,
    },
    /// Imported from a raw descriptor of a process without the shim.
    Foreign,
}

/// Physical memory as the driver knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// The one real handle.
    Live(MemHandle),
    /// Nothing: given back to the driver.
    Dropped,
}

/// Where the bytes are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Contents {
    /// In the memory itself.
    Live,
    /// In a copy, which has to be written back once there is memory again.
    Saved(Saved),
    /// With another process, which creates the memory again.
    Elsewhere,
}

/// The bytes of an allocation, piece by piece from its first byte on.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Saved {
    pieces: Vec<Piece>,
}

/// Some bytes in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// How many.
    pub len: u64,
    /// Where they are.
    pub place: Place,
}

/// Where a piece waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Nowhere: all its bytes are zero.
    Zero,
    /// At this address of the process's host memory.
    Host(u64),
    /// In a chunk of a store.
    Chunk {
        /// The number that the shim has given the chunk.
        index: u32,
        /// Its first byte in the chunk.
        offset: u32,
    },
}

impl Place {
    /// The place `len` bytes further on in the same piece.
    #[must_use]
    pub const fn skip(self, len: u64) -> Self {
        match self {
            Self::Zero => Self::Zero,
            Self::Host(at) => Self::Host(at + len),
            // A chunk has at most 64 MiB.
            #[allow(clippy::cast_possible_truncation, reason = "an offset inside of a chunk")]
            Self::Chunk { index, offset } => Self::Chunk { index, offset: offset + len as u32 },
        }
    }
}

impl Saved {
    /// Adds the next piece. Pieces that continue the last one become part of it.
    pub fn push(&mut self, piece: Piece) {
        if let Some(last) = self.pieces.last_mut() {
            let continues = match (last.place, piece.place) {
                (Place::Zero, Place::Zero) => true,
                (Place::Host(at), Place::Host(next)) => at.checked_add(last.len) == Some(next),
                (Place::Chunk { index, .. }, Place::Chunk { index: next, .. }) => {
                    index == next && last.place.skip(last.len) == piece.place
                }
                _ => false,
            };
            if continues {
                last.len += piece.len;
                return;
            }
        }
        self.pieces.push(piece);
    }

    /// The pieces in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// How many bytes all pieces are.
    pub fn len(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len).sum()
    }

    /// Whether there is no piece.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether bytes of it are in chunks.
    pub fn in_chunks(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece.place, Place::Chunk { .. }))
    }

    /// How many bytes are zero.
    pub fn zero(&self) -> u64 {
        self.pieces.iter().filter(|piece| piece.place == Place::Zero).map(|piece| piece.len).sum()
    }
}

/// What an allocation is, from its first day to its last.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// Its name, the same in all processes.
    pub id: AllocationId,
    /// What a holder of its ticket knows.
    pub secret: Secret,
    /// Bytes.
    pub size: u64,
    /// The properties with which it is made, and made again.
    pub prop: AllocationProp,
    /// Made here or imported.
    pub origin: Origin,
    /// What it was made with, if it is a multicast object: it has no bytes of its own.
    pub multicast: Option<Multicast>,
}

impl Description {
    /// Where it is.
    pub fn location(&self) -> Location {
        let MemLocation { kind, id } = self.prop.location;
        match kind {
            LocationType::DEVICE => Location::Device(id),
            LocationType::HOST => Location::Host,
            LocationType::HOST_NUMA => Location::HostNuma(id),
            LocationType::HOST_NUMA_CURRENT => Location::HostNumaCurrent,
            other => Location::Other(other.0, id),
        }
    }
}

/// An allocation.
#[derive(Debug)]
pub(super) struct Allocation<A> {
    pub(super) what: Description,
    pub(super) backing: Backing,
    pub(super) contents: Contents,
    /// A copy of bytes that are still live: made by a release that has not dropped the memory yet.
    pub(super) copy: Option<Saved>,
    /// Virtual handles in the table, counted or held by mappings alone.
    pub(super) handles: u32,
    /// Mappings.
    pub(super) mappings: u32,
    /// Multicast objects it is bound to, once for each binding.
    pub(super) bound: u32,
    /// What this process has done with it, if it is a multicast object.
    pub(super) part: Part,
    /// Calls in flight that use the real handle.
    pub(super) pins: u32,
    /// The last reference is gone and the driver is being asked to release: nobody may find it any more.
    pub(super) leaving: bool,
    /// A release is about to drop the real handle: no new pins.
    pub(super) withheld: bool,
    /// A raw descriptor of it was handed out.
    pub(super) raw: bool,
    /// Memory that nobody can bind again was bound to it.
    pub(super) bound_for_good: bool,
    /// Others may know its id, and ask for it.
    pub(super) published: bool,
    pub(super) attached: A,
}

/// A virtual handle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handle {
    pub(super) key: Key,
    /// Whether it came by an import, also of the process's own memory: such a handle cannot be exported.
    pub(super) imported: bool,
    /// References the program holds: one per create, retain and import, less one per release.
    pub(super) count: u32,
    /// Mappings made through it: they keep it, so that a retain by address gives the same value.
    pub(super) mappings: u32,
    /// Whether its name is to be given back. One that has come again after it had gone has given it back already.
    pub(super) owns_name: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_continue_each_other_are_one() {
        let mut saved = Saved::default();
        for (len, place) in [
            (4, Place::Zero),
            (4, Place::Zero),
            (8, Place::Host(100)),
            (8, Place::Host(108)),
            (8, Place::Host(200)),
            (2, Place::Zero),
            (4, Place::Chunk { index: 1, offset: 0 }),
            (4, Place::Chunk { index: 1, offset: 4 }),
            (4, Place::Chunk { index: 1, offset: 4 }),
            (4, Place::Chunk { index: 2, offset: 8 }),
        ] {
            saved.push(Piece { len, place });
        }
        assert_eq!(
            saved.pieces(),
            [
                Piece { len: 8, place: Place::Zero },
                Piece { len: 16, place: Place::Host(100) },
                Piece { len: 8, place: Place::Host(200) },
                Piece { len: 2, place: Place::Zero },
                Piece { len: 8, place: Place::Chunk { index: 1, offset: 0 } },
                Piece { len: 4, place: Place::Chunk { index: 1, offset: 4 } },
                Piece { len: 4, place: Place::Chunk { index: 2, offset: 8 } },
            ]
        );
        assert_eq!((saved.len(), saved.zero()), (50, 10));
        assert!(saved.in_chunks() && !Saved::default().in_chunks());
    }
}
