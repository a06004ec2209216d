//! Collectors: what removes chunks.
//!
//! [`store_gc`] removes what no list names, [`cache_gc`] what was not used for longest. Both go by the rules of
//! [`lease`](crate::lease): set aside, look again, and only then remove.

mod cache;
mod scan;
mod store;

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub use cache::{CacheCollected, cache_gc};
pub(crate) use scan::{Entry, Scan, scan};
pub use store::{Collected, GcOptions, store_gc};

use crate::digest::Digest;
use crate::error::{About, CollectError, FileError};
use crate::layer::{FileLayer, Rename};
use crate::layout::{self, Random};
use crate::lease::{GRACE, Lease, Leases};
use crate::place::{self, Taken};
use crate::store::{Kind, Store};

/// How many chunks are set aside at once: readers of one of them have to look twice for that long.
const BATCH: usize = 512;

/// Files, counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// How many.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}

/// What became of the chunks of a batch.
#[derive(Clone, Copy, Default, Debug)]
struct Fates {
    removed: Tally,
    brought_back: Tally,
}

/// Somebody who removes, with a lease of its own to name what it sets aside.
#[derive(Debug)]
struct Collector<'a> {
    store: &'a Store,
    lease: Lease,
    /// The clock of the file system, which others' times are compared with.
    now: Duration,
}

/// A chunk under its `.dead` name.
#[derive(Debug)]
struct Aside {
    digest: Digest,
    path: PathBuf,
    bytes: u64,
    modified: Duration,
}

fn demand_kind(store: &Store, wanted: Kind) -> Result<(), CollectError> {
    let found = store.kind();
    if found == wanted {
        return Ok(());
    }
    Err(CollectError::OtherKind { path: store.root().to_owned(), wanted, found })
}

impl<'a> Collector<'a> {
    fn new(store: &'a Store) -> Result<Self, FileError> {
        let lease = Lease::take(store.shared_layer(), store.root())?;
        let now = store.layer().stat(lease.path()).about("look at", lease.path())?.modified;
        Ok(Self { store, lease, now })
    }

    fn layer(&self) -> &dyn FileLayer {
        self.store.layer()
    }

    fn leases(&self) -> Result<Leases, CollectError> {
        self.store.reading_at(self.now).leases()
    }

    /// Whether something was used so recently that it is spared: where several machines write, what they did may not
    /// have been seen yet.
    fn is_recent(&self, modified: Duration) -> bool {
        let reading = self.store.reading_at(self.now);
        !reading.local && reading.age(modified) < GRACE
    }

    /// Removes those of `entries` that `keep` does not spare. `keep` is asked when all are set aside, and must look
    /// at leases and lists then.
    fn remove(
        &self,
        entries: Vec<Entry>,
        keep: impl FnOnce(&[Aside]) -> Result<BTreeSet<Digest>, CollectError>,
    ) -> Result<Fates, CollectError> {
        let mut aside = Vec::with_capacity(entries.len());
        for entry in entries {
            match self.set_aside(entry) {
                Ok(one) => aside.extend(one),
                Err(error) => {
                    self.bring_all_back(&aside);
                    return Err(error.into());
                }
            }
        }
        match keep(&aside) {
            Ok(keep) => self.judge(&aside, &keep),
            Err(error) => {
                self.bring_all_back(&aside);
                Err(error)
            }
        }
    }

    /// `None` where it is gone, or where another collector has it.
    fn set_aside(&self, entry: Entry) -> Result<Option<Aside>, FileError> {
        let path = layout::dead_path(self.store.root(), self.lease.id(), &entry.digest);
        match self.layer().rename(&entry.path, &path, Rename::Replace) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            renamed => {
                renamed.about("set aside", &entry.path)?;
                // As it is after the rename: it may have been used since it was scanned.
                let stat = self.layer().stat(&path).unwrap_or(entry.stat);
                let (bytes, modified) = (stat.len, stat.modified);
                Ok(Some(Aside { digest: entry.digest, path, bytes, modified }))
            }
        }
    }

    fn judge(&self, aside: &[Aside], keep: &BTreeSet<Digest>) -> Result<Fates, CollectError> {
        let mut fates = Fates::default();
        for (number, one) in aside.iter().enumerate() {
            let result = if keep.contains(&one.digest) {
                self.bring_back(one).map(|()| fates.brought_back.add(one.bytes))
            } else {
                self.unlink(&one.path).map(|()| fates.removed.add(one.bytes))
            };
            if let Err(error) = result {
                self.bring_all_back(aside.get(number..).unwrap_or_default());
                return Err(error.into());
            }
        }
        Ok(fates)
    }

    fn bring_back(&self, aside: &Aside) -> Result<(), FileError> {
        let to = self.store.path_of(&aside.digest);
        match place::publish(self.layer(), &aside.path, &to, Taken::Keep) {
            // Written anew in the meantime.
            Ok(false) => self.unlink(&aside.path),
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(()),
            placed => placed.map(|_| ()),
        }
    }

    /// Where the file system has failed already. What stays aside is found there by readers, and by the next
    /// collector.
    fn bring_all_back(&self, aside: &[Aside]) {
        for one in aside {
            let _ = self.bring_back(one);
        }
    }

    fn unlink(&self, path: &std::path::Path) -> Result<(), FileError> {
        match self.layer().unlink(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.about("remove", path),
        }
    }

    /// Removes what nobody is writing any more, and leases of those who are gone. `scan` must be older than `leases`:
    /// a lease is there before its first temporary file, and goes after its last.
    fn sweep(&self, scan: &Scan, leases: &Leases) -> Result<Tally, FileError> {
        let mut swept = Tally::default();
        for (lease, path, stat) in &scan.temporaries {
            if !self.is_alive(*lease, leases) && !self.is_recent(stat.modified) {
                self.unlink(path)?;
                swept.add(stat.len);
            }
        }
        for path in &leases.dead {
            self.unlink(path)?;
        }
        Ok(swept)
    }

    fn is_alive(&self, lease: Random, leases: &Leases) -> bool {
        lease == self.lease.id() || leases.live.contains(&lease)
    }
}
