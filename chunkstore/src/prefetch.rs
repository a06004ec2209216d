//! Filling a cache before it is needed.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use crate::checkpoint::read_lists_on;
use crate::digest::Chunk;
use crate::each::{Meter, Report, each};
use crate::error::{PrefetchError, ReadListError};
use crate::executor::Executor;
use crate::sources::{Sources, Verify};
use crate::stats::add;
use crate::store::Store;
use crate::writer::Put;

/// What was done to fill a cache.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Prefetched {
    /// Chunks of the checkpoint.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Chunks that the cache had.
    pub existing_chunks: u64,
    /// Their bytes.
    pub existing_bytes: u64,
}

/// Copies the chunks of all lists in `ckpt_dir` from `store` to `cache`, on `threads` threads, and checks what it
/// copies. What is in the cache already is not copied again, so that a prefetch that was cut short goes on where it
/// was; with `verify_existing` it is read, and put right if it is bad.
pub fn cache_prefetch(
    store: &Store,
    ckpt_dir: &Path,
    cache: &Store,
    verify_existing: bool,
    (executor, threads): (&dyn Executor, usize),
    report: Report<'_>,
) -> Result<Prefetched, PrefetchError> {
    let lists = read_lists_on(store.layer(), ckpt_dir)?;
    if lists.is_empty() {
        return Err(ReadListError::None { dir: ckpt_dir.to_owned() }.into());
    }
    // In the lists' order, which is the order of the load.
    let mut seen = BTreeSet::new();
    let all = lists.iter().flat_map(|listed| listed.list.chunks()).copied();
    let chunks: Vec<Chunk> = all.filter(|chunk| seen.insert(*chunk)).collect();

    let mut source = Sources::new(None, Some(store.clone()));
    // A store that we may not write to is read without a lease.
    let _ = source.hold(&chunks);
    let writer = cache.writer(verify_existing)?;
    let bytes = chunks.iter().map(|chunk| u64::from(chunk.len)).sum();
    let meter = Meter::new(report, chunks.len() as u64, bytes);
    let (existing_chunks, existing_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    let existed = |len: u64| {
        add(&existing_chunks, 1);
        add(&existing_bytes, len);
        meter.done(len, 0);
    };
    let no_resource = |what, source| PrefetchError::Resource { what, source };
    let there = writer.claim_all(&chunks)?;
    let items: Vec<_> = chunks.iter().zip(there).collect();
    each(executor, threads, &items, &no_resource, &|(chunk, there), buffer| {
        let len = u64::from(chunk.len);
        if *there {
            existed(len);
            return Ok(());
        }
        source.fetch(chunk, buffer, Verify::Here)?;
        let whole = buffer.split_at(usize::try_from(chunk.len).unwrap_or(0)).0;
        match writer.put_hashed(chunk.digest, whole)? {
            Put::Existing(_) => existed(len),
            _ => meter.done(len, len),
        }
        Ok(())
    })?;
    Ok(Prefetched {
        chunks: chunks.len() as u64,
        bytes,
        existing_chunks: existing_chunks.into_inner(),
        existing_bytes: existing_bytes.into_inner(),
    })
}
