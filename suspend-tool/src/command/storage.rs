//! The directories of a suspend and of a resume, looked at before anything is done to a process.
//!
//! Files are opened by the processes themselves, as their users and in their mount namespaces. So paths are made
//! absolute here, and what the processes will not be able to open is found as far as it can be seen from outside.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use chunkstore::{Kind, Store, Threads, cache_prefetch};
use protocol::{Contents, Inventory, PathBytes, ReadFrom, SaveTo};
use rustix::fs::Access;

use super::Context;
use super::chunks::Meter;
use super::set::quoted;
use crate::check::{Finding, Seen, host_limits};
use crate::cli::{PlaceArgs, SaveArgs, ThreadArgs};
use crate::lifecycle::{Orders, Release, Session, StepError};
use crate::pid::Pid;
use crate::report::chain;

/// How often to look whether the command was asked to stop.
const GLANCE: Duration = Duration::from_millis(50);

/// Where memory is saved to.
#[derive(Debug)]
pub(super) struct Storage {
    store: Store,
    ckpt_dir: PathBuf,
    cache: Option<Store>,
    verify_existing: bool,
}

impl Storage {
    /// Opens, or makes, what the options name; `None` where they name nothing.
    pub(super) fn open(save: &SaveArgs, seen: &[Seen]) -> Result<Option<Self>, Finding> {
        let (Some(store), Some(ckpt_dir)) = (&save.places.store, &save.ckpt_dir) else { return Ok(None) };
        let store = made(store, Kind::Store)?;
        let ckpt_dir = directory(ckpt_dir)?;
        let cache = save.places.cache.as_ref().map(|cache| made(cache, Kind::Cache)).transpose()?;
        for dir in [store.root(), &ckpt_dir] {
            may_use(dir, seen)?;
        }
        Ok(Some(Self { store, ckpt_dir, cache, verify_existing: save.verify_existing }))
    }

    fn target(&self) -> SaveTo {
        SaveTo::Store {
            store: bytes(self.store.root()),
            ckpt_dir: bytes(&self.ckpt_dir),
            verify_existing: self.verify_existing,
        }
    }

    /// Copies what was saved to the cache, if there is one. The processes are suspended by then.
    pub(super) fn fill_cache(&self, context: &Context) -> Option<Finding> {
        let cache = self.cache.as_ref()?;
        let error = self.copied_to(cache.clone(), context).err()?;
        let remedy = format!(
            "the processes are suspended and the store has everything; to fill the cache: `nvsnap-gpu-suspend \
             cache-prefetch {} {} {}`",
            quoted(self.store.root().as_os_str().as_bytes()),
            quoted(self.ckpt_dir.as_os_str().as_bytes()),
            quoted(cache.root().as_os_str().as_bytes())
        );
        Some(Finding::warning("cache", format!("the cache was not filled: {error}"), remedy))
    }

