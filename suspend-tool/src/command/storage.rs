//! The directories of a suspend and of a resume, looked at before anything is done to a process.
//!
//! Files are opened by the processes themselves, as their users and in their mount namespaces. So paths are made
//! absolute here, and what the processes will not be able to open is found as far as it can be seen from outside.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use chunkstore::list::format::list_bytes;
use chunkstore::{CHUNK_BYTES, Kind, OpenError, Store};
use protocol::{Contents, Inventory, PathBytes, ReadFrom, SaveTo};
use rustix::fs::Access;

use super::fill::Filling;
use super::set::quoted;
use super::{Context, Outcome};
use crate::check::{Finding, Need, Seen, Verdict, host_limits, on_disk, room};
use crate::cli::{PlaceArgs, SaveArgs};
use crate::lifecycle::{Orders, Release, Session, StepError};
use crate::pid::Pid;
use crate::report::chain;
use crate::state::StateDir;
use crate::topology::HostNeed;

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

    /// Has what was saved copied to the cache, if there is one, and adds that to the outcome. To be called when the
    /// processes are suspended: the GPUs are free, and what does not work here is made up for by the store.
    pub(super) fn fill_cache(&self, state: &StateDir, mut outcome: Outcome) -> Outcome {
        let Some(cache) = &self.cache else { return outcome };
        let (store, cache) = (self.store.root(), cache.root());
        match Filling::start(state, store, &self.ckpt_dir, cache) {
            Ok(filling) => {
                outcome.sentence.push_str(&filling.sentence());
                outcome.counting(filling.numbers())
            }
            Err(error) => {
                let remedy = format!(
                    "the processes are suspended and the store has everything; to fill the cache: \
                     `nvsnap-gpu-suspend cache-prefetch {} {} {}`",
                    quoted(store.as_os_str().as_bytes()),
                    quoted(self.ckpt_dir.as_os_str().as_bytes()),
                    quoted(cache.as_os_str().as_bytes())
                );
                let message = format!("the cache is not filled: {}", chain(&error));
                outcome.findings.push(Finding::warning("cache", message, remedy));
                outcome
            }
        }
    }
}

/// Whether the disks have room for what a suspend is going to write where the options say.
pub(super) fn room_for(save: &SaveArgs, verdict: &Verdict) -> Vec<Finding> {
    let PlaceArgs { store, cache } = &save.places;
    let (Some(store), Some(ckpt_dir)) = (store, &save.ckpt_dir) else { return Vec::new() };
    let mut bytes = 0_u64;
    // Lists name every object, whatever its bytes are.
    let mut lists = (0_u64, 0_u64);
    for amount in verdict.released.values() {
        let pieces = amount.objects.saturating_add(amount.bytes / u64::from(CHUNK_BYTES));
        bytes = bytes.saturating_add(amount.bytes);
        let least = list_bytes(0, amount.objects, amount.objects);
        let most = list_bytes(pieces, amount.objects, pieces);
        lists = (lists.0.saturating_add(on_disk(least)), lists.1.saturating_add(on_disk(most)));
    }
    let need = |path: &Path, (least, most), is_vital| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Need { path, least, most, is_vital }
    };
    let mut needs = vec![need(store, (0, bytes), true), need(ckpt_dir, lists, true)];
    needs.extend(cache.as_ref().map(|cache| need(cache, (0, bytes), false)));
    room(needs)
}

/// Whether the directories that the options name could be used, without making any.
pub(super) fn foresee(save: &SaveArgs, seen: &[Seen]) -> Vec<Finding> {
    let places = [
        (&save.places.store, Some(Kind::Store)),
        (&save.ckpt_dir, None),
        (&save.places.cache, Some(Kind::Cache)),
    ];
    let given = places.into_iter().filter_map(|(path, kind)| Some((path.as_ref()?, kind)));
    given.filter_map(|(path, kind)| could_be(path, kind, seen).err()).collect()
}

/// One directory: a store or cache of that kind, or one for lists.
fn could_be(path: &Path, kind: Option<Kind>, seen: &[Seen]) -> Result<(), Finding> {
    let refused = |error: std::io::Error| unfit(path, kind, &error);
    let path = &std::path::absolute(path).map_err(refused)?;
    // What is not there yet is made, in the first directory above that is.
    let there = path.ancestors().find(|path| path.symlink_metadata().is_ok()).unwrap_or(path);
    let mut names = std::fs::read_dir(there).map_err(refused)?;
    rustix::fs::access(there, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| refused(error.into()))?;
    let Some(kind) = kind.filter(|_| there == path) else { return Ok(()) };
    match Store::open(path, kind) {
        Ok(store) => may_use(store.root(), seen),
        Err(OpenError::NotAStore { .. }) if names.next().is_none() => Ok(()),
        Err(error) => Err(unusable(kind, &error)),
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
    let needs: BTreeMap<Pid, HostNeed> =
        needs.filter(|(_, bytes)| *bytes > 0).map(|(pid, bytes)| (pid, HostNeed::exactly(bytes))).collect();
    match host_limits(&context.machine.proc, &needs) {
        (limits, findings) if findings.is_empty() && !needs.is_empty() => {
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
    Finding::blocker(word(kind), chain(error), "")
}

/// A directory that cannot be used: for a store or cache, or for lists.
fn unfit(path: &Path, kind: Option<Kind>, error: &std::io::Error) -> Finding {
    let (name, what) = match kind {
        Some(kind) => (word(kind), kind.to_string()),
        None => ("ckpt-dir", "directory of the checkpoint".to_owned()),
    };
    Finding::blocker(name, format!("the {what}, {}, cannot be used: {error}", path.display()), "")
}

/// A word for programs.
fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Store => "store",
        Kind::Cache => "cache",
    }
}

/// The directory for the lists: there, a directory, and one that can be written to.
fn directory(path: &Path) -> Result<PathBuf, Finding> {
    let refused = |error: std::io::Error| unfit(path, None, &error);
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
