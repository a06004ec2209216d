//! The descriptors of the server, written down where a forked child finds them without a lock.
//!
//! A child has copies of all of them and must close them: its copy of the listener would keep the parent's name
//! taken, its copy of a connection would keep the client from seeing the parent go. The program may have closed
//! them already and have got the same numbers for files of its own (a daemon closes everything it does not know):
//! so each is known by device and inode too, and what is not ours any more is left alone.

use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::identity::Identity;

/// Listener, wake-up pipe, connections, and descriptors on their way to a peer.
const CAPACITY: usize = 192;

const FREE: RawFd = -1;
const TAKEN: RawFd = -2;

#[derive(Debug)]
struct Slot {
    fd: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

impl Slot {
    const fn new() -> Self {
        Self { fd: AtomicI32::new(FREE), device: AtomicU64::new(0), inode: AtomicU64::new(0) }
    }

    fn take(&self, fd: RawFd, identity: &Identity) -> bool {
        if self.fd.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        self.keep_up(identity);
        self.fd.store(fd, Ordering::Release);
        true
    }

    fn keep_up(&self, identity: &Identity) {
        let (device, inode) = identity.place();
        self.device.store(device, Ordering::Relaxed);
        self.inode.store(inode, Ordering::Relaxed);
    }
}

/// The table of a process's control descriptors. One static in the shim; tests have one each.
#[derive(Debug)]
pub struct Descriptors {
    slots: [Slot; CAPACITY],
}

impl Descriptors {
    /// An empty table.
    pub const fn new() -> Self {
        Self { slots: [const { Slot::new() }; CAPACITY] }
    }

    /// Takes charge of `fd`: moves it above the standard three, marks it close-on-exec, writes it down.
    pub fn hold(&'static self, fd: OwnedFd) -> io::Result<Held> {
        let fd = raise(fd)?;
        let identity = Identity::of(fd.as_raw_fd()).ok_or_else(io::Error::last_os_error)?;
        // A full table costs a forked child one descriptor, nothing else.
        let slot = self.slots.iter().find(|slot| slot.take(fd.as_raw_fd(), &identity));
        Ok(Held { fd: ManuallyDrop::new(fd), identity, slot })
    }

    /// Closes what a forked child has inherited. Takes no lock and allocates nothing.
    pub fn forked(&self) {
        for slot in &self.slots {
            let fd = slot.fd.swap(FREE, Ordering::Acquire);
            let device = slot.device.load(Ordering::Relaxed);
            let inode = slot.inode.load(Ordering::Relaxed);
            if fd >= 0 && Identity::is_at(fd, (device, inode)) {
                // SAFETY: the number still means the file that the parent held; the parent's owner of it lives
                // in a thread that the child does not have, so nobody else closes it.
                drop(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
    }
}

impl Default for Descriptors {
    fn default() -> Self {
        Self::new()
    }
}

/// A descriptor that a forked child will close. Closed on drop, if it still is what it was.
#[derive(Debug)]
pub struct Held {
    fd: ManuallyDrop<OwnedFd>,
    identity: Identity,
    slot: Option<&'static Slot>,
}

impl Held {
    /// Whether the number still means our file: the program may have closed it under us.
    pub fn is_ours(&self) -> bool {
        let ours = self.identity.means(self.fd.as_raw_fd());
        if let Some(slot) = self.slot.filter(|_| ours) {
            // After a restore a forked child finds it under its new inode.
            slot.keep_up(&self.identity);
        }
        ours
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: dropped once, here; nothing uses it afterwards.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
        // Closed first, forgotten second: a fork between the two finds a number that is not ours any more.
        if let Some(slot) = self.slot {
            slot.fd.store(FREE, Ordering::Release);
        }
    }
}

/// Moves a descriptor above 2, where a program that has closed its standard streams never looks for them.
fn raise(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() > 2 {
        return Ok(fd);
    }
    // SAFETY: duplicates a descriptor that we own.
    let raised = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) };
    if raised < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fcntl` just made it, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raised) })
}
