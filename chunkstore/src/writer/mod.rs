//! Saving: a writer stores chunks under a lease and makes the list durable last.
//!
//! A name under `chunks/` always stands for a whole file: its bytes were written under another name and synced, and
//! only then got this one. A list is put in place after the directories of all its chunks were synced, also of those
//! that somebody else had stored: their names may not have been durable yet. So there is no list without its chunks,
//! wherever a machine stops.

mod coming;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Mutex;

use crate::buffer::AlignedBuf;
use crate::digest::{CHUNK_BYTES, Chunk, Digest, is_zero};
use crate::error::{About, CommitError, FileError, GetError, PutError};
use crate::layer::Stat;
use crate::layout;
use crate::lease::{Lease, unpoisoned};
use crate::list::{List, format};
use crate::place::{self, Taken, make_dir, make_dirs, sync_above};
use crate::stats::{Route, add};
use crate::store::Store;
pub use coming::{Begun, Coming};

/// What became of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// It is all zero: there is nothing to store.
    Zero,
    /// The store had it.
    Existing(Chunk),
    /// It was written, this way.
    Written(Chunk, Route),
}

impl Put {
    /// The chunk to name in a list, or `None` for zeros.
    pub fn chunk(&self) -> Option<Chunk> {
        match *self {
            Self::Zero => None,
            Self::Existing(chunk) | Self::Written(chunk, _) => Some(chunk),
        }
    }
}

/// Stores chunks. What it has stored or found stays at least until it is dropped, and after that if a list names it.
///
/// Any number of threads may use one writer.
#[derive(Debug)]
pub struct Writer {
    store: Store,
    lease: Lease,
    verify_existing: bool,
    here: Mutex<Here>,
}

/// What is known to be in the store under our lease.
#[derive(Default, Debug)]
struct Here {
    chunks: BTreeSet<Chunk>,
    /// The directories that were seen or made.
    fans: BTreeSet<u8>,
}

impl Store {
    /// A writer. With `verify_existing`, chunks that are there already are read and put right if they are bad;
    /// else their length is believed.
    pub fn writer(&self, verify_existing: bool) -> Result<Writer, FileError> {
        let lease = Lease::take(self.shared_layer(), self.root())?;
        make_dir(self.layer(), &layout::chunks_dir(self.root()))?;
        Ok(Writer { store: self.clone(), lease, verify_existing, here: Mutex::default() })
    }
}

impl Writer {
    /// The store it writes to.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Whether the store has `chunk`. If so it stays, and need not be put.
    pub fn claim(&self, chunk: &Chunk) -> Result<bool, PutError> {
        Ok(self.claim_all(std::slice::from_ref(chunk))?.contains(&true))
    }

    /// [`claim`](Self::claim) for many, with one write to the lease.
    pub fn claim_all(&self, chunks: &[Chunk]) -> Result<Vec<bool>, PutError> {
        let digests = chunks.iter().map(|chunk| chunk.digest);
        self.lease.claim(digests).map_err(PutError::of(size_of::<Digest>() * chunks.len()))?;
        chunks.iter().map(|chunk| Ok(self.find(chunk)? == Found::Good)).collect()
    }

    /// Stores `bytes`, if they are not there. Direct I/O needs memory that starts at a page, as that of an
    /// [`AlignedBuf`] does.
    pub fn put(&self, bytes: &[u8]) -> Result<Put, PutError> {
        let len = chunk_length(bytes)?;
        if is_zero(bytes) {
            add(&self.store.counters().zero_chunks, 1);
            add(&self.store.counters().zero_bytes, len.into());
            return Ok(Put::Zero);
        }
        self.put_hashed(Digest::of(bytes), bytes)
    }

    /// Stores `bytes`, which the caller has hashed and found not to be all zero. A digest that is not theirs makes a
    /// bad chunk: whoever reads it is told.
    pub fn put_hashed(&self, digest: Digest, bytes: &[u8]) -> Result<Put, PutError> {
        match self.begin(Chunk { digest, len: chunk_length(bytes)? })? {
            Begun::Existing(chunk) => Ok(Put::Existing(chunk)),
            Begun::New(mut coming) => {
                coming.append(bytes)?;
                coming.finish()
            }
        }
    }

