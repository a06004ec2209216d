//! Descriptors the shim keeps for as long as an allocation lives, and what a forked child does about them.
//!
//! A child inherits them, and the driver's own would keep the parent's memory alive in it. The child's handler may take
//! no lock and look into no table, so the numbers also stand in a bitmap of atomics.
//!
//! A program may close descriptors it never opened (a daemon closes everything). A number alone is therefore not
//! trusted: a kept descriptor knows its inode, and what is no longer its own is neither used nor closed.

use core::ptr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use shim_core::identity::Identity;

/// The first number that is nobody's standard stream.
const LOWEST: RawFd = 3;
const WORDS: usize = 64;
const PAGE_BITS: usize = WORDS * 64;
/// Pages of the bitmap: up to a million descriptors, the kernel's usual limit. Later ones a child leaves open.
const PAGES: usize = 256;

struct Page([AtomicU64; WORDS]);

static BITMAP: [AtomicPtr<Page>; PAGES] = [const { AtomicPtr::new(ptr::null_mut()) }; PAGES];

/// A descriptor of ours: above the standard streams, close-on-exec, not left to children.
#[derive(Debug)]
pub(crate) struct Kept {
    fd: RawFd,
    identity: Identity,
}

impl Kept {
    /// Keeps `fd`.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: an open descriptor; the command takes a number.
        let fd = match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, LOWEST) } {
            -1 => return Err(io::Error::last_os_error()),
            // SAFETY: `fcntl` just made it.
            copy => unsafe { OwnedFd::from_raw_fd(copy) },
        };
        let identity = Identity::of(fd.as_raw_fd()).ok_or_else(io::Error::last_os_error)?;
        let fd = fd.into_raw_fd();
        mark(fd, true);
        Ok(Self { fd, identity })
    }

    /// The descriptor, or `None` where the program has closed it.
    pub(crate) fn get(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: open, and the file we opened, for the instant in which we looked; a program that closes it right
        // now could close any descriptor of ours.
        self.identity.means(self.fd).then(|| unsafe { BorrowedFd::borrow_raw(self.fd) })
    }

    /// Another descriptor of the same open file.
    pub(crate) fn copy(&self) -> io::Result<OwnedFd> {
        match self.get() {
            Some(fd) => fd.as_fd().try_clone_to_owned(),
            None => Err(io::Error::from_raw_os_error(libc::EBADF)),
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let ours = self.get().is_some();
        mark(self.fd, false);
        if ours {
            // SAFETY: ours, and nobody else's from here on.
            drop(unsafe { OwnedFd::from_raw_fd(self.fd) });
        }
    }
}

/// Closes in a child what the parent keeps. Takes no lock and allocates nothing.
pub(crate) fn forked() {
    for (first, page) in (0..).step_by(PAGE_BITS).zip(&BITMAP) {
        // SAFETY: null, or a page that is never freed.
        let Some(page) = (unsafe { page.load(Ordering::Acquire).as_ref() }) else { continue };
        for (base, word) in (first..).step_by(64).zip(&page.0) {
            let mut bits = word.swap(0, Ordering::AcqRel);
            while bits != 0 {
                let fd: RawFd = base + bits.trailing_zeros().cast_signed();
                // SAFETY: the parent kept it, so it is nobody else's in its copy.
                unsafe { libc::close(fd) };
                bits &= bits - 1;
            }
        }
    }
}

fn mark(fd: RawFd, kept: bool) {
    let Ok(number) = usize::try_from(fd) else { return };
    let Some(slot) = BITMAP.get(number / PAGE_BITS) else { return };
    let Some(word) = page(slot).0.get(number % PAGE_BITS / 64) else { return };
    let bit = 1 << (number % 64);
    if kept {
        word.fetch_or(bit, Ordering::AcqRel);
    } else {
        word.fetch_and(!bit, Ordering::AcqRel);
    }
}

fn page(slot: &'static AtomicPtr<Page>) -> &'static Page {
    let mut found = slot.load(Ordering::Acquire);
    if found.is_null() {
        let new = Box::into_raw(Box::new(Page([const { AtomicU64::new(0) }; WORDS])));
        match slot.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => found = new,
            Err(other) => {
                // SAFETY: nobody else has seen it.
                drop(unsafe { Box::from_raw(new) });
                found = other;
            }
        }
    }
    // SAFETY: not null, and never freed.
    unsafe { &*found }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(fd: RawFd) -> bool {
        let number = usize::try_from(fd).unwrap();
        page(&BITMAP[number / PAGE_BITS]).0[number % PAGE_BITS / 64].load(Ordering::Acquire) >> (number % 64)
            & 1
            == 1
    }

    fn null() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    #[test]
    fn a_kept_descriptor_is_marked_close_on_exec_and_closed_at_the_end() {
        let kept = Kept::new(null()).unwrap();
        let number = kept.fd;
        assert!(number >= LOWEST && marked(number));
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::fcntl(number, libc::F_GETFD) }, libc::FD_CLOEXEC);
        assert!(kept.copy().is_ok());
        drop(kept);
        assert!(!marked(number));
    }

    #[test]
    fn a_number_that_was_reused_is_left_alone() {
        let kept = Kept::new(null()).unwrap();
        let zero: OwnedFd = std::fs::File::open("/dev/zero").unwrap().into();
        // SAFETY: no pointers: what a program does that closes everything and opens files of its own.
        assert_eq!(unsafe { libc::dup2(zero.as_raw_fd(), kept.fd) }, kept.fd);
        assert!(kept.get().is_none() && kept.copy().is_err());
        let number = kept.fd;
        drop(kept);
        let zero = Identity::of(zero.as_raw_fd()).unwrap();
        assert!(zero.means(number), "the program's file is still open");
        // SAFETY: made by the `dup2` above.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }
}
