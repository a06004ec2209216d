//! The client side of what a process asks of its peers: a descriptor for an allocation.
//!
//! A name proves nothing, so who listens is found out by `SO_PEERCRED`: the pid has to be the one that is meant, and
//! the user one that may be told a secret. Where several sockets of one pid listen (a child that was forked
//! behind our back may have kept one that nobody serves), all are asked, and the first that answers counts.
//! A peer that cannot answer in its phase keeps the request until it can; whoever is told "not now" asks again.

mod asking;
mod diagnose;

use core::time::Duration;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use protocol::{
    AllocationId, Credentials, ExchangeError, ExportRequest, Failure, Secret, Unreachable, listening_pids,
    socket_names,
};

use crate::control::{Descriptors, Held, socket};
use asking::{Settle, ask};

/// Why a peer handed out nothing.
#[derive(Debug)]
pub enum PeerError {
    /// It was not reached.
    Unreachable(Unreachable),
    /// It listens as a user that is told no secret.
    OtherUser {
        /// Who was meant.
        pid: i32,
        /// Whose it is.
        uid: u32,
    },
    /// It said no.
    Failed {
        /// Who.
        pid: i32,
        /// Why.
        failure: Failure,
    },
    /// It did not answer in time, or not with more than "not now".
    TimedOut {
        /// Who.
        pid: i32,
    },
    /// Nobody who answers has it, and this one does not answer: it is stopped, or frozen as a whole. One that is suspended
    /// does.
    Silent {
        /// Which.
        allocation: AllocationId,
        /// Who.
        pid: i32,
    },
    /// It closed the connection without an answer.
    Closed {
        /// Who.
        pid: i32,
    },
    /// What it answered makes no sense.
    Garbled {
        /// Who.
        pid: i32,
        /// What is wrong with it.
        source: ExchangeError,
    },
    /// It said yes, and no descriptor came.
    NoDescriptor {
        /// Who.
        pid: i32,
    },
    /// Nobody who listens here has the allocation.
    Nobody {
        /// Which.
        allocation: AllocationId,
    },
    /// The system said no.
    System {
        /// Who was meant.
        pid: i32,
        /// What it said.
        source: io::Error,
    },
}

impl core::fmt::Display for PeerError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Unreachable(why) => why.fmt(f),
            Self::OtherUser { pid, uid } => {
                write!(f, "process {pid} runs as user {uid}, which is neither root nor this process's user")
            }
            Self::Failed { failure, .. } => failure.fmt(f),
            Self::TimedOut { pid } => write!(f, "process {pid} has not handed it out in time"),
            Self::Silent { allocation, pid } => write!(
                f,
                "no process here has allocation {allocation}, except perhaps process {pid}, which does not answer"
            ),
            Self::Closed { pid } => write!(f, "process {pid} closed the connection without an answer"),
            Self::Garbled { pid, .. } => write!(f, "the answer of process {pid} cannot be understood"),
            Self::NoDescriptor { pid } => write!(
                f,
                "process {pid} handed out a descriptor that did not arrive: the limit on open files may be reached"
            ),
            Self::Nobody { allocation } => write!(f, "no process here has allocation {allocation}"),
            Self::System { pid, .. } => write!(f, "process {pid} cannot be asked"),
        }
    }
}

impl core::error::Error for PeerError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Garbled { source, .. } => Some(source),
            Self::System { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// How often a connection that is closed without an answer is made anew: the peer may have had to bind its socket
/// again, or to make room.
const ATTEMPTS: u32 = 3;

/// How long one socket may take to be connected to, when many are tried.
const CONNECT: Duration = Duration::from_millis(200);

/// Asks process `pid` for a descriptor of an allocation; asks again while it answers "not now".
pub fn export(
    pid: i32,
    allocation: AllocationId,
    secret: Secret,
    deadline: Instant,
    descriptors: &'static Descriptors,
) -> Result<OwnedFd, PeerError> {
    let request = ExportRequest { allocation, secret };
    let mut attempt = 1;
    loop {
        let sockets = reach(pid, deadline, descriptors)?;
        let asked = sockets.into_iter().map(|socket| (pid, socket)).collect();
        match ask(asked, request, deadline, Settle::AnyAnswer) {
            Ok((_, descriptor)) => return Ok(descriptor),
            Err(PeerError::Closed { .. }) if attempt < ATTEMPTS => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Asks every process that listens here, except this one, for an allocation whose exporter is gone. Tells who had
/// it. Processes that have nothing to do with it are asked as well, so that one of them which is silent is no reason to ask
/// again.
pub fn find(
    allocation: AllocationId,
    secret: Secret,
    deadline: Instant,
    descriptors: &'static Descriptors,
) -> Result<(i32, OwnedFd), PeerError> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let text = fs::read("/proc/net/unix").map_err(|source| PeerError::System { pid: own, source })?;
    let pids = listening_pids(&String::from_utf8_lossy(&text)).into_iter().filter(|pid| *pid != own);
    let asked: Vec<(i32, Held)> = pids
        .flat_map(|pid| {
            // One that cannot be reached is not the one that is looked for, or cannot be helped.
            let soon = deadline.min(Instant::now() + CONNECT);
            reach(pid, soon, descriptors).unwrap_or_default().into_iter().map(move |socket| (pid, socket))
        })
        .collect();
    match ask(asked, ExportRequest { allocation, secret }, deadline, Settle::OnlySuccess) {
        Ok(found) => Ok(found),
        Err(error @ (PeerError::TimedOut { .. } | PeerError::Silent { .. })) => Err(error),
        Err(_) => Err(PeerError::Nobody { allocation }),
    }
}

/// Connects to every socket that process `pid` listens on. At least one, else it is said why not.
fn reach(pid: i32, deadline: Instant, descriptors: &'static Descriptors) -> Result<Vec<Held>, PeerError> {
    let mut reached = Vec::new();
    let mut taken_by = None;
    let mut trouble = None;
    for name in socket_names(pid) {
        let wait = deadline.saturating_duration_since(Instant::now());
        match prove(&name, wait) {
            Ok((socket, owner)) if owner.proves(pid) => {
                if !owner.is_trusted_by(effective_user()) {
                    return Err(PeerError::OtherUser { pid, uid: owner.uid });
                }
                let held = descriptors.hold(socket);
                reached.push(held.map_err(|source| PeerError::System { pid, source })?);
            }
            Ok((_, stranger)) => taken_by = taken_by.or(Some(stranger)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => trouble = Some(error),
        }
    }
    match trouble {
        _ if !reached.is_empty() => Ok(reached),
        Some(error) if error.kind() == io::ErrorKind::WouldBlock => Err(PeerError::TimedOut { pid }),
        Some(source) => Err(PeerError::System { pid, source }),
        None => Err(PeerError::Unreachable(diagnose::unreachable(pid, taken_by))),
    }
}

fn prove(name: &str, wait: Duration) -> io::Result<(OwnedFd, Credentials)> {
    let socket = socket::connect(name, wait)?;
    let owner = socket::credentials(socket.as_fd())?;
    Ok((socket, owner))
}

fn effective_user() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() }
}
