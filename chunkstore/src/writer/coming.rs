//! A chunk that is written piece by piece.

use std::path::PathBuf;

use super::{Found, Put, Writer};
use crate::digest::Chunk;
use crate::error::{About, FileError, PutError};
use crate::layout;
use crate::lease::unpoisoned;
use crate::place::{Draft, Taken, make_dir};
use crate::stats::{Route, add};

/// What [`Writer::begin`] has found.
#[derive(Debug)]
pub enum Begun<'w> {
    /// The store has it.
    Existing(Chunk),
    /// It is to be written.
    New(Coming<'w>),
}

/// A chunk whose bytes are coming. Dropped before [`finish`](Self::finish), it leaves nothing.
#[derive(Debug)]
pub struct Coming<'w> {
    writer: &'w Writer,
    chunk: Chunk,
    found: Found,
    to: PathBuf,
    draft: Draft<'w>,
}

impl<'w> Coming<'w> {
    pub(super) fn new(writer: &'w Writer, chunk: Chunk, found: Found) -> Result<Self, FileError> {
        let (store, fan) = (&writer.store, layout::fan_of(&chunk.digest));
        if !unpoisoned(&writer.here).fans.contains(&fan) {
            make_dir(store.layer(), &layout::fan_dir(store.root(), fan))?;
            unpoisoned(&writer.here).fans.insert(fan);
        }
        let to = store.path_of(&chunk.digest);
        let draft = Draft::new(store.layer(), writer.lease.id(), &to)?;
        Ok(Self { writer, chunk, found, to, draft })
    }

    /// The next bytes. Direct I/O needs memory that starts at a page, and of all pieces but the last a length in pages.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), PutError> {
        self.draft.append(bytes).map_err(PutError::of_chunk(&self.chunk))
    }

    /// All bytes are there: the chunk gets its name.
    pub fn finish(mut self) -> Result<Put, PutError> {
        if self.draft.len() != u64::from(self.chunk.len) {
            return Err(PutError::Length(usize::try_from(self.draft.len()).unwrap_or(usize::MAX)));
        }
        let placed = self.place().map_err(PutError::of_chunk(&self.chunk))?;
        let (chunk, counters) = (self.chunk, self.writer.store.counters());
        unpoisoned(&self.writer.here).chunks.insert(chunk);
        let Some(route) = placed else {
            self.writer.count_existing(&chunk);
            return Ok(Put::Existing(chunk));
        };
        add(&counters.written_chunks, 1);
        add(&counters.written_bytes, chunk.len.into());
        add(&counters.repaired_chunks, u64::from(self.found == Found::Bad));
        add(&counters.buffered_writes, u64::from(route == Route::Buffered));
        Ok(Put::Written(chunk, route))
    }

    fn place(&mut self) -> Result<Option<Route>, FileError> {
        let store = &self.writer.store;
        let route = self.draft.sync()?;
        let taken = if self.found == Found::Bad { Taken::Replace } else { Taken::Keep };
        let mut is_placed = self.draft.place(&self.to, taken)?;
        if !is_placed && !store.contains(&self.chunk)? {
            // Somebody was faster, and it is no good all the same.
            is_placed = self.draft.place(&self.to, Taken::Replace)?;
        }
        let dir = layout::fan_dir(store.root(), layout::fan_of(&self.chunk.digest));
        store.layer().sync_dir(&dir).about("sync", &dir)?;
        Ok(is_placed.then_some(route))
    }
}
