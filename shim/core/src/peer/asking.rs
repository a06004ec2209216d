//! One question to several sockets at once.

use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;

use protocol::{Cause, Exchange, ExportRequest, Failure, verbs};

use super::PeerError;
use crate::control::{Held, socket};

/// What ends the asking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Settle {
    /// The first answer, whatever it is: all sockets are one process's.
    AnyAnswer,
    /// The first yes.
    OnlySuccess,
}

/// How soon a peer that said "not now" is asked again at the earliest. Peers hold such requests themselves.
const AGAIN: Duration = Duration::from_millis(10);

/// The request, on its way to one socket.
struct Asked {
    pid: i32,
    socket: Held,
    exchange: Exchange<verbs::Export>,
    id: u32,
    descriptor: Option<OwnedFd>,
    /// Not to be written before, after a "not now".
    not_before: Option<Instant>,
    /// Whether it has said "not now": it has what is asked for.
    has_it: bool,
}

/// What one socket has come to.
enum State {
    Pending,
    NotNow,
    Success(OwnedFd),
    Failed(PeerError),
}

/// Asks all sockets. Without any, and after a no of all of them, the last no is the answer.
pub(super) fn ask(
    sockets: Vec<(i32, Held)>,
    request: ExportRequest,
    deadline: Instant,
    settle: Settle,
) -> Result<(i32, OwnedFd), PeerError> {
    let mut last = PeerError::Nobody { allocation: request.allocation };
    let mut asked: Vec<Asked> = Vec::new();
    for (pid, socket) in sockets {
        asked.push(Asked::new(pid, socket, &request)?);
    }
    while !asked.is_empty() {
        let now = Instant::now();
        let mut index = 0;
        while let Some(one) = asked.get_mut(index) {
            match one.advance(now) {
                State::Pending => index += 1,
                State::Success(descriptor) => return Ok((one.pid, descriptor)),
                State::NotNow => {
                    one.ask_again(&request, now)?;
                    index += 1;
                }
                State::Failed(error) => {
                    let answered = matches!(error, PeerError::Failed { .. });
                    last = error;
                    if answered && settle == Settle::AnyAnswer {
                        return Err(last);
                    }
                    asked.swap_remove(index);
                }
            }
        }
        let Some(first) = asked.first() else { break };
        if now >= deadline {
            return Err(match (asked.iter().find(|one| one.has_it), settle) {
                (Some(one), _) => PeerError::TimedOut { pid: one.pid },
                (None, Settle::AnyAnswer) => PeerError::TimedOut { pid: first.pid },
                (None, Settle::OnlySuccess) => {
                    PeerError::Silent { allocation: request.allocation, pid: first.pid }
                }
            });
        }
        wait(&asked, now, deadline);
    }
    Err(last)
}

/// Sleeps until a socket is ready or something is due.
fn wait(asked: &[Asked], now: Instant, deadline: Instant) {
    let mut polls: Vec<libc::pollfd> = asked
        .iter()
        .map(|one| {
            // A negative number is skipped: nothing is to be read or written before it is due.
            let fd = one.not_before.map_or_else(|| one.socket.as_fd().as_raw_fd(), |_| -1);
            libc::pollfd { fd, events: one.interest(), revents: 0 }
        })
        .collect();
    let due = asked.iter().filter_map(|one| one.not_before).min().map_or(deadline, |due| due.min(deadline));
    let timeout = i32::try_from(due.saturating_duration_since(now).as_millis() + 1).unwrap_or(i32::MAX);
    let count = libc::nfds_t::try_from(polls.len()).unwrap_or(0);
    // SAFETY: as many entries as said. An interrupted or refused sleep is a short one: the deadline is looked
    // at after it.
    unsafe { libc::poll(polls.as_mut_ptr(), count, timeout) };
}

impl Asked {
    fn new(pid: i32, socket: Held, request: &ExportRequest) -> Result<Self, PeerError> {
        let exchange = exchange(pid, 1, request)?;
        Ok(Self { pid, socket, exchange, id: 1, descriptor: None, not_before: None, has_it: false })
    }

