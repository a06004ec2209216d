//! Memory that direct I/O accepts.
//!
//! An [`AlignedBuf`] starts at a page and is a whole number of pages long; from 2 MiB on it starts at a huge page,
//! is a whole number of those, and asks the kernel for them. It holds zeros when made, and pages that nobody wrote
//! take no memory.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// What every buffer is aligned to at least, and what direct I/O is assumed to want where the file system says
/// nothing.
pub const PAGE: usize = 4096;

const HUGE_PAGE: usize = 2 << 20;

/// Memory of a fixed size, aligned for direct I/O.
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
}

impl AlignedBuf {
    /// Zeroed memory of at least `at_least` bytes, and at least a page.
    pub fn new(at_least: usize) -> io::Result<Self> {
        let align = if at_least >= HUGE_PAGE { HUGE_PAGE } else { PAGE };
        let len = at_least.max(1).checked_next_multiple_of(align).ok_or(io::ErrorKind::OutOfMemory)?;
        let reserved = len.checked_add(align - PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            mmap_anonymous(ptr::null_mut(), reserved, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        let base = base.cast::<u8>();
        let skipped = base.align_offset(align);
        let start = base.wrapping_add(skipped);
        unmap(base, skipped);
        unmap(start.wrapping_add(len), reserved - skipped - len);
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        let buffer = Self { start, len };
        if align == HUGE_PAGE {
            // Only speed is lost where there are no huge pages.
            // SAFETY: the range is the mapping just made; the advice does not change what it holds.
            let _ = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxHugepage) };
        }
        Ok(buffer)
    }
}

/// Gives back `len` bytes at `start`: a part of a mapping that this module made and that nothing points into.
fn unmap(start: *mut u8, len: usize) {
    if len > 0 {
        // It fails only where it would have to split more mappings than the system allows; then the address range
        // is lost, which harms nobody.
        // SAFETY: by the contract of this function.
        let _ = unsafe { munmap(start.cast(), len) };
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        unmap(self.start.as_ptr(), self.len);
    }
}

// SAFETY: the memory belongs to this value alone, and no thread has a special claim to a mapping.
unsafe impl Send for AlignedBuf {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for AlignedBuf {}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes from `start` are mapped, initialised by the kernel, and lent out as `self` is.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for AlignedBuf {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes at {:?})", self.len, self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_writable_to_the_last_byte() {
        for size in [0, 1, PAGE, PAGE + 1, HUGE_PAGE - 1, HUGE_PAGE, HUGE_PAGE + 1, 3 * HUGE_PAGE] {
            let mut buffer = AlignedBuf::new(size).unwrap();
            let align = if size >= HUGE_PAGE { HUGE_PAGE } else { PAGE };
            assert!(buffer.len() >= size.max(1));
            assert_eq!(buffer.len() % align, 0);
            assert_eq!(buffer.as_ptr().align_offset(align), 0);
            assert!(crate::is_zero(&buffer));
            buffer.fill(0xa5);
            assert!(buffer.iter().all(|byte| *byte == 0xa5));
        }
    }

    #[test]
    fn a_size_no_machine_has_is_an_error() {
        for size in [usize::MAX, usize::MAX - HUGE_PAGE, isize::MAX as usize] {
            assert!(AlignedBuf::new(size).is_err());
        }
    }

    #[test]
    fn a_dropped_buffer_leaves_no_mapping_behind() {
        let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        let before = mappings();
        for _ in 0..200 {
            drop(AlignedBuf::new(HUGE_PAGE + 1).unwrap());
        }
        // Other tests run beside this one; a leak would leave hundreds.
        assert!(mappings() < before + 100);
    }
}
