//! Where the driver's descriptor of shared memory waits for whoever comes to import it.
//!
//! A vault is a pair of connected sockets. The exporter has the end that fills it; the driver's descriptor lies in the queue
//! of the other end, which travels with every ticket and which every importer keeps. What lies in a queue is looked at
//! without being taken, so any number of processes import from it, and the kernel keeps it for as long as anybody holds
//! a ticket, also when the exporter has been killed: that is how long a native descriptor keeps memory.
//!
//! What holds: a vault that is not empty names the memory that all holders share now. It is emptied when that memory is
//! given back to the driver, by the exporter or, where that is gone, by the importers; and the exporter fills it again once it
//! has made the memory again.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use shim_core::control::socket;

use crate::kept::Kept;

/// What lies beside the descriptor. It tells a vault from the driver's own descriptors.
const MARK: [u8; 8] = *b"nvsnapV\0";

/// The exporter's end.
#[derive(Debug)]
pub(super) struct Filler {
    end: Kept,
    _place: Place,
}

/// One of the vaults that a process may have.
#[derive(Debug)]
struct Place;

/// Vaults of this process.
static PLACES: AtomicUsize = AtomicUsize::new(0);

/// Descriptors that the program may open for each vault. What lies in queues counts against the same limit, for all
/// processes of the user together, and whoever is beyond it can send no descriptor any more: eight processes
/// with as many vaults as they may have, and two descriptors in each, use half of it.
const SHARE: u64 = 32;

impl Place {
    fn take() -> io::Result<Self> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: one structure to write to.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        let places = usize::try_from(limit.rlim_cur / SHARE).unwrap_or(usize::MAX);
        let another = |taken: usize| (taken < places).then_some(taken + 1);
        match PLACES.fetch_update(Ordering::AcqRel, Ordering::Relaxed, another) {
            Ok(_) => Ok(Self),
            Err(_) => Err(io::Error::from_raw_os_error(libc::EMFILE)),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        PLACES.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A forked child has none.
pub(crate) fn forked() {
    PLACES.store(0, Ordering::Release);
}

/// The end that the descriptor lies in.
#[derive(Debug)]
pub(crate) struct Vault(Kept);

/// A new and empty vault. Fails where the process has as many as it may have.
pub(super) fn new() -> io::Result<(Filler, Vault)> {
    let place = Place::take()?;
    let (filler, vault) = socket::pair()?;
    Ok((Filler { end: Kept::new(filler)?, _place: place }, Vault(Kept::new(vault)?)))
}

impl Filler {
    /// Puts a descriptor into the empty vault. The kernel refuses it where the user has too many on their way (`ETOOMANYREFS`).
    pub(super) fn fill(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let end = self.end.get().ok_or_else(gone)?;
        socket::send(end, &MARK, Some(descriptor)).map(drop)
    }

    /// As the program does that closes what it does not know.
    #[cfg(test)]
    pub(super) fn close(&self) {
        let Some(end) = self.end.get() else { return };
        let null = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: no pointers; the number is another file's from here on.
        unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&null), std::os::fd::AsRawFd::as_raw_fd(&end)) };
    }
}

impl Vault {
    /// The vault that came with a ticket. It may be empty.
    pub(super) fn of_ticket(end: OwnedFd) -> io::Result<Self> {
        Kept::new(end).map(Self)
    }

    /// What a peer has handed out: a vault with a descriptor in it, or the descriptor itself.
    pub(crate) fn open(received: OwnedFd) -> io::Result<(Kept, Option<Self>)> {
        match look(received.as_fd()) {
            Some(descriptor) => Ok((Kept::new(descriptor)?, Some(Self(Kept::new(received)?)))),
            None => Ok((Kept::new(received)?, None)),
        }
    }

    /// A copy of the descriptor that lies in it.
    pub(crate) fn look(&self) -> Option<OwnedFd> {
        look(self.0.get()?)
    }

    /// Another descriptor of the vault.
    pub(crate) fn lend(&self) -> io::Result<OwnedFd> {
        self.0.copy()
    }

    /// Takes out what lies in it.
    pub(crate) fn empty(&self) {
        if let Some(end) = self.0.get() {
            socket::discard(end);
        }
    }

    /// Whether nobody can fill it any more: its exporter is gone, or has forgotten the memory.
    pub(crate) fn abandoned(&self) -> bool {
        self.0.get().is_some_and(socket::has_hung_up)
    }

    /// The end to send along with a ticket.
    pub(super) fn end(&self) -> Option<BorrowedFd<'_>> {
        self.0.get()
    }
}

fn look(end: BorrowedFd<'_>) -> Option<OwnedFd> {
    let mut mark = [0_u8; MARK.len() + 1];
    let (count, descriptor) = socket::peek_with_descriptor(end, &mut mark).ok()?;
    descriptor.filter(|_| mark.get(..count) == Some(&MARK))
}

/// The program has closed what was ours.
pub(super) fn gone() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADF)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::ticket::{file, inode, soon};

    #[test]
    fn what_lies_in_a_vault_can_be_looked_at_again_and_again_until_it_is_taken_out() {
        let (filler, vault) = new().unwrap();
        assert!(vault.look().is_none());
        let memory = file();
        filler.fill(memory.as_fd()).unwrap();
        for _ in 0..3 {
            let seen = vault.look().unwrap();
            assert_eq!(inode(&seen), inode(&memory));
            // SAFETY: no pointers.
            assert_eq!(unsafe { libc::fcntl(seen.as_raw_fd(), libc::F_GETFD) }, libc::FD_CLOEXEC);
        }
        vault.empty();
        assert!(vault.look().is_none());
        let other = file();
        filler.fill(other.as_fd()).unwrap();
        assert_eq!(inode(vault.look().unwrap()), inode(&other));
    }

    #[test]
    fn a_vault_outlives_its_exporter_and_says_so() {
        let (filler, vault) = new().unwrap();
        let memory = file();
        filler.fill(memory.as_fd()).unwrap();
        assert!(!vault.abandoned());
        drop(filler);
        assert!(soon(|| vault.abandoned()));
        assert_eq!(inode(vault.look().unwrap()), inode(&memory));
        vault.empty();
        assert!(vault.look().is_none() && vault.abandoned());
    }

    #[test]
    fn what_a_peer_hands_out_is_a_vault_or_the_descriptor_itself() {
        let memory = file();
        let (descriptor, vault) = Vault::open(memory.try_clone().unwrap()).unwrap();
        assert_eq!(inode(descriptor.get().unwrap()), inode(&memory));
        assert!(vault.is_none());
        let (filler, vault) = new().unwrap();
        filler.fill(memory.as_fd()).unwrap();
        let (descriptor, same) = Vault::open(vault.lend().unwrap()).unwrap();
        assert_eq!(inode(descriptor.get().unwrap()), inode(&memory));
        same.unwrap().empty();
        assert!(vault.look().is_none());
        // A socket of somebody's with a message and a descriptor of its own is left as it is.
        let (ours, theirs) = socket::pair().unwrap();
        socket::send(ours.as_fd(), b"nvsnapV", Some(memory.as_fd())).unwrap();
        let (_, vault) = Vault::open(theirs.try_clone().unwrap()).unwrap();
        assert!(vault.is_none());
        assert!(socket::peek_with_descriptor(theirs.as_fd(), &mut [0; 9]).unwrap().1.is_some());
    }
}
