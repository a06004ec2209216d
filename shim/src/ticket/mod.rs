//! Tickets: what an exporter hands out in place of the driver's descriptor.
//!
//! A ticket is one end of a pair of connected sockets, with one message in its queue: a [`Claim`] that names an
//! allocation, its exporter and a secret, and the [`Vault`] in which the driver's descriptor lies. A message that is only
//! looked at stays where it is, so a ticket can be read any number of times, by whoever holds it. The exporter keeps the
//! other end, the line, which hangs up when the last descriptor of the ticket is closed, in whatever process.
//!
//! What a ticket says is a claim of whoever made it. A program can make a socket of this form: it then names an
//! allocation nobody knows, or lacks its secret, and leads to whatever its maker has put into its vault.
//!
//! How it all goes together: docs/SHARING.md.

mod claim;
mod unclaimed;
mod vault;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use protocol::AllocationId;
use shim_core::control::socket;

pub(crate) use claim::Claim;
pub(crate) use unclaimed::unclaimed;
pub(crate) use vault::{Vault, forked};

#[cfg(test)]
pub(crate) use claim::tests::{claim, file, inode, soon};

use crate::kept::Kept;
use vault::Filler;

/// The tickets of one allocation that this process has made, seen from the exporter.
#[derive(Debug)]
pub(crate) struct Ticket {
    /// One for each that was issued and may still be held.
    lines: Vec<Kept>,
    /// The exporter's end of the vault, where there is one.
    filler: Option<Filler>,
}

impl Ticket {
    /// Nothing is issued yet. The second is the vault that will travel along; without one, the tickets lead nowhere once this
    /// process is gone.
    pub(crate) fn new(id: AllocationId) -> (Self, Option<Vault>) {
        let (filler, vault) = match vault::new() {
            Ok((filler, vault)) => (Some(filler), Some(vault)),
            Err(error) => {
                ends_with_us(id, &error);
                (None, None)
            }
        };
        (Self { lines: Vec::new(), filler }, vault)
    }

    /// A ticket for the program: close-on-exec like the driver's descriptor.
    pub(crate) fn issue(&mut self, claim: &Claim, vault: Option<&Vault>) -> io::Result<OwnedFd> {
        self.lines.retain(connected);
        let (line, ticket) = socket::pair()?;
        let sent = socket::send(line.as_fd(), &claim.encode(), vault.and_then(Vault::end));
        if let Err(error) = sent {
            // The user has too many descriptors on their way (`ETOOMANYREFS`), or the program has closed ours.
            ends_with_us(claim.id, &error);
            socket::send(line.as_fd(), &claim.encode(), None)?;
        }
        self.lines.push(Kept::new(line)?);
        Ok(ticket)
    }

    /// Whether anybody holds a descriptor of one. Where that cannot be found out, somebody may.
    pub(crate) fn held(&self) -> bool {
        self.lines.iter().any(connected)
    }

    /// Whether it has a vault to be filled.
    pub(crate) fn has_vault(&self) -> bool {
        self.filler.is_some()
    }

    /// As if the program had closed our end of it.
    #[cfg(test)]
    pub(crate) fn break_vault(&self) {
        if let Some(filler) = &self.filler {
            filler.close();
        }
    }

    /// Puts the driver's descriptor into the vault.
    pub(crate) fn fill(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.filler.as_ref().ok_or_else(vault::gone)?.fill(descriptor)
    }
}

/// Says that the descriptors of an allocation are not as good as the driver's, and what would help.
pub(crate) fn ends_with_us(id: AllocationId, error: &io::Error) {
    log!(
        "allocation {id}: its descriptors do not keep it once this process is gone ({error}); \
         a higher limit of open descriptors (ulimit -n) lets them"
    );
}

fn connected(line: &Kept) -> bool {
    line.get().is_none_or(|line| !socket::has_hung_up(line))
}

