//! Leases: how a collector knows which chunks somebody works with.
//!
//! A lease is a file in `leases/` whose exclusive lock its owner holds. It says which chunks must stay. The lock
//! goes with the owner, however that ends; then the lease counts no more, and the next collector removes it.
//!
//! **Writers, readers and collectors go by these rules, and then nothing that is needed is lost:**
//!
//! 1. Who wants a chunk to stay writes its digest into the lease first, and only then looks whether it is there.
//!    What is not there under its name counts as absent: a writer writes it anew, a reader gives it its name back if
//!    it still can.
//! 2. A checkpoint's list is in place before its writer gives up the lease.
//! 3. A collector first renames what it wants to remove (`.dead-…`), then reads all leases, and then reads all lists
//!    again. What a lease or a list names gets its name back; only the rest is removed. It removes nothing but
//!    what bears its own lease's name, so that two collectors cannot act on each other's judgement.
//!
//! Take a writer that finds chunk X in place, and a collector that removes X. The collector's rename came after the
//! writer's look, which came after the digest was in the lease (1). So when the collector reads the leases (3) it
//! finds X, unless the lease is already gone; but then the list was in place (2), and the collector, which reads
//! lists after leases, finds X there. Either way X stays. With a reader it is the same, without the list: it keeps
//! its lease while it needs X. One without a lease, which loads a checkpoint whose list is in place, may come between
//! rename and return, and takes the chunk from under its `.dead` name.
//!
//! The rules need a file system on which one process sees at once what another one did. Where several machines
//! share it that may be false, and locks may be seen on one machine only. There a lease of another machine lives
//! until it was not written to for [`STALE`], and collectors spare what was written or used within [`GRACE`].
//!
//! ```text
//!   record 0   8  magic "NVSNAPLS", 4 version, 4 zeros, 16 boot id of the machine
//!   record n  32  a digest that must stay
//! ```
//!
//! A digest that is half written when a collector reads is one whose writer has not looked yet: ignoring it is
//! right. A forked child of the owner shares the lock; the lease then lasts until both are gone.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use crate::digest::Digest;
use crate::error::{About, CollectError, FileError};
use crate::layer::{Access, FileLayer, Open, OpenFile, Rename};
use crate::layout::{self, Name, Random};
use crate::place::make_dir;

/// How long a lease counts whose lock tells nothing.
pub const STALE: Duration = Duration::from_secs(24 * 3600);

/// How long what was used last is spared where several machines write.
pub const GRACE: Duration = Duration::from_secs(3600);

const MAGIC: [u8; 8] = *b"NVSNAPLS";
const VERSION: u32 = 1;
const RECORD: usize = 32;

/// A lease that this process holds.
#[derive(Debug)]
pub(crate) struct Lease {
    layer: Arc<dyn FileLayer>,
    id: Random,
    path: PathBuf,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    file: Box<dyn OpenFile>,
    end: u64,
    digests: BTreeSet<Digest>,
}

impl Lease {
    /// Takes a lease that names nothing yet.
    pub(crate) fn take(layer: &Arc<dyn FileLayer>, root: &Path) -> Result<Self, FileError> {
        make_dir(&**layer, &layout::leases_dir(root))?;
        let id = Random::new().about("name a lease in", root)?;
        let new = layout::new_lease_path(root, id);
        let how = Open { access: Access::Create, direct: false };
        let file = layer.open(&new, how).about("create the lease", &new)?;
        let path = layout::lease_path(root, id);
        if let Err(error) = begin(&**layer, &*file, &new, &path) {
            // The first error counts; what is left is swept when it is old.
            let _ = layer.unlink(&new);
            return Err(error);
        }
        let held = Mutex::new(Held { file, end: RECORD as u64, digests: BTreeSet::new() });
        Ok(Self { layer: Arc::clone(layer), id, path, held })
    }

