//! The list of a checkpoint: which chunks it uses, and how objects are put together from them.
//!
//! A [`List`] holds only what makes sense: extents lie inside their chunks, and the extents of an object add up to
//! its size. Several objects may lie in one chunk, and one chunk may be used many times. [`mod@format`] says how it
//! looks in a file.

pub mod format;

use std::collections::BTreeSet;

use thiserror::Error;

use crate::digest::{CHUNK_BYTES, Chunk};

/// What a checkpoint of one process uses.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct List {
    chunks: Vec<Chunk>,
    objects: Vec<Object>,
}

/// Something whose bytes were saved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// The name its owner gave it.
    pub id: [u8; 16],
    /// Bytes.
    pub size: u64,
    /// Where its bytes are, from its start to its end.
    pub extents: Vec<Extent>,
}

/// A piece of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// Zeros.
    Zero {
        /// How many.
        len: u64,
    },
    /// A piece of a chunk.
    Chunk {
        /// Which, in the list's order.
        index: u32,
        /// Where it starts in the chunk.
        offset: u32,
        /// Bytes.
        len: u32,
    },
}

/// A list that does not make sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ListError {
    /// There are limits, so that a damaged list does not fill the memory.
    #[error("it has more chunks, objects or extents than a list may have")]
    TooMany,
    /// A chunk is empty or longer than chunks are.
    #[error("chunk {index} has {len} bytes; a chunk has 1 to {CHUNK_BYTES}")]
    ChunkLength {
        /// Which.
        index: usize,
        /// Its length.
        len: u32,
    },
    /// A chunk stands in the list more than once.
    #[error("chunk {index} is in the list twice")]
    ChunkTwice {
        /// The second place.
        index: usize,
    },
    /// An object stands in the list more than once.
    #[error("object {index} has the name of one before it")]
    ObjectTwice {
        /// The second place.
        index: usize,
    },
    /// An extent is empty or leads out of its chunk, or to a chunk that is not in the list.
    #[error("extent {extent} of object {object} leads to bytes that no chunk of the list has")]
    Extent {
        /// Which object.
        object: usize,
        /// Which of its extents.
        extent: usize,
    },
    /// The extents of an object have more or fewer bytes than the object.
    #[error("object {object} has {size} bytes and its extents have {found}")]
    ObjectSize {
        /// Which.
        object: usize,
        /// Its size.
        size: u64,
        /// What the extents add up to.
        found: u64,
    },
}

/// The most chunks, objects, or extents of all objects together. A list within these limits fits into memory
/// easily: 64 TiB in chunks of full length.
pub const MOST: usize = 1 << 20;

impl List {
    /// A list of `chunks`, and of objects whose extents lie in them.
    pub fn new(chunks: Vec<Chunk>, objects: Vec<Object>) -> Result<Self, ListError> {
        let extents: usize = objects.iter().map(|object| object.extents.len()).sum();
        if chunks.len() > MOST || objects.len() > MOST || extents > MOST {
            return Err(ListError::TooMany);
        }
        let mut names = BTreeSet::new();
        for (index, chunk) in chunks.iter().enumerate() {
            if !(1..=CHUNK_BYTES).contains(&chunk.len) {
                return Err(ListError::ChunkLength { index, len: chunk.len });
            }
            if !names.insert(chunk.digest) {
                return Err(ListError::ChunkTwice { index });
            }
        }
        let mut ids = BTreeSet::new();
        for (index, object) in objects.iter().enumerate() {
            if !ids.insert(object.id) {
                return Err(ListError::ObjectTwice { index });
            }
            object.check(index, &chunks)?;
        }
        Ok(Self { chunks, objects })
    }

    /// The chunks; extents name them by their place here.
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// The objects.
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// Bytes of all chunks.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| u64::from(chunk.len)).sum()
    }
}

