//! Where a load gets its chunks: the cache first, then the store.
//!
//! A place that has a chunk with a wrong byte is named, left as it is, and the next place is asked.

use std::path::PathBuf;

use crate::digest::Chunk;
use crate::error::{FileError, GetError, LoadError};
use crate::lease::Lease;
use crate::stats::Route;
use crate::store::Store;

/// The places that have chunks, in the order in which they are asked.
///
/// Any number of threads may read at once.
#[derive(Debug)]
pub struct Sources {
    places: Vec<Place>,
}

#[derive(Debug)]
struct Place {
    store: Store,
    lease: Option<Lease>,
}

/// Who checks the content of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verify {
    /// The reading thread does.
    Here,
    /// The caller does, later, and comes back with [`Sources::fetch_after`] when it is wrong.
    ByCaller,
}

/// A chunk that was read.
#[derive(Debug)]
pub struct Fetched {
    /// Which place it is from, for [`Sources::fetch_after`].
    pub place: usize,
    /// How it came.
    pub route: Route,
    /// What was wrong at the places asked before.
    pub failed: Vec<GetError>,
}

impl Sources {
    /// Asks `cache` first, then `store`.
    pub fn new(cache: Option<Store>, store: Option<Store>) -> Self {
        let places = cache.into_iter().chain(store).map(|store| Place { store, lease: None });
        Self { places: places.collect() }
    }

    /// The places, in order.
    pub fn stores(&self) -> impl Iterator<Item = &Store> {
        self.places.iter().map(|place| &place.store)
    }

    /// Has `chunks` stay until this value is dropped, in all places that let us write. What could not be protected is
    /// given back: on a read-only place no collector of this machine is at work either.
    pub fn hold(&mut self, chunks: &[Chunk]) -> Vec<FileError> {
        let mut refused = Vec::new();
        for place in &mut self.places {
            if let Err(error) = place.hold(chunks) {
                refused.push(error);
            }
        }
        refused
    }

    /// Those of `chunks` that no place has with the right length. Looks, and reads nothing.
    pub fn missing(&self, chunks: &[Chunk]) -> Vec<Chunk> {
        let nowhere = |chunk: &&Chunk| !self.stores().any(|store| store.has(chunk));
        chunks.iter().filter(nowhere).copied().collect()
    }

    /// Reads a chunk to the start of `into`.
    pub fn fetch(&self, chunk: &Chunk, into: &mut [u8], verify: Verify) -> Result<Fetched, LoadError> {
        self.fetch_from(0, Vec::new(), chunk, into, verify)
    }

    /// Reads a chunk again, from the places after the one whose bytes the caller found to be wrong.
    pub fn fetch_after(
        &self,
        bad: usize,
        found: crate::Digest,
        chunk: &Chunk,
        into: &mut [u8],
        verify: Verify,
    ) -> Result<Fetched, LoadError> {
        let path = self.places.get(bad).map_or_else(PathBuf::new, |place| place.store.path_of(&chunk.digest));
        self.fetch_from(bad.saturating_add(1), vec![GetError::Content { path, found }], chunk, into, verify)
    }

    fn fetch_from(
        &self,
        first: usize,
        mut failed: Vec<GetError>,
        chunk: &Chunk,
        into: &mut [u8],
        verify: Verify,
    ) -> Result<Fetched, LoadError> {
        for (number, place) in self.places.iter().enumerate().skip(first) {
            let got = match verify {
                Verify::Here => place.store.get(chunk, into),
                Verify::ByCaller => place.store.get_unverified(chunk, into),
            };
            match got {
                Ok(route) => return Ok(Fetched { place: number, route, failed }),
                Err(error) => failed.push(error),
            }
        }
        Err(LoadError { chunk: *chunk, tries: failed })
    }
}

impl Place {
    fn hold(&mut self, chunks: &[Chunk]) -> Result<(), FileError> {
        let lease = match &mut self.lease {
            Some(lease) => lease,
            none => none.insert(Lease::take(self.store.shared_layer(), self.store.root())?),
        };
        lease.claim(chunks.iter().map(|chunk| chunk.digest))?;
        chunks.iter().try_for_each(|chunk| self.store.bring_back(&chunk.digest))
    }
}
