//! What is kept beside an allocation: the ways to the driver's own descriptor of it, for this process and for others.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use protocol::AllocationId;
use shim_core::world::Attachment;

use crate::kept::Kept;
use crate::ticket::{Claim, Ticket, Vault, ends_with_us};

/// What is kept beside an allocation.
#[derive(Debug, Default)]
pub(crate) struct Attached {
    /// The tickets that were handed out.
    ticket: Option<Ticket>,
    /// The driver's own descriptor: the one it was exported to and that is in no vault, or the one it was imported by.
    /// The driver does not export an import again, so this is what an importer has to show to others.
    descriptor: Option<Kept>,
    /// The vault of our tickets, or of those by which it was imported.
    vault: Option<Vault>,
}

impl Attachment for Attached {
    fn held(&self) -> bool {
        self.ticket.as_ref().is_some_and(Ticket::held)
    }
}

impl Attached {
    /// Whether the driver's own descriptor is at hand.
    pub(crate) fn has_descriptor(&self) -> bool {
        self.descriptor.is_some() || self.stocked()
    }

    fn stocked(&self) -> bool {
        self.vault.as_ref().is_some_and(|vault| vault.look().is_some())
    }

    /// Whether somebody may come with a ticket and find an empty vault.
    pub(crate) fn is_missed(&self) -> bool {
        self.held() && self.fills() && !self.stocked()
    }

    /// Whether the vault is ours to fill.
    fn fills(&self) -> bool {
        self.ticket.as_ref().is_some_and(Ticket::has_vault)
    }

    /// Keeps what the driver has just exported, in the vault if there is one. Another thread's that came first stays.
    pub(crate) fn keep(&mut self, id: AllocationId, descriptor: OwnedFd) -> io::Result<()> {
        if self.has_descriptor() {
            return Ok(());
        }
        if let Some(ticket) = self.ticket.as_ref().filter(|ticket| ticket.has_vault()) {
            match ticket.fill(descriptor.as_fd()) {
                Ok(()) => return Ok(()),
                Err(error) => ends_with_us(id, &error),
            }
        }
        self.descriptor = Some(Kept::new(descriptor)?);
        Ok(())
    }

    /// Keeps that by which it was imported. A vault that its exporter has left behind is kept where there is no other.
    pub(crate) fn imported_by(&mut self, descriptor: Kept, vault: Option<Vault>) {
        self.descriptor = Some(descriptor);
        self.vault = vault.or(self.vault.take());
    }

    /// A ticket for the program.
    pub(crate) fn issue(&mut self, claim: &Claim) -> io::Result<OwnedFd> {
        if self.ticket.is_none() {
            let (ticket, vault) = Ticket::new(claim.id);
            (self.ticket, self.vault) = (Some(ticket), vault);
            // What was exported before goes into the vault.
            if let Some(descriptor) = self.descriptor.take() {
                self.keep(claim.id, descriptor.copy()?)?;
            }
        }
        let ticket = self.ticket.as_mut().ok_or(io::ErrorKind::NotFound)?;
        ticket.issue(claim, self.vault.as_ref())
    }

    /// For a peer: the vault, or else a copy of the driver's descriptor.
    pub(crate) fn lend(&self) -> Option<io::Result<OwnedFd>> {
        match &self.vault {
            Some(vault) if self.stocked() => Some(vault.lend()),
            _ => self.descriptor.as_ref().map(Kept::copy),
        }
    }

    /// Lets go of the driver's descriptor, once the memory is given back to the driver. A vault that others fill is theirs to empty,
    /// unless there is nobody any more. Then it is kept as well: a socket that is in nobody's hands, only in a
    /// ticket's queue, is one that CRIU 4.2.1 does not restore.
    pub(crate) fn let_go(&mut self) {
        self.descriptor = None;
        let fills = self.fills();
        self.vault = self.vault.take().filter(|vault| fills || vault.abandoned());
        if let Some(vault) = &self.vault {
            vault.empty();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ticket::{claim, file, inode, soon};

    /// What an importer gets that is lent this.
    fn lent(attached: &Attached) -> (u64, bool) {
        let (descriptor, vault) = Vault::open(attached.lend().unwrap().unwrap()).unwrap();
        (inode(descriptor.get().unwrap()), vault.is_some())
    }

    #[test]
    fn what_was_exported_before_the_first_ticket_goes_into_its_vault_and_comes_again_after_a_release() {
        let mut exporter = Attached::default();
        let (first, second) = (file(), file());
        exporter.keep(claim().id, first.try_clone().unwrap()).unwrap();
        assert_eq!(lent(&exporter), (inode(&first), false));
        let ticket = exporter.issue(&claim()).unwrap();
        assert_eq!(lent(&exporter), (inode(&first), true));
        assert!(exporter.has_descriptor() && !exporter.is_missed());
        exporter.let_go();
        assert!(!exporter.has_descriptor() && exporter.is_missed() && exporter.lend().is_none());
        exporter.keep(claim().id, second.try_clone().unwrap()).unwrap();
        assert_eq!(lent(&exporter), (inode(&second), true));
        drop(ticket);
        assert!(soon(|| !exporter.held()));
        exporter.let_go();
        assert!(!exporter.is_missed(), "nobody can come any more");
    }

    #[test]
    fn an_importer_empties_a_vault_only_where_nobody_else_does() {
        let mut exporter = Attached::default();
        let _ticket = exporter.issue(&claim()).unwrap();
        let memory = file();
        exporter.keep(claim().id, memory.try_clone().unwrap()).unwrap();
        let import = || {
            let mut importer = Attached::default();
            let (descriptor, vault) = Vault::open(exporter.lend().unwrap().unwrap()).unwrap();
            importer.imported_by(descriptor, vault);
            importer
        };
        let (mut one, mut other) = (import(), import());
        one.let_go();
        assert!(exporter.has_descriptor() && !one.has_descriptor());
        drop(exporter);
        let (_, vault) = Vault::open(other.lend().unwrap().unwrap()).unwrap();
        let vault = vault.unwrap();
        assert!(soon(|| vault.abandoned()));
        other.let_go();
        assert!(vault.look().is_none() && !other.has_descriptor());
    }

    /// The program has closed our end of the vault.
    #[test]
    fn what_cannot_be_put_into_the_vault_is_kept_beside_it() {
        let mut exporter = Attached::default();
        let _ticket = exporter.issue(&claim()).unwrap();
        exporter.ticket.as_ref().unwrap().break_vault();
        let memory = file();
        exporter.keep(claim().id, memory.try_clone().unwrap()).unwrap();
        assert!(exporter.has_descriptor());
        assert_eq!(lent(&exporter), (inode(&memory), false));
        exporter.let_go();
        assert!(!exporter.has_descriptor());
    }
}