/// What the descriptor says, if it is a ticket, and the vault that came with it. Any number may be asked for; what is no
/// socket of this kind is not touched.
pub(crate) fn read(fd: RawFd) -> Option<(Claim, Option<Vault>)> {
    if fd < 0 || socket::option(fd, libc::SO_DOMAIN) != Some(libc::AF_UNIX) {
        return None;
    }
    if socket::option(fd, libc::SO_TYPE) != Some(libc::SOCK_SEQPACKET) {
        return None;
    }
    // SAFETY: a socket a moment ago; a program that closes it while it imports from it could close any descriptor.
    let ticket = unsafe { BorrowedFd::borrow_raw(fd) };
    let mut text = [0_u8; claim::LENGTH + 1];
    let (count, vault) = socket::peek_with_descriptor(ticket, &mut text).ok()?;
    let claim = (count == claim::LENGTH).then(|| text.first_chunk().and_then(Claim::decode))??;
    Some((claim, vault.and_then(|end| Vault::of_ticket(end).ok())))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_ticket_can_be_read_again_and_again_and_brings_its_vault() {
        let (mut ticket, vault) = Ticket::new(claim().id);
        let issued = ticket.issue(&claim(), vault.as_ref()).unwrap();
        ticket.fill(std::fs::File::open("/dev/null").unwrap().as_fd()).unwrap();
        for _ in 0..3 {
            let (read, vault) = read(issued.as_raw_fd()).unwrap();
            assert_eq!(format!("{read:?}"), format!("{:?}", claim()));
            assert!(vault.unwrap().look().is_some());
        }
        drop(ticket);
        let (_, vault) = read(issued.as_raw_fd()).unwrap();
        assert!(vault.unwrap().look().is_some(), "it outlives its exporter");
    }

    #[test]
    fn a_ticket_is_held_while_a_descriptor_of_it_is_open() {
        let (mut ticket, vault) = Ticket::new(claim().id);
        assert!(!ticket.held(), "nobody was given one");
        let first = ticket.issue(&claim(), vault.as_ref()).unwrap();
        assert!(ticket.held());
        let copy = first.try_clone().unwrap();
        drop(first);
        assert!(ticket.held());
        let other = ticket.issue(&claim(), vault.as_ref()).unwrap();
        drop(copy);
        assert!(ticket.held());
        drop(other);
        assert!(soon(|| !ticket.held()));
        // One on its way to somebody is held as well.
        let (here, there) = socket::pair().unwrap();
        let sent = ticket.issue(&claim(), None).unwrap();
        socket::send(here.as_fd(), b"x", Some(sent.as_fd())).unwrap();
        drop(sent);
        assert!(ticket.held());
        drop(there);
        assert!(soon(|| !ticket.held()));
    }

    #[test]
    fn tickets_that_nobody_holds_cost_nothing() {
        let (mut ticket, vault) = Ticket::new(claim().id);
        for _ in 0..100 {
            drop(ticket.issue(&claim(), vault.as_ref()).unwrap());
            assert!(soon(|| !ticket.held()));
        }
        assert_eq!(ticket.lines.len(), 1);
    }

    #[test]
    fn an_issued_ticket_is_close_on_exec() {
        let (mut ticket, _) = Ticket::new(claim().id);
        let issued = ticket.issue(&claim(), None).unwrap();
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::fcntl(issued.as_raw_fd(), libc::F_GETFD) }, libc::FD_CLOEXEC);
    }

    #[test]
    fn what_is_not_whole_and_of_our_form_is_no_ticket() {
        let good = claim().encode();
        let other = [&good[..], b"x"].concat();
        for (text, is) in [(&good[..], true), (&good[1..], false), (&other[..], false), (&[], false)] {
            let (line, ticket) = socket::pair().unwrap();
            socket::send(line.as_fd(), text, None).unwrap();
            assert_eq!(read(ticket.as_raw_fd()).is_some(), is, "{} bytes", text.len());
            assert!(read(line.as_raw_fd()).is_none(), "an empty queue");
        }
        let (stream, end) = std::os::unix::net::UnixStream::pair().unwrap();
        socket::send(stream.as_fd(), &good, None).unwrap();
        assert!(read(end.as_raw_fd()).is_none());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(read(file.as_raw_fd()).is_none());
        assert!(read(-1).is_none() && read(RawFd::MAX).is_none());
    }
}
