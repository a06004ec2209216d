//! Keeping a cache within its size.

use std::collections::VecDeque;

use super::{BATCH, Collector, Tally, demand_kind, scan};
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
    // What a collector that was cut short has left aside is the oldest there is.
    for entry in scan.aside.iter().chain(&scan.chunks) {
        report.kept.add(entry.stat.len);
        if leases.digests.contains(&entry.digest) {
            report.in_use.add(entry.stat.len);
        } else {
            candidates.push(entry.clone());
        }
    }
    candidates.sort_by_key(|entry| entry.stat.modified);
    let mut candidates = VecDeque::from(candidates);
    while report.kept.bytes > max_bytes && !candidates.is_empty() {
        let mut batch = Vec::new();
        let mut left = report.kept.bytes;
        while left > max_bytes
            && batch.len() < BATCH
            && let Some(entry) = candidates.pop_front()
        {
            left = left.saturating_sub(entry.stat.len);
            batch.push(entry);
        }
        let used_last = batch.iter().map(|entry| (entry.digest, entry.stat.modified)).collect::<Vec<_>>();
        let fates = collector.remove(batch, |aside| {
            let mut keep = collector.leases()?.digests;
            let used_since = aside.iter().filter(|one| !used_last.contains(&(one.digest, one.modified)));
            keep.extend(used_since.map(|one| one.digest));
            Ok(keep)
        })?;
        report.removed.files += fates.removed.files;
        report.removed.bytes += fates.removed.bytes;
        report.kept.files -= fates.removed.files.min(report.kept.files);
        report.kept.bytes = report.kept.bytes.saturating_sub(fates.removed.bytes);
    }
    Ok(report)
}
