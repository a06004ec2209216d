//! How a list looks in a file.
//!
//! All numbers are little endian. Nothing follows the checksum.
//!
//! ```text
//!   header   8  magic "NVSNAPCL"
//!            4  version, 1
//!            4  number of chunks
//!            4  number of objects
//!            4  number of extents of all objects together
//!   chunk   32  digest
//!            4  length
//!   object  16  id
//!            8  size
//!            4  number of its extents
//!   extent   4  place of the chunk, or 0xffffffff for zeros
//!            4  offset in the chunk; 0 for zeros
//!            8  length
//!   check   32  BLAKE3-256 of all that stands before it
//! ```
//!
//! Chunks come first, then objects, then the extents in the order of their objects. The counts give the length of
//! the file, which is compared before anything else is believed. There is exactly one file for a list.

use thiserror::Error;

use super::{Extent, List, ListError, MOST, Object};
use crate::digest::{Chunk, Digest};

const MAGIC: [u8; 8] = *b"NVSNAPCL";
const VERSION: u32 = 1;
const ZEROS: u32 = u32::MAX;

const HEADER: usize = 24;
const CHUNK: usize = 36;
const OBJECT: usize = 28;
const EXTENT: usize = 16;
const CHECK: usize = 32;

/// The most bytes that a file with a list has.
pub const MOST_BYTES: usize = HEADER + MOST * (CHUNK + OBJECT + EXTENT) + CHECK;

/// Bytes of a file with a list of so many chunks and objects, and so many extents of all objects together.
pub fn list_bytes(chunks: u64, objects: u64, extents: u64) -> u64 {
    let parts = [(1, HEADER + CHECK), (chunks, CHUNK), (objects, OBJECT), (extents, EXTENT)];
    parts.iter().fold(0, |sum, (count, size)| sum.saturating_add(count.saturating_mul(*size as u64)))
}

/// Bytes that are no list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FormatError {
    /// It does not start as lists do.
    #[error("it is not a chunk list")]
    Magic,
    /// Written by another version of this project.
    #[error("it is a chunk list of version {0}, and this program reads version {VERSION}")]
    Version(u32),
    /// It is longer or shorter than it says of itself.
    #[error("it should have {expected} bytes and has {found}")]
    Length {
        /// What it says.
        expected: usize,
        /// What it has.
        found: usize,
    },
    /// Its bytes are not those that were written.
    #[error("its checksum is wrong")]
    Checksum,
    /// It is what was written, and makes no sense.
    #[error("{0}")]
    List(#[from] ListError),
}

/// The bytes of a list.
pub fn encode(list: &List) -> Vec<u8> {
    let extents = list.objects.iter().map(|object| object.extents.len()).sum();
    let mut out = Vec::with_capacity(length(list.chunks.len(), list.objects.len(), extents));
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
    for count in [list.chunks.len(), list.objects.len(), extents] {
        put_count(&mut out, count);
    }
    for chunk in &list.chunks {
        out.extend(chunk.digest.0);
        out.extend(chunk.len.to_le_bytes());
    }
    for object in &list.objects {
        out.extend(object.id);
        out.extend(object.size.to_le_bytes());
        put_count(&mut out, object.extents.len());
    }
    for extent in list.objects.iter().flat_map(|object| &object.extents) {
        let (index, offset) = match *extent {
            Extent::Zero { .. } => (ZEROS, 0),
            Extent::Chunk { index, offset, .. } => (index, offset),
        };
        out.extend(index.to_le_bytes());
        out.extend(offset.to_le_bytes());
        out.extend(extent.len().to_le_bytes());
    }
    let check = Digest::of(&out);
    out.extend(check.0);
    out
}

/// The counts of a list are at most [`MOST`].
fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend(u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}

fn length(chunks: usize, objects: usize, extents: usize) -> usize {
    HEADER + chunks * CHUNK + objects * OBJECT + extents * EXTENT + CHECK
}

/// Reads a list.
pub fn decode(bytes: &[u8]) -> Result<List, FormatError> {
    let found = bytes.len();
    let short = FormatError::Length { expected: HEADER + CHECK, found };
    let mut rest = Bytes(bytes);
    if rest.take().ok_or(short)? != MAGIC {
        return Err(FormatError::Magic);
    }
    let version = rest.u32().ok_or(short)?;
    if version != VERSION {
        return Err(FormatError::Version(version));
    }
    let [chunks, objects, extents] = rest.counts().ok_or(short)?;
    if chunks > MOST || objects > MOST || extents > MOST {
        return Err(ListError::TooMany.into());
    }
    let expected = length(chunks, objects, extents);
    let wrong = FormatError::Length { expected, found };
    if found != expected {
        return Err(wrong);
    }
    let (checked, check) = bytes.split_last_chunk::<CHECK>().ok_or(wrong)?;
    if Digest::of(checked).0 != *check {
        return Err(FormatError::Checksum);
    }
    let chunks = (0..chunks).map(|_| rest.chunk()).collect::<Option<Vec<_>>>().ok_or(wrong)?;
    let heads = (0..objects).map(|_| rest.object()).collect::<Option<Vec<_>>>().ok_or(wrong)?;
    let mut objects = Vec::with_capacity(heads.len());
    let mut left = extents;
    for (id, size, count) in heads {
        left = left.checked_sub(count).ok_or(wrong)?;
        let extents = (0..count).map(|_| rest.extent()).collect::<Option<Vec<_>>>().ok_or(wrong)?;
        objects.push(Object { id, size, extents });
    }
    if left > 0 {
        return Err(wrong);
    }
    Ok(List::new(chunks, objects)?)
}

/// Bytes that are taken from the front.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn count(&mut self) -> Option<usize> {
        usize::try_from(self.u32()?).ok()
    }

    fn counts(&mut self) -> Option<[usize; 3]> {
        Some([self.count()?, self.count()?, self.count()?])
    }

    fn chunk(&mut self) -> Option<Chunk> {
        Some(Chunk { digest: Digest(self.take()?), len: self.u32()? })
    }

    fn object(&mut self) -> Option<([u8; 16], u64, usize)> {
        Some((self.take()?, self.u64()?, self.count()?))
    }

    /// `None` also for what has another form than `encode` gives it.
    fn extent(&mut self) -> Option<Extent> {
        let (index, offset, len) = (self.u32()?, self.u32()?, self.u64()?);
        if index != ZEROS {
            return Some(Extent::Chunk { index, offset, len: u32::try_from(len).ok()? });
        }
        (offset == 0).then_some(Extent::Zero { len })
    }
}