    /// [`put_hashed`](Self::put_hashed) of bytes that come piece by piece, if the store does not have them.
    pub fn begin(&self, chunk: Chunk) -> Result<Begun<'_>, PutError> {
        // Before anything is looked at: the rules of `lease`.
        self.lease.claim([chunk.digest]).map_err(PutError::of(size_of::<Digest>()))?;
        let found = self.find(&chunk)?;
        if found == Found::Good {
            self.count_existing(&chunk);
            return Ok(Begun::Existing(chunk));
        }
        Ok(Begun::New(Coming::new(self, chunk, found).map_err(PutError::of_chunk(&chunk))?))
    }

    /// Makes the list of process `pid` durable in `ckpt_dir`, in place of an older one. All its chunks must have been
    /// stored or claimed by this writer. Once this has returned without an error, the checkpoint is complete.
    pub fn commit(&self, ckpt_dir: &Path, pid: u32, list: &List) -> Result<(), CommitError> {
        let bytes = format::encode(list);
        let fans = {
            let here = unpoisoned(&self.here);
            if let Some(stranger) = list.chunks().iter().find(|chunk| !here.chunks.contains(chunk)) {
                return Err(CommitError::NotStored(*stranger));
            }
            list.chunks().iter().map(|chunk| layout::fan_of(&chunk.digest)).collect::<BTreeSet<_>>()
        };
        let need = bytes.len() as u64;
        self.commit_bytes(ckpt_dir, pid, &bytes, fans).map_err(|source| {
            if source.is_full() { CommitError::Full { need, source } } else { CommitError::File(source) }
        })
    }

    fn commit_bytes(
        &self,
        ckpt_dir: &Path,
        pid: u32,
        bytes: &[u8],
        fans: BTreeSet<u8>,
    ) -> Result<(), FileError> {
        let (layer, root) = (self.store.layer(), self.store.root());
        for fan in fans {
            let dir = layout::fan_dir(root, fan);
            layer.sync_dir(&dir).about("sync", &dir)?;
        }
        for dir in [&layout::chunks_dir(root), root] {
            layer.sync_dir(dir).about("sync", dir)?;
        }
        let ckpt_dir = &std::path::absolute(ckpt_dir).about("make an absolute path of", ckpt_dir)?;
        make_dirs(layer, ckpt_dir)?;
        // Where locks tell nothing, a collector may have taken us for dead.
        layer
            .stat(self.lease.path())
            .about("find our own lease, so that chunks may be gone:", self.lease.path())?;
        let to = ckpt_dir.join(layout::list_name(pid));
        place::place(layer, self.lease.id(), &to, bytes, Taken::Replace)?;
        layer.sync_dir(ckpt_dir).about("sync", ckpt_dir)?;
        sync_above(layer, ckpt_dir)
    }

    /// Looks for a chunk that is claimed.
    fn find(&self, chunk: &Chunk) -> Result<Found, PutError> {
        let path = self.store.path_of(&chunk.digest);
        let found = match self.store.layer().stat(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Found::Nothing,
            stat => self.judge(chunk, stat.about("look at", &path).map_err(PutError::File)?)?,
        };
        if found == Found::Good {
            // The time of last use. It protects nothing here, and on a read-only store it cannot be set.
            let _ = self.store.layer().touch(&path);
            unpoisoned(&self.here).chunks.insert(*chunk);
        }
        Ok(found)
    }

    fn judge(&self, chunk: &Chunk, stat: Stat) -> Result<Found, PutError> {
        if !stat.regular || stat.len != u64::from(chunk.len) {
            return Ok(Found::Bad);
        }
        if !self.verify_existing {
            return Ok(Found::Good);
        }
        let no_memory = |source| {
            let path = self.store.path_of(&chunk.digest);
            PutError::File(FileError { action: "get memory to verify", path, source })
        };
        let room = usize::try_from(chunk.len).unwrap_or(usize::MAX);
        let mut buffer = AlignedBuf::new(room).map_err(no_memory)?;
        match self.store.read_uncounted(chunk, &mut buffer, true) {
            Ok(_) => Ok(Found::Good),
            Err(GetError::Missing { .. }) => Ok(Found::Nothing),
            Err(GetError::Length { .. } | GetError::Content { .. } | GetError::Room { .. }) => Ok(Found::Bad),
            Err(GetError::File(error)) => Err(PutError::File(error)),
        }
    }

    fn count_existing(&self, chunk: &Chunk) {
        add(&self.store.counters().existing_chunks, 1);
        add(&self.store.counters().existing_bytes, chunk.len.into());
    }
}

/// What is at a chunk's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    Nothing,
    Good,
    Bad,
}

fn chunk_length(bytes: &[u8]) -> Result<u32, PutError> {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    if (1..=CHUNK_BYTES).contains(&len) { Ok(len) } else { Err(PutError::Length(bytes.len())) }
}
