//! A server with scripted operations, and a client that takes its time.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use protocol::{
    Answer, Cause, Drain, Exchange, ExportReply, ExportRequest, Failure, InspectRequest, Inventory, Phase,
    QuiesceReply, RemapReply, ReopenReply, Reply, Request, Secret, Transferred, Verb,
};
use shim_core::control::{Descriptors, Limits, Operations, Phases, Server};

/// Longer than anything here takes, shorter than a person's patience.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The secret that `export` takes.
pub(crate) const SECRET: Secret = Secret([7; 16]);

/// What the operations do, and what was asked of them.
#[derive(Default)]
pub(crate) struct Script {
    /// While a sender is held here, `change` tells of its request and waits for a word on its gate.
    held: Mutex<Option<(Sender<Request>, Receiver<()>)>>,
    pub(crate) panics: AtomicBool,
    pub(crate) fails: AtomicBool,
    pub(crate) undrained: AtomicBool,
    pub(crate) poisoned: AtomicBool,
    pub(crate) changes: AtomicU32,
    pub(crate) exports: AtomicU32,
    /// What `export` answers `NotNow` to, so many times.
    pub(crate) not_now: AtomicU32,
    /// Done by the next `export`, before it answers.
    pub(crate) before_export: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    pub(crate) tended: AtomicU32,
    /// The thread that looks after things, as the kernel numbers it.
    worker: AtomicI32,
    /// The byte that the one known secret is made of; 0 for [`SECRET`].
    pub(crate) known: AtomicU8,
    /// Done by the next `inspect`, on the thread that serves all clients.
    pub(crate) during_inspect: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Bytes in an inventory that is asked for without allocations.
    pub(crate) long_inventory: AtomicU32,
    notes: Mutex<Vec<String>>,
}

impl Script {
    pub(crate) fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often the thread that looks after things has gone to sleep, once it has done so.
    pub(crate) fn rests(&self) -> u64 {
        let path = format!("/proc/self/task/{}/status", self.worker.load(Ordering::SeqCst));
        let status = std::fs::read_to_string(path).expect("a thread");
        let mut lines = status.lines();
        let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).expect("a count");
        count.trim().parse().expect("a number")
    }

    /// From now on every change waits; gives the ends on which to hear of it and to let it go on.
    pub(crate) fn hold(&self) -> (Receiver<Request>, Sender<()>) {
        let (told, hear) = channel();
        let (go, gate) = channel();
        *self.held.lock().expect("not poisoned") = Some((told, gate));
        (hear, go)
    }
}

fn failure(cause: Cause) -> Failure {
    Failure { cause, message: format!("scripted {cause:?}"), phase: Phase::Remapped }
}

impl Operations for Script {
    fn inspect(&self, request: InspectRequest) -> Result<Inventory, Failure> {
        let during = self.during_inspect.lock().unwrap_or_else(PoisonError::into_inner).take();
        during.into_iter().for_each(|act| act());
        let padding =
            if request.allocations { 0 } else { self.long_inventory.load(Ordering::Relaxed) as usize };
        let shim_version = "x".repeat(padding);
        Ok(Inventory { shim_version, poisoned: request.allocations, ..Inventory::default() })
    }

    fn change(&self, request: &Request, phases: &Phases) -> Result<Reply, Failure> {
        self.changes.fetch_add(1, Ordering::SeqCst);
        phases.expect(100);
        phases.advance(40);
        if let Some((told, gate)) = self.held.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            // A test that has ended neither listens nor holds anybody up.
            let _ =
                told.send(request.clone()).and_then(|()| gate.recv().map_err(|_| SendError(request.clone())));
        }
        assert!(!self.panics.load(Ordering::SeqCst), "scripted");
        if self.fails.load(Ordering::SeqCst) {
            return Err(failure(Cause::Driver(2)));
        }
        let drain = Drain { drained: !self.undrained.load(Ordering::SeqCst), ..Drain::default() };
        Ok(match request {
            Request::Quiesce(_) => Reply::Quiesce(QuiesceReply { drain }),
            Request::Step(_) => Reply::Step(QuiesceReply { drain }),
            Request::Release(_) => Reply::Release(Transferred { mappings: 3, ..Transferred::default() }),
            Request::Stage(_) => Reply::Stage(()),
            Request::Load(_) => Reply::Load(Transferred { mappings: 4, ..Transferred::default() }),
            Request::Remap(_) => Reply::Remap(RemapReply { imports: 5, mappings: 6 }),
            Request::Reopen(_) => Reply::Reopen(ReopenReply { waiting: 7 }),
            Request::Inspect(_) | Request::Export(_) => unreachable!("changes nothing"),
        })
    }

    fn export(&self, request: ExportRequest) -> Result<(ExportReply, OwnedFd), Failure> {
        self.exports.fetch_add(1, Ordering::SeqCst);
        self.has(&request)?;
        let before = self.before_export.lock().unwrap_or_else(PoisonError::into_inner).take();
        before.into_iter().for_each(|act| act());
        let left = self.not_now.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left.is_ok() {
            return Err(failure(Cause::NotNow));
        }
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        writer.write_all(&request.allocation.0).expect("fits");
        Ok((ExportReply { size: 16 }, reader.into()))
    }

    fn has(&self, request: &ExportRequest) -> Result<(), Failure> {
        let known = match self.known.load(Ordering::SeqCst) {
            0 => SECRET,
            other => Secret([other; 16]),
        };
        if request.secret == known { Ok(()) } else { Err(failure(Cause::Unknown)) }
    }

    fn tend(&self) -> bool {
        self.worker.store(own_tid(), Ordering::SeqCst);
        self.tended.fetch_add(1, Ordering::SeqCst).is_multiple_of(2)
    }

    fn poisoned(&self) -> bool {
        self.poisoned.load(Ordering::SeqCst)
    }

    fn poison(&self) {
        self.poisoned.store(true, Ordering::SeqCst);
    }

    fn note(&self, line: std::fmt::Arguments<'_>) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_string());
    }
}

