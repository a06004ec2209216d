//! File systems with a will of their own, in front of another.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chunkstore::layer::{Access, FileLayer, Open, OpenFile, Rename, Stat, Volume};
use rustix::io::Errno;

/// What a file system does otherwise than the one behind it.
pub trait Will: Send + Sync + fmt::Debug + 'static {
    /// Makes a call, or does not.
    fn around<T>(&self, _changes: bool, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        call()
    }

    /// Looks at direct I/O that is about to happen.
    fn check_direct(&self, _memory: *const u8, _len: usize, _offset: u64) {}

    /// What it says direct I/O must be aligned to.
    fn align(&self) -> usize {
        4096
    }

    /// Whether other machines may write.
    fn is_shared(&self) -> bool {
        false
    }
}

/// Nothing can be changed.
#[derive(Debug)]
pub struct ReadOnly;

impl Will for ReadOnly {
    fn around<T>(&self, changes: bool, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if changes { Err(Errno::ROFS.into()) } else { call() }
    }
}

/// Other machines may write here too.
#[derive(Debug)]
pub struct Shared;

impl Will for Shared {
    fn is_shared(&self) -> bool {
        true
    }
}

/// Direct I/O must be aligned to this, which is told. Else it is a mistake of the caller's.
#[derive(Debug)]
pub struct Coarse(pub usize);

impl Will for Coarse {
    fn check_direct(&self, memory: *const u8, len: usize, offset: u64) {
        assert_eq!(memory.align_offset(self.0), 0, "memory is not aligned to {}", self.0);
        assert_eq!(len % self.0, 0, "a length is not a multiple of {}", self.0);
        assert_eq!(offset % self.0 as u64, 0, "an offset is not a multiple of {}", self.0);
    }

    fn align(&self) -> usize {
        self.0
    }
}

/// The layer: a will in front of another layer.
#[derive(Debug)]
pub struct Wall<L, W> {
    behind: L,
    will: Arc<W>,
}

impl<L, W> Wall<L, W> {
    pub fn new(behind: L, will: W) -> Self {
        Self { behind, will: Arc::new(will) }
    }

    pub fn will(&self) -> &W {
        &self.will
    }
}

impl<L: Clone, W> Clone for Wall<L, W> {
    fn clone(&self) -> Self {
        Self { behind: self.behind.clone(), will: Arc::clone(&self.will) }
    }
}

impl<L: FileLayer, W: Will> FileLayer for Wall<L, W> {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn OpenFile>> {
        // Whether a file system knows O_DIRECT is not at issue here.
        let through_cache = Open { direct: false, ..how };
        let behind =
            self.will.around(how.access != Access::Read, || self.behind.open(path, through_cache))?;
        let direct = AtomicBool::new(how.direct);
        Ok(Box::new(WallFile { behind, will: Arc::clone(&self.will), direct }))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.will.around(false, || self.behind.stat(path))
    }

    fn rename(&self, from: &Path, to: &Path, how: Rename) -> io::Result<()> {
        self.will.around(true, || self.behind.rename(from, to, how))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.will.around(true, || self.behind.link(from, to))
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.will.around(true, || self.behind.unlink(path))
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.will.around(true, || self.behind.make_dir(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.will.around(false, || self.behind.sync_dir(path))
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.will.around(false, || self.behind.list_dir(path))
    }

    fn touch(&self, path: &Path) -> io::Result<()> {
        self.will.around(true, || self.behind.touch(path))
    }

    fn volume(&self, path: &Path) -> io::Result<Volume> {
        let volume = self.will.around(false, || self.behind.volume(path))?;
        Ok(Volume { local: volume.local && !self.will.is_shared(), ..volume })
    }
}

#[derive(Debug)]
struct WallFile<W> {
    behind: Box<dyn OpenFile>,
    will: Arc<W>,
    direct: AtomicBool,
}

impl<W: Will> WallFile<W> {
    fn around<T>(&self, changes: bool, call: impl FnOnce(&dyn OpenFile) -> io::Result<T>) -> io::Result<T> {
        self.will.around(changes, || call(&*self.behind))
    }

    fn check(&self, memory: *const u8, len: usize, offset: u64) {
        if self.direct.load(Ordering::Relaxed) {
            self.will.check_direct(memory, len, offset);
        }
    }
}

impl<W: Will> OpenFile for WallFile<W> {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.check(into.as_ptr(), into.len(), offset);
        self.around(false, |file| file.read_at(into, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.check(bytes.as_ptr(), bytes.len(), offset);
        self.around(true, |file| file.write_at(bytes, offset))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.around(false, |file| file.sync_data())
    }

    fn stat(&self) -> io::Result<Stat> {
        self.around(false, |file| file.stat())
    }

    fn set_buffered(&self) -> io::Result<()> {
        self.direct.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn direct_alignment(&self) -> usize {
        self.will.align()
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.around(false, |file| file.try_lock())
    }
}
