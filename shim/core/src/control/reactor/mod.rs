//! The loop of the control thread: who may speak, who is answered, who has taken too long.

mod door;

use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

use protocol::{
    Cause, ExportRequest, Failure, Frame, FrameError, Request, UNASKED, VerbKind, encode_failure,
};

use super::connection::{Connection, Io, State};
use super::descriptors::Held;
use super::lane::Job;
use super::server::{Finished, Outcome, Server};
use super::{carry, wake};

/// How long to leave the listener alone when there is no descriptor for another client or for the listener.
const SHORTAGE: Duration = Duration::from_millis(200);

/// How long to sleep while other threads work for clients. The bell rings when they are done; should the program
/// have closed it, this is how late that is noticed.
const BELL_CHECK: Duration = Duration::from_secs(1);

/// What `poll` says of a client that has hung up.
const GONE: i16 = libc::POLLHUP | libc::POLLERR | libc::POLLNVAL;

/// Owned by the control thread alone.
pub(super) struct Reactor {
    server: &'static Server,
    listener: Option<Held>,
    bell: Option<Held>,
    connections: Vec<Connection>,
    /// The verb that is being carried out on the worker thread.
    changing: Option<VerbKind>,
    /// How often the phase had changed when parked requests were looked at last.
    seen: u32,
    next_serial: u64,
    /// Until when no client is taken.
    shortage: Option<Instant>,
    /// Bell, listener, and then the connections, each in its place: until `serve` has looked, nobody is swept up.
    polls: Vec<libc::pollfd>,
    buffer: Vec<u8>,
}

impl Reactor {
    pub(super) fn new(server: &'static Server, listener: Held, bell: Held) -> Self {
        Self {
            server,
            listener: Some(listener),
            bell: Some(bell),
            connections: Vec::new(),
            changing: None,
            seen: server.phases.changes(),
            next_serial: 0,
            shortage: None,
            polls: Vec::new(),
            buffer: vec![0; 16 << 10],
        }
    }

    pub(super) fn run(mut self) {
        loop {
            self.replace_lost();
            self.wait();
            let now = Instant::now();
            if let Some(bell) = self.bell.as_ref().filter(|bell| bell.is_ours()) {
                wake::silence(bell);
            }
            self.finish(now);
            self.retry_parked();
            self.serve(now);
            self.expire(now);
            self.accept(now);
        }
    }

    /// Makes listener and bell anew where the program has closed them: it closes what it does not know.
    fn replace_lost(&mut self) {
        if self.shortage.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.shortage = None;
        let server = self.server;
        if !self.bell.as_ref().is_some_and(Held::is_ours) {
            self.bell = server.phases.wake.open(server.descriptors).ok();
        }
        if !self.listener.as_ref().is_some_and(Held::is_ours) {
            // The old one first: it may still hold the name.
            self.listener = None;
            match server.bind() {
                Ok((listener, name)) => {
                    server.operations.note(format_args!("the control socket was lost; listening on @{name}"));
                    self.listener = Some(listener);
                }
                Err(error) => {
                    server.operations.note(format_args!("the control socket was lost: {error}"));
                }
            }
        }
        if self.listener.is_none() || self.bell.is_none() {
            self.shortage = Instant::now().checked_add(SHORTAGE);
        }
    }

