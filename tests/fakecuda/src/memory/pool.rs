//! A file without a name that holds the bytes of many allocations, mapped whole.
//!
//! A process has two of its own and one for each process whose memory it imports. The file is sparse and longer than
//! anybody needs. A range that is given back is punched out, so that the host gets its memory and the next owner finds zeros.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Mutex;

use cuda_sys::CuResult;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, fstat, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::{GRANULE, exhausted};
use crate::ranges::Ranges;

/// Bytes of a pool, where the address space is large enough.
const SIZE: usize = 1 << 40;
/// Bytes of a pool at least (under valgrind, say).
const LEAST: usize = 1 << 34;

/// See the module.
#[derive(Debug)]
pub(crate) struct Pool {
    file: OwnedFd,
    identity: (u64, u64),
    base: NonNull<u8>,
    size: usize,
    free: Mutex<Ranges>,
    /// Ranges that only shares keep: the share's number and id, offset, size.
    lent: Mutex<Vec<(usize, u64, usize, usize)>>,
}

// SAFETY: `base` is a mapping that lives as long as the pool; who may touch which of its bytes is the space's business.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

/// What two descriptors of one file have in common.
pub(super) fn identity(file: &OwnedFd) -> CuResult<(u64, u64)> {
    let stat = fstat(file).map_err(exhausted)?;
    Ok((stat.st_dev, stat.st_ino))
}

fn map(file: &OwnedFd, size: usize) -> rustix::io::Result<NonNull<u8>> {
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base =
        unsafe { mmap(std::ptr::null_mut(), size, ProtFlags::READ | ProtFlags::WRITE, flags, file, 0) }?;
    // SAFETY: the mapping just made, whole. That core dumps leave it out is a wish.
    let _ = unsafe { madvise(base, size, Advice::LinuxDontDump) };
    NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)
}

impl Pool {
    pub(super) fn new(name: &str) -> CuResult<Self> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC).map_err(exhausted)?;
        let mut size = SIZE;
        let base = loop {
            ftruncate(&file, crate::args::wide(size)).map_err(exhausted)?;
            match map(&file, size) {
                Ok(base) => break base,
                Err(_) if size > LEAST => size /= 2,
                Err(error) => return Err(exhausted(error)),
            }
        };
        Self::with(file, base, size)
    }

    /// The pool of another process.
    pub(super) fn open(file: OwnedFd) -> CuResult<Self> {
        let size = usize::try_from(fstat(&file).map_err(exhausted)?.st_size).unwrap_or(0);
        let base = map(&file, size).map_err(exhausted)?;
        Self::with(file, base, size)
    }

    fn with(file: OwnedFd, base: NonNull<u8>, size: usize) -> CuResult<Self> {
        Ok(Self {
            identity: identity(&file)?,
            file,
            base,
            size,
            free: Mutex::new(Ranges::new(0, size)),
            lent: Mutex::new(Vec::new()),
        })
    }

    pub(super) fn identity(&self) -> (u64, u64) {
        self.identity
    }

    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Whether a range from elsewhere lies in the pool.
    pub(super) fn contains(&self, offset: usize, size: usize) -> bool {
        offset.checked_add(size).is_some_and(|end| end <= self.size)
    }

    /// A range of zeros.
    pub(super) fn take(&self, size: usize) -> Option<usize> {
        self.take_back_lent();
        crate::lock(&self.free).take(size, GRANULE)
    }

    /// Gives a range back.
    pub(super) fn give(&self, offset: usize, size: usize) {
        self.punch(offset, size);
        crate::lock(&self.free).give(offset, size);
    }

    /// Gives the memory of a range back to the host; the range stays taken.
    pub(super) fn punch(&self, offset: usize, size: usize) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let (from, length) = (crate::args::wide(offset), crate::args::wide(size));
        if let Err(error) = fallocate(self.file.as_fd(), flags, from, length) {
            crate::trace::complain(&format!("memory was not given back to the host: {error}"));
        }
    }

    /// This process is done with a range, but somebody holds its share.
    pub(super) fn lend(&self, share: usize, id: u64, offset: usize, size: usize) {
        crate::lock(&self.lent).push((share, id, offset, size));
    }

    /// Takes back what nobody holds any longer.
    pub(super) fn take_back_lent(&self) {
        let mut lent = crate::lock(&self.lent);
        if lent.is_empty() {
            return;
        }
        let Ok(driver) = crate::driver::driver() else { return };
        lent.retain(|&(share, id, offset, size)| {
            let held = driver.machine.is_held(share, id);
            if !held {
                self.give(offset, size);
            }
            held
        });
    }

    /// Where a byte of the pool is mapped for the stand-in's own use.
    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        self.base.as_ptr().wrapping_add(offset)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the mapping of this pool; whatever refers to its bytes holds the pool.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.size) };
        debug_assert!(unmapped.is_ok());
    }
}
