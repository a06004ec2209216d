//! Requests over the control sockets.
//!
//! A connection is used for one request. Names prove nothing: before a byte is sent, the credentials of the
//! listener have to be those of the process that is meant. Every wait has a deadline, `connect` included: the
//! queue of a listener that accepts nobody is finite.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use protocol::verbs::Inspect;
use protocol::{Credentials, Decoder, Facts, Frame, InspectRequest, Progress, Side, Unreachable, VerbKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::{Ask, Patience, ShimError, Shims};
use crate::pid::{Pid, Target};
use crate::proc::ProcFs;

/// How long connecting and sending may take.
const SEND_LIMIT: Duration = Duration::from_secs(5);
/// How often a process that moves bytes is asked how far it is.
const GLANCE: Duration = Duration::from_millis(500);
/// How long such a question may take.
const GLANCE_LIMIT: Duration = Duration::from_secs(5);

/// Called with the progress of a process that moves bytes.
pub type Watcher = Box<dyn Fn(Pid, Progress) + Send + Sync>;

/// The control sockets of this network namespace.
pub struct Sockets {
    proc: ProcFs,
    watcher: Option<Watcher>,
}

impl std::fmt::Debug for Sockets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sockets").field("proc", &self.proc).finish_non_exhaustive()
    }
}

/// One request on its way to a process.
#[derive(Clone, Copy)]
struct Errand {
    target: Target,
    verb: VerbKind,
}

impl Errand {
    fn pid(self) -> Pid {
        self.target.pid
    }

    fn late(self, limit: Duration) -> ShimError {
        ShimError::Late { pid: self.pid(), verb: self.verb.name(), limit }
    }

    fn connection(self, source: io::Error) -> ShimError {
        ShimError::Connection { pid: self.pid(), verb: self.verb.name(), source }
    }
}

impl Sockets {
    /// Looks processes up below this proc file system.
    pub fn new(proc: ProcFs) -> Self {
        Self { proc, watcher: None }
    }

    /// Tells `watcher` how far processes that move bytes have come.
    pub fn watched_by(self, watcher: Watcher) -> Self {
        Self { watcher: Some(watcher), ..self }
    }

    /// A connection to the process itself.
    fn connect(&self, errand: Errand, limit: Duration) -> Result<UnixStream, ShimError> {
        let pid = errand.pid();
        let mut taken_by = None;
        if self.proc.lives(errand.target) {
            for name in protocol::socket_names(pid.number()) {
                let stream = match connect_to(&name, limit) {
                    Ok(stream) => stream,
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                    Err(error) if is_timeout(&error) => return Err(errand.late(limit)),
                    Err(error) => return Err(errand.connection(error)),
                };
                let listener = credentials(&stream).map_err(|error| errand.connection(error))?;
                if listener.proves(pid.number()) {
                    return Ok(stream);
                }
                taken_by.get_or_insert(listener);
            }
        }
        Err(Unreachable::from_facts(pid.number(), self.facts(errand.target, taken_by)).into())
    }

    fn facts(&self, target: Target, taken_by: Option<Credentials>) -> Facts {
        let pid = target.pid;
        Facts {
            alive: self.proc.lives(target),
            same_network: self.proc.shares_namespace(pid, "net").ok(),
            same_pid_namespace: self.proc.shares_namespace(pid, "pid").ok(),
            preloaded: self.proc.maps(pid).ok().map(|maps| maps.has_shim()),
            taken_by,
        }
    }

