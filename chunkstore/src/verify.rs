//! Reading a whole store, to find what is bad before somebody needs it.

use std::io;
use std::path::PathBuf;
use std::sync::Mutex;

use thiserror::Error;

use crate::collect::{Entry, Tally, scan};
use crate::digest::{CHUNK_BYTES, Chunk};
use crate::each::{Meter, Report, each};
use crate::error::{FileError, GetError};
use crate::executor::Executor;
use crate::lease::unpoisoned;
use crate::store::Store;

/// A store cannot be looked through.
#[derive(Debug, Error)]
pub enum VerifyError {
    /// The file system failed on a directory.
    #[error(transparent)]
    File(#[from] FileError),
    /// No memory, or no threads.
    #[error("cannot get {what}")]
    Resource {
        /// What was not to be had.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// What was found in a store.
#[derive(Default, Debug)]
pub struct Verified {
    /// Chunks whose bytes are right.
    pub good: Tally,
    /// Chunks that are not what their name says, or cannot be read. They are left alone.
    pub bad: Vec<GetError>,
    /// Files that are none of ours.
    pub strangers: Vec<PathBuf>,
}

/// Reads every chunk of a store or cache, on `threads` threads. Chunks that come and go meanwhile may be read or not.
pub fn store_verify(
    store: &Store,
    (executor, threads): (&dyn Executor, usize),
    report: Report<'_>,
) -> Result<Verified, VerifyError> {
    let scan = scan(store)?;
    let entries: Vec<Entry> = scan.chunks.into_iter().chain(scan.aside).collect();
    let bytes = entries.iter().map(|entry| entry.stat.len).sum();
    let meter = Meter::new(report, entries.len() as u64, bytes);
    let found = Mutex::new(Verified { strangers: scan.strangers, ..Verified::default() });
    let no_resource = |what, source| VerifyError::Resource { what, source };
    each(executor, threads, &entries, &no_resource, &|entry, buffer| {
        let len = entry.stat.len;
        let result = match u32::try_from(len) {
            Ok(len @ 1..=CHUNK_BYTES) => {
                store.read_uncounted(&Chunk { digest: entry.digest, len }, buffer, true).map(|_| ())
            }
            _ => Err(GetError::Length { path: entry.path.clone(), expected: CHUNK_BYTES.into(), found: len }),
        };
        meter.done(len, len);
        let mut found = unpoisoned(&found);
        match result {
            Ok(()) => found.good.add(len),
            // Collected since the scan.
            Err(GetError::Missing { .. }) => {}
            Err(error) => found.bad.push(error),
        }
        Ok(())
    })?;
    let mut found = std::mem::take(&mut *unpoisoned(&found));
    found.bad.sort_by_key(ToString::to_string);
    Ok(found)
}
