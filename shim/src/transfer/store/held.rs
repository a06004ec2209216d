//! What the process remembers of what it has saved to a store: which chunks, where, and what is still to be made
//! durable.
//!
//! ```text
//!   begin --> chunks are stored, a lease keeps them --> commit: the list is durable, the lease ends
//!                                                  \--> give_up: no list
//! ```
//!
//! Records name chunks by their number here. The numbers last until no record names one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use chunkstore::{Chunk, Extent, List, Put, Store, Writer};
use shim_core::world::{Piece, Place, Saved};

use super::{Planned, broken};
use crate::transfer::TransferError;

#[derive(Debug)]
struct Held {
    /// The process that all this belongs to: a forked child has none of it.
    owner: u32,
    chunks: Vec<Chunk>,
    numbers: BTreeMap<Chunk, u32>,
    root: Option<PathBuf>,
    pending: Option<Pending>,
}

/// A checkpoint that is not complete yet.
#[derive(Clone, Debug)]
struct Pending {
    writer: Arc<Writer>,
    ckpt_dir: PathBuf,
}

impl Held {
    const fn new(owner: u32) -> Self {
        Self { owner, chunks: Vec::new(), numbers: BTreeMap::new(), root: None, pending: None }
    }

    fn number(&mut self, chunk: Chunk) -> u32 {
        let next = u32::try_from(self.chunks.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(chunk).or_insert(next);
        if number == next {
            self.chunks.push(chunk);
        }
        number
    }
}

static HELD: Mutex<Held> = Mutex::new(Held::new(0));

fn with<R>(look: impl FnOnce(&mut Held) -> R) -> R {
    let own = std::process::id();
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    if held.owner != own {
        // The parent's: to drop its writer would take its lease away.
        core::mem::forget(core::mem::replace(&mut *held, Held::new(own)));
    }
    look(&mut held)
}

/// Begins a checkpoint, or goes on with the one that was begun there.
pub(crate) fn begin(
    store: &Store,
    ckpt_dir: &Path,
    verify_existing: bool,
) -> Result<Arc<Writer>, TransferError> {
    let begun = with(|held| held.pending.clone());
    if let Some(Pending { writer, ckpt_dir: dir }) = begun
        && writer.store().root() == store.root()
        && dir == ckpt_dir
    {
        return Ok(writer);
    }
    let writer = Arc::new(store.writer(verify_existing).map_err(|error| broken(&error))?);
    with(|held| {
        held.root = Some(store.root().to_owned());
        held.pending = Some(Pending { writer: Arc::clone(&writer), ckpt_dir: ckpt_dir.to_owned() });
    });
    Ok(writer)
}

/// Remembers what became of chunks, and gives the bytes of each object, by number, in the order of the object.
pub(crate) fn remember(planned: &[Planned], put: &[Put]) -> BTreeMap<usize, Saved> {
    let mut objects: BTreeMap<usize, Saved> = BTreeMap::new();
    for (planned, put) in planned.iter().zip(put) {
        let index = put.chunk().map(|chunk| with(|held| held.number(chunk)));
        let mut offset = 0;
        for part in &planned.parts {
            let place = index.map_or(Place::Zero, |index| Place::Chunk { index, offset });
            offset += part.len;
            objects.entry(part.object).or_default().push(Piece { len: part.len.into(), place });
        }
    }
    objects
}

/// All chunks, by number.
pub(crate) fn chunks() -> Vec<Chunk> {
    with(|held| held.chunks.clone())
}

/// The store that was saved to last.
pub(crate) fn root() -> Option<PathBuf> {
    with(|held| held.root.clone())
}

/// Makes the list of what was saved durable, if one is due: from then on the checkpoint is complete. `objects` are all
/// whose bytes are in chunks or zero. After an error it is due still.
pub(crate) fn commit<'s>(
    objects: impl IntoIterator<Item = ([u8; 16], &'s Saved)>,
) -> Result<(), TransferError> {
    let Some(Pending { writer, ckpt_dir }) = with(|held| held.pending.clone()) else { return Ok(()) };
    let list = list(objects, &chunks())?;
    // Also those of an earlier turn, under this lease.
    let there = writer.claim_all(list.chunks()).map_err(|error| broken(&error))?;
    if let Some((gone, _)) = list.chunks().iter().zip(there).find(|(_, there)| !there) {
        let text = format!("{gone} is not in {} any more", writer.store().root().display());
        return Err(TransferError::Storage { text, errno: None });
    }
    writer.commit(&ckpt_dir, std::process::id(), &list).map_err(|error| broken(&error))?;
    give_up();
    Ok(())
}

fn list<'s>(
    objects: impl IntoIterator<Item = ([u8; 16], &'s Saved)>,
    all: &[Chunk],
) -> Result<List, TransferError> {
    let mut used: Vec<Chunk> = Vec::new();
    let mut places: BTreeMap<u32, u32> = BTreeMap::new();
    let mut listed = Vec::new();
    for (id, saved) in objects {
        let mut extents = Vec::new();
        for piece in saved.pieces() {
            match piece.place {
                Place::Zero => extents.push(Extent::Zero { len: piece.len }),
                Place::Chunk { index, offset } => {
                    let next = u32::try_from(used.len()).unwrap_or(u32::MAX);
                    let place = *places.entry(index).or_insert(next);
                    if place == next {
                        used.extend(all.get(super::width(index)));
                    }
                    let len = u32::try_from(piece.len).unwrap_or(u32::MAX);
                    extents.push(Extent::Chunk { index: place, offset, len });
                }
                // Bytes of an object that is not in the store.
                Place::Host(_) => break,
            }
        }
        if saved.len() == extents.iter().map(Extent::len).sum() {
            listed.push(chunkstore::Object { id, size: saved.len(), extents });
        }
    }
    List::new(used, listed).map_err(|error| broken(&error))
}

/// Ends the lease. What was stored may be collected, unless a list names it.
pub(crate) fn give_up() {
    let pending = with(|held| held.pending.take());
    // Not under the lock: it calls the file system.
    drop(pending);
}

/// Forgets all chunks: no record names them any more.
pub(crate) fn forget() {
    with(|held| {
        held.chunks = Vec::new();
        held.numbers = BTreeMap::new();
    });
}
