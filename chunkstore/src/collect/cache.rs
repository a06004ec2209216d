//! Keeping a cache within its size.

use std::collections::{BTreeSet, VecDeque};

use super::{BATCH, Collector, Entry, Tally, demand_kind, scan};
use crate::error::CollectError;
use crate::store::{Kind, Store};

/// What was done to a cache.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CacheCollected {
    /// What is in it now.
    pub kept: Tally,
    /// What of that somebody is working with.
    pub in_use: Tally,
    /// What was removed.
    pub removed: Tally,
    /// Left-over temporary files that were removed.
    pub temporaries: Tally,
}

/// Removes chunks, those first that were not used for longest, until the others have at most `max_bytes`. Chunks that
/// somebody is working with stay, also if the cache remains larger then.
pub fn cache_gc(cache: &Store, max_bytes: u64) -> Result<CacheCollected, CollectError> {
    demand_kind(cache, Kind::Cache)?;
    let collector = Collector::new(cache)?;
    let scan = scan(cache)?;
    let leases = collector.leases()?;
    let temporaries = collector.sweep(&scan, &leases)?;
    let mut report = CacheCollected { temporaries, ..CacheCollected::default() };
    let mut candidates = Vec::new();
    for entry in scan.aside.iter().chain(&scan.chunks) {
        report.kept.add(entry.stat.len);
    }
    for entry in scan.chunks {
        if leases.digests.contains(&entry.digest) {
            report.in_use.add(entry.stat.len);
        } else {
            candidates.push(entry);
        }
    }
    candidates.sort_by_key(|entry| entry.stat.modified);
    let mut candidates = VecDeque::from(candidates);
    // What a collector that was cut short had chosen goes first, in any case.
    let mut batch = scan.aside;
    loop {
        report.remove(&collector, batch)?;
        batch = Vec::new();
        let mut left = report.kept.bytes;
        while left > max_bytes
            && batch.len() < BATCH
            && let Some(entry) = candidates.pop_front()
        {
            left = left.saturating_sub(entry.stat.len);
            batch.push(entry);
        }
        if batch.is_empty() {
            return Ok(report);
        }
    }
}

impl CacheCollected {
    /// Removes what is not in use and was not used since it was chosen.
    fn remove(&mut self, collector: &Collector<'_>, batch: Vec<Entry>) -> Result<(), CollectError> {
        let chosen: BTreeSet<_> = batch.iter().map(|entry| (entry.digest, entry.stat.modified)).collect();
        let fates = collector.remove(batch, |aside| {
            let mut keep = collector.leases()?.digests;
            let used_since = aside.iter().filter(|one| !chosen.contains(&(one.digest, one.modified)));
            keep.extend(used_since.map(|one| one.digest));
            Ok(keep)
        })?;
        self.removed.files += fates.removed.files;
        self.removed.bytes += fates.removed.bytes;
        self.kept.files = self.kept.files.saturating_sub(fates.removed.files);
        self.kept.bytes = self.kept.bytes.saturating_sub(fates.removed.bytes);
        Ok(())
    }
}