    fn ask_again(&mut self, request: &ExportRequest, now: Instant) -> Result<(), PeerError> {
        // Never 0, which is nobody's request.
        self.id = self.id.checked_add(1).unwrap_or(1);
        self.exchange = exchange(self.pid, self.id, request)?;
        self.descriptor = None;
        self.not_before = now.checked_add(AGAIN);
        self.has_it = true;
        Ok(())
    }

    fn interest(&self) -> i16 {
        if self.exchange.unsent().is_empty() { libc::POLLIN } else { libc::POLLOUT }
    }

    fn advance(&mut self, now: Instant) -> State {
        if self.not_before.is_some_and(|due| now < due) {
            return State::Pending;
        }
        self.not_before = None;
        match self.write().and_then(|()| self.read()) {
            Ok(state) => state,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => State::Pending,
            Err(error) if is_hang_up(&error) => State::Failed(PeerError::Closed { pid: self.pid }),
            Err(source) => State::Failed(PeerError::System { pid: self.pid, source }),
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.exchange.unsent().is_empty() {
            match socket::send(self.socket.as_fd(), self.exchange.unsent(), None) {
                Ok(count) => self.exchange.sent(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The peer wants none of it; it may have left a reason to read.
                Err(error) if is_hang_up(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<State> {
        let mut buffer = [0_u8; 512];
        loop {
            let room = self.exchange.wanted().min(buffer.len());
            let Some(room) = buffer.get_mut(..room) else { return Ok(State::Pending) };
            let (count, descriptor) = match socket::receive_with_descriptor(self.socket.as_fd(), room) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                received => received?,
            };
            self.descriptor = descriptor.or(self.descriptor.take());
            if count == 0 {
                return Ok(State::Failed(PeerError::Closed { pid: self.pid }));
            }
            match self.exchange.feed(room.get(..count).unwrap_or_default()) {
                Ok(None) => {}
                Ok(Some(answer)) => return Ok(self.judge(answer.map(drop))),
                Err(source) => {
                    return Ok(State::Failed(PeerError::Garbled { pid: self.pid, source }));
                }
            }
        }
    }

    fn judge(&mut self, answer: Result<(), Failure>) -> State {
        let pid = self.pid;
        match (answer, self.descriptor.take()) {
            (Ok(()), Some(descriptor)) => State::Success(descriptor),
            (Ok(()), None) => State::Failed(PeerError::NoDescriptor { pid }),
            (Err(failure), _) if failure.cause == Cause::NotNow => State::NotNow,
            (Err(failure), _) => State::Failed(PeerError::Failed { pid, failure }),
        }
    }
}

fn exchange(pid: i32, id: u32, request: &ExportRequest) -> Result<Exchange<verbs::Export>, PeerError> {
    Exchange::new(id, request).map_err(|error| PeerError::System { pid, source: io::Error::other(error) })
}

fn is_hang_up(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use protocol::{AllocationId, Secret};

    use super::*;
    use crate::control::Descriptors;

    #[test]
    fn whoever_says_nothing_is_waited_for_only_by_who_means_that_one() {
        static DESCRIPTORS: Descriptors = Descriptors::new();
        let request = ExportRequest { allocation: AllocationId([1; 16]), secret: Secret([2; 16]) };
        let soon = || Instant::now() + Duration::from_millis(1);
        let (ours, _theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let sockets = || vec![(7, DESCRIPTORS.hold(ours.try_clone().unwrap().into()).unwrap())];
        let meant = ask(sockets(), request, soon(), Settle::AnyAnswer);
        assert!(matches!(meant, Err(PeerError::TimedOut { pid: 7 })), "{meant:?}");
        let one_of_many = ask(sockets(), request, soon(), Settle::OnlySuccess);
        assert!(matches!(one_of_many, Err(PeerError::Silent { pid: 7, .. })), "{one_of_many:?}");
    }
}
