//! Removing from a store what no list names.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{BATCH, Collector, Fates, Tally, demand_kind, scan};
use crate::checkpoint::{Listed, read_lists_on};
use crate::digest::{Chunk, Digest};
use crate::error::{About, CollectError, FileError, ReadListError};
use crate::layer::FileLayer;
use crate::layout::{self, Name};
use crate::lease::STALE;
use crate::store::{Kind, Store};

/// How far a collection goes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GcOptions {
    /// Removes; else it only tells what it would remove.
    pub delete: bool,
    /// A directory without a list is one whose checkpoints are all given up, and there may be no directory at all.
    /// Else that is a mistake (a wrong path, a disk that is not mounted), and nothing is removed.
    pub allow_empty: bool,
}

/// What a collection found and did.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Collected {
    /// Lists that were read.
    pub lists: u64,
    /// Chunks that lists name.
    pub named: Tally,
    /// Chunks that no list names and that somebody is working with: a checkpoint that is being made, a load.
    pub in_use: Tally,
    /// Chunks that no list names, spared because they were used lately and other machines may write here.
    pub recent: Tally,
    /// Chunks that nobody needs.
    pub unneeded: Vec<Chunk>,
    /// What of these was removed.
    pub removed: Tally,
    /// Chunks that came into use while they were being removed, and were brought back.
    pub brought_back: Tally,
    /// Left-over temporary files that were removed.
    pub temporaries: Tally,
    /// Chunks that lists name and that are not in the store.
    pub missing: Vec<Chunk>,
    /// Files in the store that are none of ours. They are left alone.
    pub strangers: Vec<PathBuf>,
}

impl Collected {
    /// Bytes of the chunks that nobody needs.
    pub fn unneeded_bytes(&self) -> u64 {
        self.unneeded.iter().map(|chunk| u64::from(chunk.len)).sum()
    }
}

/// Finds the chunks that no list in `ckpt_dirs` names, and removes them if told to.
///
/// `ckpt_dirs` must be all directories with checkpoints of this store. Writers and readers may be at work; what they
/// work with is spared. A list that cannot be read stops the collection before anything is removed.
pub fn store_gc(store: &Store, ckpt_dirs: &[PathBuf], options: GcOptions) -> Result<Collected, CollectError> {
    demand_kind(store, Kind::Store)?;
    if ckpt_dirs.is_empty() && !options.allow_empty {
        return Err(CollectError::NoDirectory { path: store.root().to_owned() });
    }
    let lists = Lists { layer: store.layer(), dirs: ckpt_dirs, allow_empty: options.allow_empty };
    // Whoever only looks may have no right to write, and needs no lease.
    let collector = if options.delete { Some(Collector::new(store)?) } else { None };
    let scan = scan(store)?;
    let now = collector.as_ref().map_or_else(system_clock, |collector| collector.now);
    let leases = store.reading_at(now).leases()?;
    let found = lists.read()?;
    let named = digests(&found);

    let mut report =
        Collected { lists: found.len() as u64, strangers: scan.strangers.clone(), ..Collected::default() };
    report.missing = missing(store, &found);
    let reading = store.reading_at(now);
    let mut doomed = Vec::new();
    for entry in &scan.chunks {
        let len = entry.stat.len;
        if named.contains(&entry.digest) {
            report.named.add(len);
        } else if leases.digests.contains(&entry.digest) {
            report.in_use.add(len);
        } else if !reading.local && reading.age(entry.stat.modified) < crate::lease::GRACE {
            report.recent.add(len);
        } else {
            let len = u32::try_from(len).unwrap_or(u32::MAX);
            report.unneeded.push(Chunk { digest: entry.digest, len });
            doomed.push(entry.clone());
        }
    }
    let Some(collector) = collector else { return Ok(report) };
    // What a collector that was cut short has left aside is judged anew.
    let doomed: Vec<_> = scan.aside.iter().cloned().chain(doomed).collect();
    for batch in doomed.chunks(BATCH) {
        let fates = collector.remove(batch.to_vec(), |aside| {
            // Leases first, then lists: the rules of `lease`.
            let mut keep = collector.leases()?.digests;
            keep.extend(digests(&lists.read()?));
            let recent = aside.iter().filter(|one| collector.is_recent(one.modified));
            keep.extend(recent.map(|one| one.digest));
            Ok(keep)
        })?;
        report.count(fates);
    }
    report.temporaries = collector.sweep(&scan, &leases)?;
    lists.sweep(&collector, &mut report.temporaries)?;
    Ok(report)
}

impl Collected {
    fn count(&mut self, fates: Fates) {
        self.removed.files += fates.removed.files;
        self.removed.bytes += fates.removed.bytes;
        self.brought_back.files += fates.brought_back.files;
        self.brought_back.bytes += fates.brought_back.bytes;
    }
}

fn system_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn digests(lists: &[Listed]) -> BTreeSet<Digest> {
    lists.iter().flat_map(|listed| listed.list.chunks()).map(|chunk| chunk.digest).collect()
}

fn missing(store: &Store, lists: &[Listed]) -> Vec<Chunk> {
    let named: BTreeSet<Chunk> = lists.iter().flat_map(|listed| listed.list.chunks()).copied().collect();
    named.into_iter().filter(|chunk| !store.has(chunk)).collect()
}

/// The lists that say what is needed.
struct Lists<'a> {
    layer: &'a dyn FileLayer,
    dirs: &'a [PathBuf],
    allow_empty: bool,
}

impl Lists<'_> {
    fn read(&self) -> Result<Vec<Listed>, ReadListError> {
        let mut all = Vec::new();
        for dir in self.dirs {
            let lists = read_lists_on(self.layer, dir)?;
            if lists.is_empty() && !self.allow_empty {
                return Err(ReadListError::None { dir: dir.clone() });
            }
            all.extend(lists);
        }
        Ok(all)
    }

    /// Removes lists, and markers of the store, whose writing was cut short. Their leases may be in another store, so
    /// that only age tells.
    fn sweep(&self, collector: &Collector<'_>, swept: &mut Tally) -> Result<(), FileError> {
        for dir in self.dirs.iter().map(PathBuf::as_path).chain([collector.store.root()]) {
            let names = self.layer.list_dir(dir).about("list", dir)?;
            let temporary = |name: &&OsString| matches!(layout::read_list_name(name), Name::Temporary(_));
            for path in names.iter().filter(temporary).map(|name| dir.join(name)) {
                self.sweep_one(collector, &path, swept)?;
            }
        }
        Ok(())
    }

    fn sweep_one(&self, collector: &Collector<'_>, path: &Path, swept: &mut Tally) -> Result<(), FileError> {
        let stat = match self.layer.stat(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            stat => stat.about("look at", path)?,
        };
        if collector.now.saturating_sub(stat.modified) > STALE {
            collector.unlink(path)?;
            swept.add(stat.len);
        }
        Ok(())
    }
}
