//! The real file system.

use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{self, AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags, StatxFlags};
use rustix::io::Errno;

use super::{Access, FileLayer, Open, OpenFile, Rename, Stat, Volume};
use crate::buffer::PAGE;

/// The real file system, by plain system calls: `errno` of the calling thread is left alone.
#[derive(Clone, Copy, Default, Debug)]
pub struct System;

const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// File systems that only one machine can write to, by the number `statfs` gives.
const LOCAL: [u64; 9] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x794c_7630, // overlay
    0x2fc1_2fc1, // ZFS
    0xf2f5_2010, // F2FS
    0xca45_1a4e, // bcachefs
];

impl FileLayer for System {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn OpenFile>> {
        let mut flags = OFlags::CLOEXEC | OFlags::NOFOLLOW;
        flags |= match how.access {
            // Without NONBLOCK, a pipe that was put in a chunk's place would hold the reader for ever.
            Access::Read => OFlags::RDONLY | OFlags::NONBLOCK,
            Access::Update => OFlags::RDWR | OFlags::NONBLOCK,
            Access::Create => OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL,
        };
        flags.set(OFlags::DIRECT, how.direct);
        let fd = above_standard(uninterrupted(|| fs::open(path, flags, FILE_MODE))?)?;
        Ok(Box::new(SystemFile { fd, direct: how.direct }))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        Ok(stat_of(&fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    fn rename(&self, from: &Path, to: &Path, how: Rename) -> io::Result<()> {
        match how {
            Rename::Replace => fs::renameat(CWD, from, CWD, to)?,
            Rename::Keep => fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?,
        }
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        Ok(fs::linkat(CWD, from, CWD, to, AtFlags::empty())?)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        Ok(fs::unlinkat(CWD, path, AtFlags::empty())?)
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        Ok(fs::mkdirat(CWD, path, Mode::RWXU)?)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let dir = open_dir(path)?;
        match uninterrupted(|| fs::fsync(&dir)) {
            // Some network and user-space file systems cannot sync a directory and keep names durable themselves.
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::BADF) => Ok(()),
            other => Ok(other?),
        }
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::new(open_dir(path)?)? {
            let entry = entry?;
            let name: &CStr = entry.file_name();
            if name != c"." && name != c".." {
                names.push(OsStr::from_bytes(name.to_bytes()).to_owned());
            }
        }
        Ok(names)
    }

    fn touch(&self, path: &Path) -> io::Result<()> {
        let now = fs::Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW };
        let times = fs::Timestamps { last_access: now, last_modification: now };
        Ok(fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn volume(&self, path: &Path) -> io::Result<Volume> {
        let volume = uninterrupted(|| fs::statfs(path))?;
        // Blocks are counted in fragments; where these are not told, they are blocks. FUSE tells a larger block.
        let unit = if volume.f_frsize > 0 { volume.f_frsize } else { volume.f_bsize };
        let unit = u64::try_from(unit).unwrap_or(0);
        // The kind is a 32-bit number that some architectures give with its sign extended.
        let kind = u64::try_from(volume.f_type & 0xffff_ffff).unwrap_or(0);
        Ok(Volume { free: volume.f_bavail.saturating_mul(unit), local: LOCAL.contains(&kind) })
    }
}

fn open_dir(path: &Path) -> Result<OwnedFd, Errno> {
    uninterrupted(|| fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()))
}

/// A program that has closed a standard stream must not write into one of our files when it uses the number.
fn above_standard(fd: OwnedFd) -> Result<OwnedFd, Errno> {
    const LOWEST: i32 = 3;
    if fd.as_raw_fd() >= LOWEST { Ok(fd) } else { rustix::io::fcntl_dupfd_cloexec(&fd, LOWEST) }
}

fn uninterrupted<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

fn stat_of(stat: &fs::Stat) -> Stat {
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
    let nanoseconds = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
    Stat {
        regular: FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile,
        len: u64::try_from(stat.st_size).unwrap_or(0),
        modified: Duration::new(seconds, nanoseconds),
    }
}

#[derive(Debug)]
struct SystemFile {
    fd: OwnedFd,
    direct: bool,
}

impl OpenFile for SystemFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pread(&self.fd, into, offset)?)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pwrite(&self.fd, bytes, offset)?)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(uninterrupted(|| fs::fdatasync(&self.fd))?)
    }

    fn stat(&self) -> io::Result<Stat> {
        Ok(stat_of(&fs::fstat(&self.fd)?))
    }

    fn set_buffered(&self) -> io::Result<()> {
        let flags = fs::fcntl_getfl(&self.fd)?;
        Ok(fs::fcntl_setfl(&self.fd, flags.difference(OFlags::DIRECT))?)
    }

    fn direct_alignment(&self) -> usize {
        if !self.direct {
            return PAGE;
        }
        // Kernels before 6.1 and many file systems say nothing: then a page, which is what disks want at most.
        let said = fs::statx(self.fd.as_fd(), "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
            .ok()
            .filter(|stat| StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::DIOALIGN))
            .map_or(0, |stat| stat.stx_dio_mem_align.max(stat.stx_dio_offset_align));
        usize::try_from(said).ok().and_then(usize::checked_next_power_of_two).unwrap_or(PAGE).max(PAGE)
    }

    fn try_lock(&self) -> io::Result<bool> {
        match uninterrupted(|| fs::flock(&self.fd, FlockOperation::NonBlockingLockExclusive)) {
            Err(Errno::WOULDBLOCK) => Ok(false),
            other => Ok(other.map(|()| true)?),
        }
    }
}