    pub(crate) fn id(&self) -> Random {
        self.id
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Has these chunks stay, if they are there. To be called before looking.
    pub(crate) fn claim(&self, digests: impl IntoIterator<Item = Digest>) -> Result<(), FileError> {
        let mut held = unpoisoned(&self.held);
        let new: BTreeSet<_> = digests.into_iter().filter(|digest| !held.digests.contains(digest)).collect();
        let records: Vec<u8> = new.iter().flat_map(|digest| digest.0).collect();
        write_all(&*held.file, &records, held.end).about("write the lease", &self.path)?;
        held.end += records.len() as u64;
        held.digests.extend(new);
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // A lease that cannot be removed is dead all the same once its lock is.
        let _ = self.layer.unlink(&self.path);
    }
}

/// The lease gets its place only when it is locked and can be read.
fn begin(layer: &dyn FileLayer, file: &dyn OpenFile, new: &Path, path: &Path) -> Result<(), FileError> {
    match file.try_lock() {
        Err(error) if !no_locks(&error) => return Err(error).about("lock the lease", new),
        // Where nothing can be locked, collectors go by its age.
        _ => {}
    }
    let mut header = [0; RECORD];
    let fields = MAGIC.into_iter().chain(VERSION.to_le_bytes()).chain([0; 4]).chain(boot_id());
    header.iter_mut().zip(fields).for_each(|(byte, field)| *byte = field);
    write_all(file, &header, 0).about("write the lease", new)?;
    layer.rename(new, path, Rename::Replace).about("put in place the lease", path)
}

fn write_all(file: &dyn OpenFile, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = bytes.get(written..).unwrap_or_default();
                offset += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether the file system has no locks, as opposed to not giving this one.
fn no_locks(error: &io::Error) -> bool {
    let missing = [Errno::NOLCK, Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOTSUP, Errno::INVAL];
    Errno::from_io_error(error).is_some_and(|errno| missing.contains(&errno))
}

fn must_not_write(error: &io::Error) -> bool {
    let refusals = [Errno::ROFS, Errno::ACCESS, Errno::PERM];
    Errno::from_io_error(error).is_some_and(|errno| refusals.contains(&errno))
}

/// Names the running kernel. Zeros, which are no kernel's, where the system does not say.
fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits = text.trim().replace('-', "");
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

/// Locks a mutex. A panic elsewhere while it was held leaves nothing half done behind any mutex of this crate.
pub(crate) fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the leases of a store say.
#[derive(Default, Debug)]
pub(crate) struct Leases {
    /// The leases that count.
    pub(crate) live: BTreeSet<Random>,
    /// What they name.
    pub(crate) digests: BTreeSet<Digest>,
    /// Leases of owners that are gone.
    pub(crate) dead: Vec<PathBuf>,
}

/// Where and when leases are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading<'a> {
    pub(crate) layer: &'a dyn FileLayer,
    pub(crate) root: &'a Path,
    pub(crate) local: bool,
    /// The file system's clock.
    pub(crate) now: Duration,
}

impl Reading<'_> {
    pub(crate) fn age(&self, modified: Duration) -> Duration {
        self.now.saturating_sub(modified)
    }

    /// Reads all leases of the store.
    pub(crate) fn leases(&self) -> Result<Leases, CollectError> {
        let mut leases = Leases::default();
        let dir = layout::leases_dir(self.root);
        let names = match self.layer.list_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(leases),
            names => names.about("list", &dir)?,
        };
        for name in names {
            let path = dir.join(&name);
            match layout::read_lease_name(&name) {
                Name::Lease(id) => self.lease(id, path, &mut leases)?,
                Name::NewLease(_) => self.new_lease(path, &mut leases)?,
                _ => {}
            }
        }
        Ok(leases)
    }

    fn lease(&self, id: Random, path: PathBuf, into: &mut Leases) -> Result<(), CollectError> {
        let open = |access| self.layer.open(&path, Open { access, direct: false });
        let opened = match open(Access::Update) {
            // Who may only look cannot write. Most file systems lock for readers too.
            Err(error) if must_not_write(&error) => open(Access::Read),
            opened => opened,
        };
        let file = match opened {
            // Given up since the directory was listed, so that its list, if any, is in place.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file.about("open the lease", &path)?,
        };
        let free = match file.try_lock() {
            Err(error) if no_locks(&error) => None,
            free => Some(free.about("lock the lease", &path)?),
        };
        let stat = file.stat().about("look at the lease", &path)?;
        let bytes = read_to_end(&*file, stat.len).about("read the lease", &path)?;
        let parsed = parse(&bytes);
        let told_by_lock = self.local || parsed.as_ref().is_some_and(|(_, boot)| *boot == boot_id());
        let dead = match free {
            Some(false) => false,
            Some(true) if told_by_lock => true,
            _ => self.age(stat.modified) > STALE,
        };
        match parsed {
            // Whatever a dead one says, and a power cut may have left anything in it.
            _ if dead => into.dead.push(path),
            Some((records, _)) => {
                into.live.insert(id);
                into.digests.extend(records);
            }
            None => return Err(CollectError::Lease { path }),
        }
        Ok(())
    }

    /// One that never got its place: its owner has claimed nothing.
    fn new_lease(&self, path: PathBuf, into: &mut Leases) -> Result<(), CollectError> {
        match self.layer.stat(&path) {
            Ok(stat) if self.age(stat.modified) > STALE => into.dead.push(path),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).about("look at", &path)?;
            }
            _ => {}
        }
        Ok(())
    }
}

fn parse(bytes: &[u8]) -> Option<(impl Iterator<Item = Digest> + '_, [u8; 16])> {
    let (records, _half_written) = bytes.as_chunks::<RECORD>();
    let (header, records) = records.split_first()?;
    let rest = header.strip_prefix(&MAGIC)?.strip_prefix(&VERSION.to_le_bytes())?;
    let boot = rest.last_chunk::<16>()?;
    Some((records.iter().map(|record| Digest(*record)), *boot))
}

/// Reads what a file holds now; it may have grown since `expected` was its length.
pub(crate) fn read_to_end(file: &dyn OpenFile, expected: u64) -> io::Result<Vec<u8>> {
    let room = usize::try_from(expected).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut bytes = vec![0; room.saturating_add(RECORD)];
    let mut end = 0;
    loop {
        if end == bytes.len() {
            bytes.resize(end.saturating_mul(2), 0);
        }
        match file.read_at(bytes.split_at_mut(end).1, end as u64) {
            Ok(0) => break,
            Ok(read) => end += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(end);
    Ok(bytes)
}
