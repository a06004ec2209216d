//! What goes wrong, by operation.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;

use crate::digest::{CHUNK_BYTES, Chunk, Digest};
use crate::list::format::FormatError;
use crate::store::Kind;

/// A call on a file failed. The source says how.
#[derive(Debug, Error)]
#[error("cannot {action} {}", path.display())]
pub struct FileError {
    /// What was to be done.
    pub action: &'static str,
    /// To what.
    pub path: PathBuf,
    /// The system's answer.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// The system's error number, if it was the system that answered.
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }

    pub(crate) fn is(&self, errno: Errno) -> bool {
        self.errno() == Some(errno.raw_os_error())
    }

    /// Whether there is no room, or no more for this user.
    pub fn is_full(&self) -> bool {
        self.is(Errno::NOSPC) || self.is(Errno::DQUOT)
    }
}

/// Turns an answer of the system into an error that names what it was about.
pub(crate) trait About<T> {
    fn about(self, action: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T> About<T> for io::Result<T> {
    fn about(self, action: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError { action, path: path.to_owned(), source })
    }
}

/// A store or cache cannot be opened or made.
#[derive(Debug, Error)]
pub enum OpenError {
    /// There is something, but no store.
    #[error(
        "{} is not a {kind}: it has no file {}; give the directory of a {kind}, or an empty or new one to make a {kind} of",
        path.display(), crate::layout::MARKER
    )]
    NotAStore {
        /// Where.
        path: PathBuf,
        /// What it should be.
        kind: Kind,
    },
    /// A cache was given as a store, or the reverse.
    #[error("{} is a {found}, not a {wanted}", path.display())]
    OtherKind {
        /// Where.
        path: PathBuf,
        /// What it should be.
        wanted: Kind,
        /// What it is.
        found: Kind,
    },
    /// The marker is none that this version writes.
    #[error("{} is of another version ({found:?}); this program knows {known:?}", path.display())]
    Version {
        /// Where.
        path: PathBuf,
        /// What the marker says.
        found: String,
        /// What it should say.
        known: String,
    },
    /// The file system does not let us.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A chunk cannot be stored.
#[derive(Debug, Error)]
pub enum PutError {
    /// Chunks have 1 to [`CHUNK_BYTES`] bytes.
    #[error("a chunk of {0} bytes cannot be stored; chunks have 1 to {CHUNK_BYTES}")]
    Length(usize),
    /// The disk is full, or the user's share of it.
    #[error("no room for {need} bytes: free space there or give another directory")]
    Full {
        /// What could not be written.
        need: u64,
        /// Where, and whether it was the disk or the quota.
        #[source]
        source: FileError,
    },
    /// Anything else that the file system says.
    #[error(transparent)]
    File(FileError),
}

impl PutError {
    pub(crate) fn of_chunk(chunk: &Chunk) -> impl Fn(FileError) -> Self + use<> {
        Self::of(usize::try_from(chunk.len).unwrap_or(usize::MAX))
    }

    pub(crate) fn of(need: usize) -> impl Fn(FileError) -> Self {
        move |source| {
            if source.is_full() { Self::Full { need: need as u64, source } } else { Self::File(source) }
        }
    }
}

/// A chunk cannot be read from one place.
#[derive(Debug, Error)]
pub enum GetError {
    /// It is not there.
    #[error("{} is missing", path.display())]
    Missing {
        /// Where it should be.
        path: PathBuf,
    },
    /// The file is too short or too long, or no file.
    #[error("{} has {found} bytes and should have {expected}", path.display())]
    Length {
        /// Which file.
        path: PathBuf,
        /// What a good one has.
        expected: u64,
        /// What this one has.
        found: u64,
    },
    /// The bytes are not those that were written.
    #[error("{} is damaged: its bytes have the digest {found}", path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// What its bytes hash to.
        found: Digest,
    },
    /// The memory is too small.
    #[error("{chunk} does not fit into {room} bytes of memory")]
    Room {
        /// What was to be read.
        chunk: Chunk,
        /// Where to.
        room: usize,
    },
    /// The file system failed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A chunk can be read from no place.
#[derive(Debug, Error)]
#[error(
    "{chunk} cannot be had: {}; put a good copy of it into the store, then repeat the command",
    all(tries)
)]
pub struct LoadError {
    /// Which.
    pub chunk: Chunk,
    /// Why not, for each place that was asked.
    pub tries: Vec<GetError>,
}

fn all(tries: &[GetError]) -> String {
    let with_cause = |error: &GetError| match error {
        GetError::File(file) => format!("{file}: {}", file.source),
        other => other.to_string(),
    };
    if tries.is_empty() {
        return "neither store nor cache was given".to_owned();
    }
    tries.iter().map(with_cause).collect::<Vec<_>>().join("; ")
}

/// A checkpoint's list cannot be made durable. The checkpoint does not count as made.
#[derive(Debug, Error)]
pub enum CommitError {
    /// It names a chunk that was not stored under this lease.
    #[error("the list names {0}, which this writer neither stored nor found in the store")]
    NotStored(Chunk),
    /// The disk is full, or the user's share of it.
    #[error("no room for a list of {need} bytes: free space there or give another directory")]
    Full {
        /// What could not be written.
        need: u64,
        /// Where.
        #[source]
        source: FileError,
    },
    /// Anything else that the file system says.
    #[error(transparent)]
    File(FileError),
}

/// A checkpoint's list cannot be read.
#[derive(Debug, Error)]
pub enum ReadListError {
    /// It can be read and is no good.
    #[error("{} cannot be used", path.display())]
    Format {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: FormatError,
    },
    /// The file is longer than any list.
    #[error("{} has {len} bytes, more than a chunk list can have", path.display())]
    Long {
        /// Which file.
        path: PathBuf,
        /// Its length.
        len: u64,
    },
    /// There is no list where one should be.
    #[error(
        "{} holds no list of a checkpoint (gpu-<pid>.chunks): name the directory that has the lists itself",
        dir.display()
    )]
    None {
        /// Which directory.
        dir: PathBuf,
    },
    /// The file system failed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A collection stopped. What it had set aside is back in place, as far as the file system allowed.
#[derive(Debug, Error)]
pub enum CollectError {
    /// It removes by another rule than the one that was asked for.
    #[error("{} is a {found}; this removes from a {wanted} only", path.display())]
    OtherKind {
        /// Where.
        path: PathBuf,
        /// What it should be.
        wanted: Kind,
        /// What it is.
        found: Kind,
    },
    /// Without a directory nothing would be needed.
    #[error("no directory with checkpoints was given: all of {} would be removed", path.display())]
    NoDirectory {
        /// The store.
        path: PathBuf,
    },
    /// Without all lists nobody knows what is needed.
    #[error("nothing was removed, since without all lists nobody knows what is needed")]
    List(#[from] ReadListError),
    /// A lease nobody here can read may protect anything.
    #[error(
        "nothing was removed: {} is a lease that this version cannot read; remove it if no process uses the store",
        path.display()
    )]
    Lease {
        /// Which.
        path: PathBuf,
    },
    /// The file system failed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A cache cannot be filled.
#[derive(Debug, Error)]
pub enum PrefetchError {
    /// A list cannot be read.
    #[error(transparent)]
    List(#[from] ReadListError),
    /// A chunk cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A chunk cannot be kept.
    #[error(transparent)]
    Put(#[from] PutError),
    /// The file system failed.
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
