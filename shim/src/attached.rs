//! What is kept beside an allocation: the ways to the driver's own descriptor of it, for this process and for others.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use shim_core::world::Attachment;

use crate::kept::Kept;
use crate::ticket::{Claim, Ticket, Vault};

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
    pub(crate) fn keep(&mut self, descriptor: OwnedFd) -> io::Result<()> {
        if self.has_descriptor() {
            return Ok(());
        }
        if let Some(ticket) = self.ticket.as_ref().filter(|ticket| ticket.has_vault()) {
            match ticket.fill(descriptor.as_fd()) {
                Ok(()) => return Ok(()),
                Err(error) => log!("exported memory that ends with this process: {error}"),
            }
        }
        self.descriptor = Some(Kept::new(descriptor)?);
        Ok(())
    }

    /// Keeps that by which it was imported.
    pub(crate) fn imported_by(&mut self, descriptor: Kept, vault: Option<Vault>) {
        self.descriptor = Some(descriptor);
        self.vault = vault;
    }

    /// A ticket for the program.
    pub(crate) fn issue(&mut self, claim: &Claim) -> io::Result<OwnedFd> {
        let mut ticket = match self.ticket.take() {
            Some(ticket) => ticket,
            None => self.first_ticket()?,
        };
        let issued = ticket.issue(claim, self.vault.as_ref());
        self.ticket = Some(ticket);
        issued
    }

    /// What the first ticket needs. What was exported before goes into its vault.
    fn first_ticket(&mut self) -> io::Result<Ticket> {
        let (ticket, vault) = Ticket::new();
        self.vault = vault;
        if let Some(descriptor) = self.descriptor.take() {
            self.ticket = Some(ticket);
            self.keep(descriptor.copy()?)?;
            return self.ticket.take().ok_or_else(|| io::ErrorKind::NotFound.into());
        }
        Ok(ticket)
    }

    /// For a peer: the vault, or else a copy of the driver's descriptor.
    pub(crate) fn lend(&self) -> Option<io::Result<OwnedFd>> {
        match &self.vault {
            Some(vault) if self.stocked() => Some(vault.lend()),
            _ => self.descriptor.as_ref().map(Kept::copy),
        }
    }

    /// Lets go of the driver's descriptor, once the memory is given back to the driver. A vault that others fill is theirs to empty,
    /// unless there is nobody any more.
    pub(crate) fn let_go(&mut self) {
        self.descriptor = None;
        let fills = self.fills();
        if let Some(vault) = self.vault.take_if(|vault| fills || vault.abandoned()) {
            vault.empty();
            self.vault = Some(vault).filter(|_| fills);
        }
    }
}