/// A server of its own for one test. Its threads stay until the test program ends, as in the shim.
pub(crate) struct Target {
    pub(crate) script: &'static Script,
    pub(crate) phases: &'static Phases,
    pub(crate) descriptors: &'static Descriptors,
    pub(crate) name: String,
}

impl Target {
    /// A server under a pid that nobody has.
    pub(crate) fn start(limits: Limits) -> Self {
        static PID: AtomicI32 = AtomicI32::new(1 << 30);
        // Test programs that run at the same time must not meet.
        let pid = PID.fetch_add(1, Ordering::Relaxed) + own_pid() % 100_000 * 100;
        Self::start_as(pid, limits)
    }

    pub(crate) fn start_as(pid: i32, limits: Limits) -> Self {
        let script: &'static Script = Box::leak(Box::default());
        let phases: &'static Phases = Box::leak(Box::default());
        let descriptors: &'static Descriptors = Box::leak(Box::default());
        let name = Server::start(pid, script, phases, descriptors, limits).expect("a server");
        Self { script, phases, descriptors, name }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.name)
    }

    /// Whether somebody who just came is answered.
    pub(crate) fn assert_serves(&self) {
        let inventory = self.client().ask::<protocol::verbs::Inspect>(&InspectRequest { allocations: true });
        assert!(inventory.expect("an inventory").poisoned, "the flag of the request comes back");
    }
}

pub(crate) fn own_pid() -> i32 {
    i32::try_from(std::process::id()).expect("a pid")
}

fn own_tid() -> i32 {
    let thread = std::fs::read_link("/proc/thread-self").expect("a thread");
    let number = thread.file_name().and_then(std::ffi::OsStr::to_str).expect("its number");
    number.parse().expect("a number")
}

/// A client that blocks.
pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    next: u32,
}

impl Client {
    pub(crate) fn connect(name: &str) -> Self {
        let address = SocketAddr::from_abstract_name(name).expect("short");
        let stream = UnixStream::connect_addr(&address).expect("somebody listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        stream.set_write_timeout(Some(PATIENCE)).expect("not zero");
        Self { stream, next: 1 }
    }

    pub(crate) fn ask<V: Verb>(&mut self, request: &V::Request) -> Answer<V> {
        let exchange = self.send::<V>(request);
        self.hear(exchange)
    }

    pub(crate) fn send<V: Verb>(&mut self, request: &V::Request) -> Exchange<V> {
        let exchange = Exchange::<V>::new(self.next, request).expect("a small request");
        self.next += 1;
        self.stream.write_all(exchange.unsent()).expect("the server reads");
        exchange
    }

    pub(crate) fn hear<V: Verb>(&mut self, mut exchange: Exchange<V>) -> Answer<V> {
        let mut buffer = [0; 4096];
        loop {
            let room = exchange.wanted().min(buffer.len());
            let count = self.stream.read(&mut buffer[..room]).expect("an answer in time");
            assert!(count > 0, "closed without an answer");
            if let Some(answer) = exchange.feed(&buffer[..count]).expect("a sound answer") {
                return answer;
            }
        }
    }

    /// Says that nothing more is going to be asked.
    pub(crate) fn end_writing(&self) {
        self.stream.shutdown(std::net::Shutdown::Write).expect("connected");
    }

    /// Reads until the server closes, and gives what came. A reset after it is a close.
    pub(crate) fn read_to_close(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return bytes,
                Ok(count) => bytes.extend(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return bytes,
                Err(error) => panic!("neither bytes nor a close: {error}"),
            }
        }
    }
}

/// The failure in a frame that answers no request.
pub(crate) fn unasked_failure(mut bytes: &[u8]) -> Failure {
    let mut decoder = protocol::Decoder::new(protocol::Side::Client);
    let frame = decoder.feed(&mut bytes).expect("a sound frame").expect("a whole frame");
    assert!(bytes.is_empty(), "nothing follows");
    assert_eq!(frame.header.kind, protocol::FrameKind::Failure);
    assert_eq!(frame.header.id, protocol::UNASKED);
    protocol::decode_failure(&frame.body).expect("a sound failure")
}

/// Runs `client` as a process of its own and gives the bytes that it writes.
pub(crate) fn in_child(client: impl FnOnce(&mut dyn Write)) -> Vec<u8> {
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    // SAFETY: the child makes system calls and allocates, which the C library allows after a fork, and leaves
    // without running anybody's destructors.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client(&mut writer))));
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    drop(writer);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).expect("a pipe");
    // SAFETY: waits for the child just made.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    bytes
}

pub(crate) fn is_root() -> bool {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() == 0 }
}