    /// Sleeps until something happens or is due. The first two entries of `polls` are bell and listener.
    fn wait(&mut self) {
        let now = Instant::now();
        let entry = |held: Option<&Held>, events| libc::pollfd {
            // A negative number is skipped by `poll`.
            fd: held.map_or(-1, |held| held.as_fd().as_raw_fd()),
            events,
            revents: 0,
        };
        self.polls.clear();
        self.polls.push(entry(self.bell.as_ref(), libc::POLLIN));
        self.polls.push(entry(self.listener.as_ref().filter(|_| self.shortage.is_none()), libc::POLLIN));
        let clients = self.connections.iter().map(|client| entry(Some(client.socket()), client.interest()));
        self.polls.extend(clients);

        let elsewhere = self.connections.iter().any(|client| matches!(client.state, State::Working));
        let elsewhere = (elsewhere || self.changing.is_some()).then_some(BELL_CHECK);
        let due = self.connections.iter().filter_map(|client| client.deadline(&self.server.limits));
        let due =
            due.chain(self.shortage).map(|due| due.saturating_duration_since(now)).chain(elsewhere).min();
        // Rounded up, so that what is due is due when it wakes.
        let timeout = due.map_or(-1, |due| i32::try_from(due.as_millis() + 1).unwrap_or(i32::MAX));
        let count = libc::nfds_t::try_from(self.polls.len()).unwrap_or(0);
        // SAFETY: as many entries as said.
        let result = unsafe { libc::poll(self.polls.as_mut_ptr(), count, timeout) };
        if result < 0 {
            self.polls.iter_mut().for_each(|entry| entry.revents = 0);
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                // More entries than the program's limit on open files allows: make do with fewer clients.
                self.make_room();
                self.shortage = now.checked_add(SHORTAGE);
                // SAFETY: no entries; sleeps for the time given.
                unsafe { libc::poll(core::ptr::null_mut(), 0, 50) };
            }
        }
    }

    /// Answers what the other threads have finished.
    fn finish(&mut self, now: Instant) {
        for Finished { connection, verb, outcome } in self.server.take_finished() {
            if verb.changes() {
                self.changing = None;
            }
            // An asker that has gone is owed nothing; a descriptor for it is closed here.
            let Some(index) = self.connections.iter().position(|client| client.serial == connection) else {
                continue;
            };
            match outcome {
                Outcome::Answer(reply, descriptor) => self.reply(index, &reply, descriptor, now),
                Outcome::Failed(failure) => self.fail(index, &failure, now),
                Outcome::NotNow(request, failure, seen) => self.put_off(index, request, &failure, seen, now),
            }
        }
    }

    /// Parks a peer's request until the phase changes, or answers it if it has waited long enough.
    fn put_off(&mut self, index: usize, request: ExportRequest, failure: &Failure, seen: u32, now: Instant) {
        let Some(client) = self.connections.get_mut(index) else { return };
        let since = client.asked_at();
        if now.saturating_duration_since(since) >= self.server.limits.park {
            return self.fail(index, failure, now);
        }
        client.state = State::Parked { request, since };
        if seen != self.server.phases.changes() {
            self.hand_over_parked(index);
        }
    }

    /// Looks at parked requests again when the phase has changed.
    fn retry_parked(&mut self) {
        let changes = self.server.phases.changes();
        if self.seen == changes {
            return;
        }
        self.seen = changes;
        for index in 0..self.connections.len() {
            self.hand_over_parked(index);
        }
    }

    fn hand_over_parked(&mut self, index: usize) {
        let seen = self.server.phases.changes();
        if self.server.phases.get().after(VerbKind::Export).is_none() {
            return;
        }
        let Some(client) = self.connections.get_mut(index) else { return };
        if let State::Parked { request, .. } = client.state {
            client.state = State::Working;
            let request = Request::Export(request);
            self.server.exports.push(Job { connection: client.serial, request, seen });
        }
    }

    /// Reads from and writes to whoever is ready, each its share.
    fn serve(&mut self, now: Instant) {
        let events = self.polls.iter().skip(2).map(|entry| entry.revents).enumerate();
        let ready: Vec<(usize, i16)> = events.filter(|(_, events)| *events != 0).collect();
        for (index, events) in ready {
            let Some(client) = self.connections.get_mut(index) else { break };
            if !client.socket().is_ours() {
                client.state = State::Closed;
                continue;
            }
            match client.state {
                State::Receiving => self.read(index, now),
                State::Sending(_) => self.write(index, now),
                // Nothing was asked for, so the client has hung up. What is done for it is done all the same.
                State::Working | State::Parked { .. } if events & GONE != 0 => {
                    client.state = State::Closed;
                }
                State::Working | State::Parked { .. } | State::Closed => {}
            }
        }
        self.sweep();
    }

    fn read(&mut self, index: usize, now: Instant) {
        let Some(client) = self.connections.get_mut(index) else { return };
        match client.read(&mut self.buffer, now) {
            Io::Later | Io::Done => {}
            Io::Close => client.state = State::Closed,
            Io::Broken(error) => self.refuse_stream(index, &error, now),
            Io::Request(frame) => self.dispatch(index, &frame, now),
        }
    }

    fn write(&mut self, index: usize, now: Instant) {
        let Some(client) = self.connections.get_mut(index) else { return };
        if let Io::Close = client.write(now) {
            client.state = State::Closed;
        }
    }

    /// The client does not speak our protocol, or not this version: it is told, and let go.
    fn refuse_stream(&mut self, index: usize, error: &FrameError, now: Instant) {
        let cause = match error {
            FrameError::Version { .. } => Cause::Version,
            _ => Cause::BadRequest,
        };
        let message = format!("process {}: {error}", std::process::id());
        let failure = Failure { cause, message, phase: self.server.phases.get() };
        let Some(client) = self.connections.get_mut(index) else { return };
        match encode_failure(0, UNASKED, &failure) {
            Ok(bytes) => client.answer(bytes, None, true, now),
            Err(_) => client.state = State::Closed,
        }
        self.write(index, now);
    }

    fn dispatch(&mut self, index: usize, frame: &Frame, now: Instant) {
        let Some(client) = self.connections.get_mut(index) else { return };
        let connection = client.begin(frame.header.verb, frame.header.id, now);
        match Request::decode(frame) {
            Err(error) => {
                let message = format!("process {}: {error}", std::process::id());
                let phase = self.server.phases.get();
                self.fail(index, &Failure { cause: Cause::BadRequest, message, phase }, now);
            }
            Ok(Request::Inspect(request)) => self.inspect(index, request, now),
            Ok(Request::Export(request)) => {
                client.state = State::Parked { request, since: now };
                let (operations, phases) = (self.server.operations, self.server.phases);
                if phases.get().after(VerbKind::Export).is_none()
                    && let Err(failure) = carry::has(operations, phases, &request)
                {
                    return self.fail(index, &failure, now);
                }
                self.hand_over_parked(index);
            }
            // Whoever undoes what a killed command did may have looked already, and found this process running.
            Ok(_) if client.has_hung_up() => client.state = State::Closed,
            Ok(request) => {
                let (server, verb) = (self.server, request.verb());
                match carry::objection(server.operations, server.phases, verb, self.changing) {
                    Some(failure) => self.fail(index, &failure, now),
                    None => {
                        self.changing = Some(verb);
                        // From here on everybody who looks sees it, also before the worker has taken it up.
                        server.phases.begin(verb);
                        server.changes.push(Job { connection, request, seen: 0 });
                    }
                }
            }
        }
    }

    fn inspect(&mut self, index: usize, request: protocol::InspectRequest, now: Instant) {
        let server = self.server;
        let unsent: usize = self.connections.iter().map(Connection::unsent).sum();
        if unsent > server.limits.unsent {
            let message =
                format!("process {}: too many answers wait to be read by others", std::process::id());
            let phase = server.phases.get();
            return self.fail(index, &Failure { cause: Cause::Busy, message, phase }, now);
        }
        match carry::inspect(server.operations, server.phases, request) {
            Ok(reply) => self.reply(index, &reply, None, now),
            Err(failure) => self.fail(index, &failure, now),
        }
    }

    fn reply(&mut self, index: usize, reply: &protocol::Reply, descriptor: Option<Held>, now: Instant) {
        let Some(client) = self.connections.get_mut(index) else { return };
        match reply.encode(client.id) {
            Ok(bytes) => {
                client.answer(bytes, descriptor, false, now);
                self.write(index, now);
            }
            Err(error) => {
                let message = format!("process {}: {error}", std::process::id());
                let phase = self.server.phases.get();
                self.fail(index, &Failure { cause: Cause::BadRequest, message, phase }, now);
            }
        }
    }

    fn fail(&mut self, index: usize, failure: &Failure, now: Instant) {
        let Some(client) = self.connections.get_mut(index) else { return };
        match encode_failure(client.verb, client.id, failure) {
            Ok(bytes) => client.answer(bytes, None, false, now),
            Err(_) => client.state = State::Closed,
        }
        self.write(index, now);
    }

    /// Lets go of clients that have taken too long, and answers peers that have waited long enough.
    fn expire(&mut self, now: Instant) {
        for index in 0..self.connections.len() {
            let Some(client) = self.connections.get_mut(index) else { break };
            if client.deadline(&self.server.limits).is_none_or(|deadline| now < deadline) {
                continue;
            }
            if let State::Parked { .. } = client.state {
                let phase = self.server.phases.get();
                let message = format!("process {} is {}: ask again", std::process::id(), phase.name());
                self.fail(index, &Failure { cause: Cause::NotNow, message, phase }, now);
            } else {
                client.state = State::Closed;
            }
        }
        self.sweep();
    }

    fn sweep(&mut self) {
        self.connections.retain(|client| !matches!(client.state, State::Closed));
    }
}
