//! One client: what it has sent, what it is owed, and how long it may take.
//!
//! ```text
//!                whole request               answer                  all written
//!   Receiving --------------> Working -----------------> Sending ----------------> Receiving
//!                                \-- "not now" --> Parked --^                \--> closed, if it broke the stream
//! ```

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use protocol::{Decoder, ExportRequest, Frame, FrameError, Side};

use super::descriptors::Held;
use super::server::Limits;
use super::socket;

/// What a connection is about.
#[derive(Debug)]
pub(super) enum State {
    /// A request is awaited or has begun to arrive.
    Receiving,
    /// A request is being carried out on another thread.
    Working,
    /// A peer's request waits for a phase in which it can be answered.
    Parked { request: ExportRequest, since: Instant },
    /// An answer is being written.
    Sending(Outgoing),
    /// Over: to be swept up.
    Closed,
}

/// An answer on its way.
#[derive(Debug)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    written: usize,
    descriptor: Option<Held>,
    /// Nothing can follow on this connection.
    last: bool,
}

/// What became of reading or writing.
#[derive(Debug)]
pub(super) enum Io {
    /// The socket has, or takes, no more for the time being; or one round's share is used up.
    Later,
    /// A request is whole.
    Request(Frame),
    /// The stream is broken; the client is told why, and that is the end.
    Broken(FrameError),
    /// The answer is written and the next request may come.
    Done,
    /// The client is gone, or there is nothing left to say to it.
    Close,
}

/// What a round of `poll` may read from one client: enough for a request of usual size, and no more than what
/// keeps the others waiting for some microseconds.
const READ_SHARE: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Connection {
    /// Never used twice, unlike a descriptor's number.
    pub(super) serial: u64,
    pub(super) state: State,
    /// The request under way: its verb and its id.
    pub(super) verb: u8,
    pub(super) id: u32,
    socket: Held,
    decoder: Decoder,
    /// Whether a whole request ever came.
    asked: bool,
    /// When bytes last moved in the direction that the state is about, or the state began.
    moved: Instant,
    /// When the request that is arriving began to.
    began: Instant,
}

impl Connection {
    pub(super) fn new(serial: u64, socket: Held, now: Instant) -> Self {
        Self {
            serial,
            state: State::Receiving,
            verb: 0,
            id: 0,
            socket,
            decoder: Decoder::new(Side::Server),
            asked: false,
            moved: now,
            began: now,
        }
    }

    pub(super) fn socket(&self) -> &Held {
        &self.socket
    }

    /// What `poll` is to look for. A client that hangs up is reported in any case.
    pub(super) const fn interest(&self) -> i16 {
        match self.state {
            State::Receiving => libc::POLLIN,
            State::Sending(_) => libc::POLLOUT,
            State::Working | State::Parked { .. } | State::Closed => 0,
        }
    }

    /// Whether the client has closed its side altogether, as one that was killed has.
    pub(super) fn has_hung_up(&self) -> bool {
        socket::has_hung_up(self.socket.as_fd())
    }

    /// Until when something has to happen on it.
    pub(super) fn deadline(&self, limits: &Limits) -> Option<Instant> {
        match &self.state {
            State::Receiving if self.decoder.is_amid() || !self.asked => {
                self.began.checked_add(limits.receive)
            }
            State::Receiving | State::Working | State::Closed => None,
            State::Parked { since, .. } => since.checked_add(limits.park),
            State::Sending(_) => self.moved.checked_add(limits.send),
        }
    }

    /// Bytes that wait to be taken by the client.
    pub(super) fn unsent(&self) -> usize {
        match &self.state {
            State::Sending(out) => out.bytes.len().saturating_sub(out.written),
            _ => 0,
        }
    }

    /// How little is lost when this connection is closed to make room for another: the smaller, the less.
    /// `None` while work is done for it.
    pub(super) fn worth(&self) -> Option<(u8, Instant)> {
        let class = match &self.state {
            State::Receiving if !self.asked => 0,
            State::Receiving => 1,
            State::Sending(_) => 2,
            State::Parked { .. } => 3,
            State::Working => return None,
            State::Closed => 0,
        };
        Some((class, self.moved))
    }

    /// A request came: notes which, and gives the connection's serial number.
    pub(super) fn begin(&mut self, verb: u8, id: u32, now: Instant) -> u64 {
        (self.verb, self.id, self.began) = (verb, id, now);
        self.serial
    }

    /// When the request under way had come.
    pub(super) const fn asked_at(&self) -> Instant {
        self.began
    }

    /// Reads until a request is whole.
    pub(super) fn read(&mut self, buffer: &mut [u8], now: Instant) -> Io {
        let mut share = READ_SHARE;
        while share > 0 {
            // Never a byte of the request after this one: it stays in the socket until this one is answered.
            let wanted = self.decoder.wanted().min(buffer.len());
            let Some(room) = buffer.get_mut(..wanted) else { return Io::Close };
            let count = match socket::receive(self.socket.as_fd(), room) {
                Ok(0) => return Io::Close,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Io::Later,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Io::Close,
            };
            if !self.decoder.is_amid() && self.asked {
                self.began = now;
            }
            self.moved = now;
            share = share.saturating_sub(count);
            let mut bytes = room.get(..count).unwrap_or_default();
            match self.decoder.feed(&mut bytes) {
                Ok(Some(frame)) => {
                    self.asked = true;
                    self.state = State::Working;
                    return Io::Request(frame);
                }
                Ok(None) => {}
                Err(error) => return Io::Broken(error),
            }
        }
        Io::Later
    }

    /// Begins to write an answer.
    pub(super) fn answer(&mut self, bytes: Vec<u8>, descriptor: Option<Held>, last: bool, now: Instant) {
        self.moved = now;
        self.state = State::Sending(Outgoing { bytes, written: 0, descriptor, last });
    }

    /// Writes as much of the answer as the client takes.
    pub(super) fn write(&mut self, now: Instant) -> Io {
        let State::Sending(out) = &mut self.state else { return Io::Later };
        while let Some(rest) = out.bytes.get(out.written..).filter(|rest| !rest.is_empty()) {
            let beside = out.descriptor.as_ref().map(AsFd::as_fd);
            match socket::send(self.socket.as_fd(), rest, beside) {
                Ok(count) => {
                    out.written = out.written.saturating_add(count);
                    // It went with the first byte.
                    out.descriptor = None;
                    self.moved = now;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Io::Later,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Io::Close,
            }
        }
        if out.last {
            return Io::Close;
        }
        self.state = State::Receiving;
        Io::Done
    }
}
