//! The file system as the store uses it: every call it makes goes through a [`FileLayer`].
//!
//! [`System`] makes the real calls. [`Faulty`] stands in front of another layer and lets chosen calls fail. Tests
//! add layers of their own, such as one that forgets what was not synced.
//!
//! A call is repeated by the layer's user where it was interrupted or did less than asked: layers answer as the
//! system call does.

mod fault;
mod system;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

pub use fault::{BadFault, FaultPlan, Faulty};
pub use system::System;

/// How a file is opened. Symbolic links are not followed, and the descriptor is closed on exec.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open {
    /// What for.
    pub access: Access,
    /// With `O_DIRECT`.
    pub direct: bool,
}

/// What a file is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// To read.
    Read,
    /// To read and to lock: some file systems lock only what may be written.
    Update,
    /// To write a file that must not exist yet, readable by its owner alone.
    Create,
}

/// Whether a rename may take the place of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rename {
    /// The file that was there is gone.
    Replace,
    /// With a file in place it fails, with `EEXIST`.
    Keep,
}

/// What a path leads to. A symbolic link is not followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Whether it is a regular file.
    pub regular: bool,
    /// Bytes.
    pub len: u64,
    /// When it was last written or touched, by the clock of the file system, since 1970.
    pub modified: Duration,
}

/// What a volume says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Volume {
    /// Bytes that may still be written.
    pub free: u64,
    /// Whether only this machine writes there, so that locks and renames are seen at once by everybody.
    pub local: bool,
}

/// A file system.
pub trait FileLayer: Send + Sync + fmt::Debug {
    /// Opens a file.
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn OpenFile>>;
    /// What is at `path`.
    fn stat(&self, path: &Path) -> io::Result<Stat>;
    /// Gives a file another name.
    fn rename(&self, from: &Path, to: &Path, how: Rename) -> io::Result<()>;
    /// Gives a file one name more.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Takes a name away.
    fn unlink(&self, path: &Path) -> io::Result<()>;
    /// Makes a directory that its owner alone may enter.
    fn make_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// The names in a directory, without `.` and `..`.
    fn list_dir(&self, path: &Path) -> io::Result<Vec<OsString>>;
    /// Sets the time of last use to the present.
    fn touch(&self, path: &Path) -> io::Result<()>;
    /// The volume that holds `path`.
    fn volume(&self, path: &Path) -> io::Result<Volume>;
}

/// An open file.
pub trait OpenFile: Send + Sync + fmt::Debug {
    /// Reads at an offset; 0 at the end.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes at an offset.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Makes the bytes durable, and the length.
    fn sync_data(&self) -> io::Result<()>;
    /// What this file is.
    fn stat(&self) -> io::Result<Stat>;
    /// Goes on through the page cache, where the file was opened with `O_DIRECT`.
    fn set_buffered(&self) -> io::Result<()>;
    /// What address, offset and length of direct I/O must be multiples of; a power of two.
    fn direct_alignment(&self) -> usize;
    /// Takes the file's exclusive lock if it is free, and says whether it was. The lock goes with the file.
    fn try_lock(&self) -> io::Result<bool>;
}