impl Object {
    fn check(&self, object: usize, chunks: &[Chunk]) -> Result<(), ListError> {
        let mut found = 0_u64;
        for (number, extent) in self.extents.iter().enumerate() {
            let sum = found.checked_add(extent.len());
            match sum {
                Some(sum) if !extent.is_empty() && extent.lies_in(chunks) => found = sum,
                _ => return Err(ListError::Extent { object, extent: number }),
            }
        }
        if found == self.size {
            Ok(())
        } else {
            Err(ListError::ObjectSize { object, size: self.size, found })
        }
    }
}

impl Extent {
    /// Bytes.
    pub fn len(&self) -> u64 {
        match *self {
            Self::Zero { len } => len,
            Self::Chunk { len, .. } => u64::from(len),
        }
    }

    /// Whether it has no bytes, as no extent of a list has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lies_in(&self, chunks: &[Chunk]) -> bool {
        let Self::Chunk { index, offset, len } = *self else { return true };
        let chunk = usize::try_from(index).ok().and_then(|index| chunks.get(index));
        chunk.is_some_and(|chunk| offset.checked_add(len).is_some_and(|end| end <= chunk.len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;

    fn chunk(content: u8, len: u32) -> Chunk {
        Chunk { digest: Digest([content; 32]), len }
    }

    fn object(size: u64, extents: &[Extent]) -> Object {
        Object { id: [7; 16], size, extents: extents.to_vec() }
    }

    #[test]
    fn objects_may_share_a_chunk_and_have_holes() {
        let packed = |id, offset| Object {
            id: [id; 16],
            size: 60,
            extents: vec![Extent::Chunk { index: 0, offset, len: 50 }, Extent::Zero { len: 10 }],
        };
        let list = List::new(vec![chunk(1, 100)], vec![packed(1, 0), packed(2, 50)]).unwrap();
        assert_eq!(list.chunk_bytes(), 100);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let chunks = || vec![chunk(1, 100), chunk(2, 50)];
        let one = |extent| List::new(chunks(), vec![object(10, &[extent])]);
        let outside = Err(ListError::Extent { object: 0, extent: 0 });
        assert_eq!(one(Extent::Chunk { index: 2, offset: 0, len: 10 }), outside);
        assert_eq!(one(Extent::Chunk { index: 1, offset: 41, len: 10 }), outside);
        assert_eq!(one(Extent::Chunk { index: 1, offset: u32::MAX, len: 10 }), outside);
        assert_eq!(one(Extent::Chunk { index: 1, offset: 0, len: 0 }), outside);
        assert_eq!(one(Extent::Zero { len: 0 }), outside);
        let short = ListError::ObjectSize { object: 0, size: 10, found: 9 };
        assert_eq!(one(Extent::Zero { len: 9 }), Err(short));
        let overflow = object(1, &[Extent::Zero { len: u64::MAX }, Extent::Zero { len: 2 }]);
        assert_eq!(List::new(vec![], vec![overflow]), Err(ListError::Extent { object: 0, extent: 1 }));
        let long = List::new(vec![chunk(1, CHUNK_BYTES + 1)], vec![]);
        assert_eq!(long, Err(ListError::ChunkLength { index: 0, len: CHUNK_BYTES + 1 }));
        let empty = List::new(vec![chunk(1, 0)], vec![]);
        assert_eq!(empty, Err(ListError::ChunkLength { index: 0, len: 0 }));
        let twice = List::new(vec![chunk(1, 9), chunk(1, 8)], vec![]);
        assert_eq!(twice, Err(ListError::ChunkTwice { index: 1 }));
        let twins = List::new(vec![], vec![object(0, &[]), object(0, &[])]);
        assert_eq!(twins, Err(ListError::ObjectTwice { index: 1 }));
        let many = List::new(vec![], vec![object(0, &vec![Extent::Zero { len: 1 }; MOST + 1])]);
        assert_eq!(many, Err(ListError::TooMany));
    }
}