    /// On a thread of its own, which ends with this command where that is asked to stop: a cache that was filled in part is
    /// as good as any.
    fn copied_to(&self, cache: Store, context: &Context) -> Result<(), String> {
        let (tell, told) = mpsc::channel();
        let (store, ckpt_dir) = (self.store.clone(), self.ckpt_dir.clone());
        let reporter = Arc::clone(&context.reporter);
        std::thread::spawn(move || {
            let meter = Meter::new(&*reporter);
            let report = |progress| meter.show(progress);
            let threads = ThreadArgs::default().or_usual();
            // Nobody listens any more when the command is about to end.
            let _ = tell.send(cache_prefetch(&store, &ckpt_dir, &cache, false, (&Threads, threads), &report));
        });
        loop {
            if let Some(signal) = context.interrupt.pending() {
                context.reporter.clear();
                return Err(format!("{signal} asked this command to stop"));
            }
            match told.recv_timeout(GLANCE) {
                Ok(filled) => return filled.map(drop).map_err(|error| chain(&error)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err("its thread has ended".to_owned()),
            }
        }
    }
}

/// Where the processes are told to save.
pub(super) fn target(storage: Option<&Storage>, save: &SaveArgs) -> SaveTo {
    match storage {
        Some(storage) => storage.target(),
        None if save.keep_arena => SaveTo::KeptMemory,
        None => SaveTo::Memory,
    }
}

/// Where what was saved is read, as the options say. A store may be read-only.
pub(super) fn read_from(places: &PlaceArgs, seen: &[Seen]) -> Result<ReadFrom, Vec<Finding>> {
    let open = |path: &Option<PathBuf>, kind| {
        let Some(path) = path else { return Ok(None) };
        let store = Store::open(path, kind).map_err(|error| unusable(kind, &error))?;
        may_use(store.root(), seen)?;
        Ok(Some(bytes(store.root())))
    };
    match (open(&places.store, Kind::Store), open(&places.cache, Kind::Cache)) {
        (Ok(store), Ok(cache)) => Ok(ReadFrom { store, cache }),
        (store, cache) => Err(store.err().into_iter().chain(cache.err()).collect()),
    }
}

/// Has suspended processes start to read what they have saved to a store, as far as host memory has room.
pub(super) fn stage(context: &Context, session: &Session, seen: &[Seen]) -> Result<(), StepError> {
    /// More than this is not worth having ahead: the driver's restore takes less than a second, or moves bytes itself.
    const MOST: u64 = 8 << 30;
    let in_chunks = |inventory: &Inventory| {
        let allocations = inventory.allocations.iter();
        let stored = allocations.filter(|allocation| allocation.contents == Contents::Chunks);
        stored.map(|allocation| allocation.size).fold(0, u64::saturating_add).min(MOST)
    };
    let needs = seen.iter().filter_map(|seen| Some((seen.target.pid, in_chunks(seen.inventory()?))));
    let needs: BTreeMap<Pid, u64> = needs.filter(|(_, bytes)| *bytes > 0).collect();
    match host_limits(&context.machine.proc, &needs) {
        Ok(limits) if !needs.is_empty() => {
            // Reading needs the allocator, whose lock a thread that is held still may have.
            if session.hold.thaw(&session.all()).is_err() {
                return Ok(());
            }
            Release::new(session, Box::new(|| Ok(Orders::default()))).stage(limits)
        }
        // Where memory is short, the load reads everything itself.
        _ => Ok(()),
    }
}

/// Opens a store or cache to write to; makes it if there is none.
fn made(path: &Path, kind: Kind) -> Result<Store, Finding> {
    let store = Store::create(path, kind).map_err(|error| unusable(kind, &error))?;
    // Whoever gets a lease may write.
    store.writer(false).map_err(|error| unusable(kind, &error))?;
    Ok(store)
}

fn unusable(kind: Kind, error: &dyn std::error::Error) -> Finding {
    let name = match kind {
        Kind::Store => "store",
        Kind::Cache => "cache",
    };
    Finding::blocker(name, chain(error), "")
}

/// The directory for the lists: there, a directory, and one that can be written to.
fn directory(path: &Path) -> Result<PathBuf, Finding> {
    let refused = |error: std::io::Error| {
        let message = format!("the directory of the checkpoint, {}, cannot be used: {error}", path.display());
        Finding::blocker("ckpt-dir", message, "")
    };
    let path = std::path::absolute(path).map_err(refused)?;
    std::fs::create_dir_all(&path).map_err(refused)?;
    rustix::fs::access(&path, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| refused(error.into()))?;
    Ok(path)
}

/// Stores, caches and lists are for their owner alone: a process of another user would be refused.
fn may_use(dir: &Path, seen: &[Seen]) -> Result<(), Finding> {
    let Ok(owner) = std::fs::metadata(dir).map(|found| found.uid()) else { return Ok(()) };
    for seen in seen.iter().filter(|seen| seen.takes_part() && seen.inventory().is_some()) {
        let pid = seen.target.pid;
        let Ok(user) = std::fs::metadata(format!("/proc/{pid}")).map(|found| found.uid()) else { continue };
        if user != 0 && user != owner {
            let message = format!(
                "process {pid} runs as user {user} and cannot use {}, which belongs to user {owner}",
                dir.display()
            );
            let remedy = format!("run this command as user {user}, or give that directory to that user");
            return Err(Finding::blocker("owner", message, remedy).of(pid));
        }
    }
    Ok(())
}

fn bytes(path: &Path) -> PathBytes {
    PathBytes(path.as_os_str().as_bytes().to_vec())
}
