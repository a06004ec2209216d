//! The server and its three threads.

use core::time::Duration;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use protocol::{Cause, ExportReply, ExportRequest, Failure, Phase, Reply, Request, VerbKind, socket_names};

use super::descriptors::{Descriptors, Held};
use super::lane::{Job, Lane, Next};
use super::reactor::Reactor;
use super::{Operations, Phases, carry, socket, thread};

/// The bounds of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Clients at a time. One more takes the place of the one that has least to lose.
    pub connections: usize,
    /// For a first request to come, and for any request to arrive whole once it has begun.
    pub receive: Duration,
    /// For a client to take some of its answer.
    pub send: Duration,
    /// For a peer's request to wait before it is answered "not now".
    pub park: Duration,
    /// Bytes of answers that wait to be taken, over all clients. Beyond it nothing long is answered.
    pub unsent: usize,
    /// How often an idle worker looks whether anything is to be looked after.
    pub tend: Duration,
    /// How soon it looks again if there was.
    pub tend_again: Duration,
}

impl Limits {
    /// What the shim uses.
    pub const DEFAULT: Self = Self {
        connections: 64,
        receive: Duration::from_secs(10),
        send: Duration::from_secs(10),
        park: Duration::from_secs(5),
        unsent: 128 << 20,
        tend: Duration::from_secs(5),
        tend_again: Duration::from_secs(1),
    };
}

const CONTROL_STACK: usize = 256 << 10;
/// The verbs run here, and the driver below them.
const WORKER_STACK: usize = 1 << 20;
const PEER_STACK: usize = 512 << 10;

/// What a thread behind a lane has to tell.
pub(super) struct Finished {
    pub(super) connection: u64,
    pub(super) verb: VerbKind,
    pub(super) outcome: Outcome,
}

/// How a request ended.
pub(super) enum Outcome {
    /// An answer, with a descriptor beside it if it is an export.
    Answer(Box<Reply>, Option<Held>),
    /// A failure.
    Failed(Failure),
    /// A peer's request that cannot be answered in the phase that was found after that many changes.
    NotNow(ExportRequest, Failure, u32),
}

/// A server. It lives as long as its process, or until the process forks and the child forgets it.
pub struct Server {
    pid: i32,
    pub(super) operations: &'static dyn Operations,
    pub(super) phases: &'static Phases,
    pub(super) descriptors: &'static Descriptors,
    pub(super) limits: Limits,
    pub(super) changes: Lane,
    pub(super) exports: Lane,
    finished: Mutex<Vec<Finished>>,
}

impl core::fmt::Debug for Server {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Server").field("phases", &self.phases).finish_non_exhaustive()
    }
}

impl Server {
    /// Binds a name for `pid` and starts the threads. Clients may connect when it returns, under the name it
    /// gives.
    pub fn start(
        pid: i32,
        operations: &'static dyn Operations,
        phases: &'static Phases,
        descriptors: &'static Descriptors,
        limits: Limits,
    ) -> io::Result<String> {
        let (listener, name) = bind(pid, descriptors)?;
        let bell = phases.wake.open(descriptors)?;
        // Leaked: detached threads use it until the process ends.
        let server: &'static Self = Box::leak(Box::new(Self {
            pid,
            operations,
            phases,
            descriptors,
            limits,
            changes: Lane::default(),
            exports: Lane::default(),
            finished: Mutex::new(Vec::new()),
        }));
        let started = thread::spawn(c"nvsnap-work", WORKER_STACK, || server.work())
            .and_then(|()| thread::spawn(c"nvsnap-peer", PEER_STACK, || server.hand_out()))
            .and_then(|()| {
                let reactor = Reactor::new(server, listener, bell);
                thread::spawn(c"nvsnap-ctl", CONTROL_STACK, || reactor.run())
            });
        if let Err(error) = started {
            server.changes.close();
            server.exports.close();
            return Err(error);
        }
        Ok(name)
    }

    /// The worker thread: verbs that change something, and between them what has to be looked after.
    fn work(&self) {
        let Limits { tend, tend_again, .. } = self.limits;
        let mut rest = tend;
        loop {
            match self.changes.next(Some(rest)) {
                Next::Job(job) => self.run(job),
                Next::Rested if self.phases.get() == Phase::Running => {
                    // A panic in it poisons the process, and is the last it did.
                    let again = catch_unwind(AssertUnwindSafe(|| self.operations.tend()));
                    rest = if again.unwrap_or_else(|_| self.poison()) { tend_again } else { tend };
                }
                Next::Rested => {}
                Next::Closed => return,
            }
        }
    }

    fn poison(&self) -> bool {
        self.operations.poison();
        false
    }

    /// The peer thread.
    fn hand_out(&self) {
        while let Next::Job(job) = self.exports.next(None) {
            self.run(job);
        }
    }

    fn run(&self, job: Job) {
        let (connection, verb) = (job.connection, job.request.verb());
        let outcome = self.carry_out(job);
        self.lock_finished().push(Finished { connection, verb, outcome });
        self.phases.wake.ring();
    }

    fn carry_out(&self, job: Job) -> Outcome {
        match job.request {
            Request::Export(request) => match carry::export(self.operations, self.phases, request) {
                Ok((reply, descriptor)) => self.handed_out(reply, descriptor),
                Err(failure) if failure.cause == Cause::NotNow => Outcome::NotNow(request, failure, job.seen),
                Err(failure) => Outcome::Failed(failure),
            },
            request => match carry::change(self.operations, self.phases, &request) {
                Ok(reply) => Outcome::Answer(Box::new(reply), None),
                Err(failure) => Outcome::Failed(failure),
            },
        }
    }

    fn handed_out(&self, reply: ExportReply, descriptor: OwnedFd) -> Outcome {
        match self.descriptors.hold(descriptor) {
            Ok(held) => Outcome::Answer(Box::new(Reply::Export(reply)), Some(held)),
            Err(error) => Outcome::Failed(Failure {
                cause: Cause::System(error.raw_os_error().unwrap_or(0)),
                message: format!("process {}: no descriptor to hand out: {error}", std::process::id()),
                phase: self.phases.get(),
            }),
        }
    }

    /// Listens anew.
    pub(super) fn bind(&self) -> io::Result<(Held, String)> {
        bind(self.pid, self.descriptors)
    }

    /// What has been finished since the last call.
    pub(super) fn take_finished(&self) -> Vec<Finished> {
        core::mem::take(&mut self.lock_finished())
    }

    fn lock_finished(&self) -> std::sync::MutexGuard<'_, Vec<Finished>> {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Listens on the first name for `pid` that is free.
fn bind(pid: i32, descriptors: &'static Descriptors) -> io::Result<(Held, String)> {
    for name in socket_names(pid) {
        match socket::listen(&name) {
            Ok(listener) => return Ok((descriptors.hold(listener.into())?, name)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}