    /// Reads the answer. While nothing comes, looks whether the process lives, and how far it is.
    fn receive(
        &self,
        errand: Errand,
        stream: &mut UnixStream,
        patience: Patience,
    ) -> Result<Frame, ShimError> {
        let mut decoder = Decoder::new(Side::Client);
        let mut buffer = vec![0_u8; 64 * 1024];
        let mut wait = Wait::new(patience);
        loop {
            let slice = wait.slice();
            if !readable(stream, slice).map_err(|error| errand.connection(error))? {
                self.still_worth_it(errand, &mut wait)?;
                continue;
            }
            let wanted = decoder.wanted().min(buffer.len());
            let room = buffer.get_mut(..wanted).unwrap_or_default();
            let count = match stream.read(room) {
                Ok(0) => return Err(self.lost(errand, io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.lost(errand, error)),
            };
            let mut bytes = buffer.get(..count).unwrap_or_default();
            let fed = decoder.feed(&mut bytes);
            let frame = fed.map_err(|source| ShimError::Frame {
                pid: errand.pid(),
                verb: errand.verb.name(),
                source,
            })?;
            if let Some(frame) = frame {
                return Ok(frame);
            }
            // A process that has begun to answer is not at a standstill.
            wait.moved();
        }
    }

    /// Called when a slice of the wait has passed without a byte.
    fn still_worth_it(&self, errand: Errand, wait: &mut Wait) -> Result<(), ShimError> {
        if !self.proc.lives(errand.target) {
            return Err(ShimError::Died { pid: errand.pid(), verb: errand.verb.name() });
        }
        if let Patience::WhileMoving(_) = wait.patience {
            let request = InspectRequest { allocations: false };
            let seen = self.ask_within::<Inspect>(errand.target, &request, GLANCE_LIMIT);
            if let Ok(Some(progress)) = seen.map(|inventory| inventory.progress) {
                if let Some(watcher) = &self.watcher {
                    watcher(errand.pid(), progress);
                }
                wait.seen(progress);
            }
        }
        match (wait.is_over(), wait.patience) {
            (false, _) => Ok(()),
            (true, Patience::For(limit)) => Err(errand.late(limit)),
            (true, Patience::WhileMoving(limit)) => {
                Err(ShimError::Stalled { pid: errand.pid(), verb: errand.verb.name(), limit })
            }
        }
    }

    /// Why a connection broke: the process may be gone.
    fn lost(&self, errand: Errand, error: io::Error) -> ShimError {
        if self.proc.lives(errand.target) {
            errand.connection(error)
        } else {
            ShimError::Died { pid: errand.pid(), verb: errand.verb.name() }
        }
    }
}

impl Shims for Sockets {
    fn exchange(
        &self,
        target: Target,
        verb: VerbKind,
        request: &[u8],
        patience: Patience,
    ) -> Result<Frame, ShimError> {
        let errand = Errand { target, verb };
        let limit = match patience {
            Patience::For(limit) => limit.min(SEND_LIMIT),
            Patience::WhileMoving(_) => SEND_LIMIT,
        };
        let mut stream = self.connect(errand, limit)?;
        match stream.write_all(request) {
            Ok(()) => {}
            // The server refuses some connections before it reads: its reason is there to be read.
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe) => {}
            Err(error) if is_timeout(&error) => return Err(errand.late(limit)),
            Err(error) => return Err(self.lost(errand, error)),
        }
        self.receive(errand, &mut stream, patience)
    }
}

/// How long is left to wait.
struct Wait {
    patience: Patience,
    since: Instant,
    last: Option<Progress>,
}

impl Wait {
    fn new(patience: Patience) -> Self {
        Self { patience, since: Instant::now(), last: None }
    }

    fn moved(&mut self) {
        if matches!(self.patience, Patience::WhileMoving(_)) {
            self.since = Instant::now();
        }
    }

    fn seen(&mut self, progress: Progress) {
        if self.last.replace(progress) != Some(progress) {
            self.moved();
        }
    }

    fn limit(&self) -> Duration {
        match self.patience {
            Patience::For(limit) | Patience::WhileMoving(limit) => limit,
        }
    }

    fn is_over(&self) -> bool {
        self.since.elapsed() >= self.limit()
    }

    fn slice(&self) -> Duration {
        self.limit().saturating_sub(self.since.elapsed()).min(GLANCE)
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Connects to an abstract name. Connecting and every write give up after `limit`.
fn connect_to(name: &str, limit: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    let socket: OwnedFd =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // A time of zero would mean no limit.
    let limit = limit.max(Duration::from_millis(1));
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    rustix::net::connect(&socket, &address)?;
    Ok(UnixStream::from(socket))
}

/// Who listens at the other end. Asked through libc and not rustix, whose pid cannot be 0: that is what the kernel
/// answers for a process of a foreign pid namespace.
fn credentials(stream: &UnixStream) -> io::Result<Credentials> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length: libc::socklen_t =
        size_of::<libc::ucred>().try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the descriptor is open; `peer` has room for `length` bytes, which `length` says.
    let answer = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if answer == 0 {
        Ok(Credentials { pid: peer.pid, uid: peer.uid })
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Waits until something can be read, at most for `time`.
fn readable(stream: &UnixStream, time: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    match poll(&mut fds, Some(&timeout)) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
