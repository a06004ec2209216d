//! Looking through all files of a store.

use std::io;
use std::path::PathBuf;

use crate::digest::Digest;
use crate::error::{About, FileError};
use crate::layer::Stat;
use crate::layout::{self, Name, Random};
use crate::store::Store;

/// A chunk's file.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) digest: Digest,
    pub(crate) path: PathBuf,
    pub(crate) stat: Stat,
}

/// All files below `chunks/`.
#[derive(Default, Debug)]
pub(crate) struct Scan {
    /// Chunks under their names.
    pub(crate) chunks: Vec<Entry>,
    /// Chunks that some collector set aside.
    pub(crate) aside: Vec<Entry>,
    /// Files being written, with the lease of the writer.
    pub(crate) temporaries: Vec<(Random, PathBuf, Stat)>,
    /// Files that are none of ours.
    pub(crate) strangers: Vec<PathBuf>,
}

/// Looks through a store. Files that come and go meanwhile may be in it or not.
pub(crate) fn scan(store: &Store) -> Result<Scan, FileError> {
    let mut scan = Scan::default();
    let chunks = layout::chunks_dir(store.root());
    for fan in names(store, &chunks)? {
        let dir = chunks.join(&fan);
        if (0..=u8::MAX).any(|first| *fan == *format!("{first:02x}")) {
            scan.dir(store, &dir)?;
        } else {
            scan.strangers.push(dir);
        }
    }
    Ok(scan)
}

fn names(store: &Store, dir: &std::path::Path) -> Result<Vec<std::ffi::OsString>, FileError> {
    match store.layer().list_dir(dir) {
        // A store without a chunk has no directory for them.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        names => names.about("list", dir),
    }
}

impl Scan {
    fn dir(&mut self, store: &Store, dir: &std::path::Path) -> Result<(), FileError> {
        for name in names(store, dir)? {
            let path = dir.join(&name);
            let stat = match store.layer().stat(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                stat => stat.about("look at", &path)?,
            };
            match layout::read_chunk_name(&name) {
                _ if !stat.regular => self.strangers.push(path),
                Name::Chunk(digest) if path == store.path_of(&digest) => {
                    self.chunks.push(Entry { digest, path, stat });
                }
                Name::Dead(digest) => self.aside.push(Entry { digest, path, stat }),
                Name::Temporary(lease) => self.temporaries.push((lease, path, stat)),
                _ => self.strangers.push(path),
            }
        }
        Ok(())
    }
}
