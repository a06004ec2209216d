//! Who gets in, and who has to make room.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use protocol::{Cause, Failure, UNASKED, encode_failure};

use super::{Reactor, SHORTAGE};
use crate::control::admit::admit;
use crate::control::connection::Connection;
use crate::control::socket;

/// Clients taken in one round.
const ACCEPT_SHARE: usize = 32;

impl Reactor {
    /// Takes clients that have connected. Last in a round, since it moves the others about.
    pub(super) fn accept(&mut self, now: Instant) {
        if self.shortage.is_some() {
            return;
        }
        for _ in 0..ACCEPT_SHARE {
            let Some(listener) = self.listener.as_ref().filter(|listener| listener.is_ours()) else { return };
            match socket::accept(listener.as_fd()) {
                Ok(client) => self.take(client, now),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR | libc::ECONNABORTED) => {}
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        if !self.make_room() {
                            self.shortage = now.checked_add(SHORTAGE);
                            return;
                        }
                    }
                    _ => return,
                },
            }
        }
    }

    fn take(&mut self, client: OwnedFd, now: Instant) {
        let Ok(credentials) = socket::credentials(client.as_fd()) else { return };
        // SAFETY: no arguments, cannot fail.
        let owner = unsafe { libc::geteuid() };
        if let Err(refusal) = admit(credentials, owner) {
            self.server.operations.note(format_args!(
                "refused process {} of user {}: {refusal}",
                credentials.pid, credentials.uid
            ));
            let message = format!("process {}: {refusal}", std::process::id());
            return self.turn_away(&client, message, Cause::Refused);
        }
        if self.connections.len() >= self.server.limits.connections && !self.make_room() {
            let message = format!("process {} serves too many clients at a time", std::process::id());
            return self.turn_away(&client, message, Cause::Busy);
        }
        if let Ok(socket) = self.server.descriptors.hold(client) {
            self.next_serial += 1;
            self.connections.push(Connection::new(self.next_serial, socket, now));
        }
    }

    /// Tells a client why it is not served. Its socket is new and empty, so the message fits.
    fn turn_away(&self, client: &OwnedFd, message: String, cause: Cause) {
        let failure = Failure { cause, message, phase: self.server.phases.get() };
        if let Ok(bytes) = encode_failure(0, UNASKED, &failure) {
            // A client that does not listen has itself to blame.
            let _ = socket::send(client.as_fd(), &bytes, None);
        }
    }

    /// Closes the connection that has least to lose. Whether there was one.
    pub(super) fn make_room(&mut self) -> bool {
        let worth = self.connections.iter().enumerate();
        let least = worth.filter_map(|(index, client)| Some((client.worth()?, index))).min();
        let Some((_, index)) = least else { return false };
        self.connections.swap_remove(index);
        true
    }
}
