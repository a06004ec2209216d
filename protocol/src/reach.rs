//! Whom a client has reached, and why it has not reached whom it meant.
//!
//! The facts are gathered by the client (sockets and `/proc` are its business); what they mean is said here, so
//! that the command and the shims give the same reasons in the same words.

use core::fmt;

/// Who listens on a socket, as `SO_PEERCRED` of the connected socket says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// The pid in the client's pid namespace, 0 if it has none there.
    pub pid: i32,
    /// The effective user when it began to listen.
    pub uid: u32,
}

impl Credentials {
    /// Whether these are the process that is meant. A pid of 0 is a process of a foreign namespace and never
    /// anybody.
    pub const fn proves(self, pid: i32) -> bool {
        self.pid == pid && pid > 0
    }

    /// Whether a process of effective user `uid` may tell this one a secret: it is root, or the same user.
    pub const fn is_trusted_by(self, uid: u32) -> bool {
        self.uid == 0 || self.uid == uid || uid == 0
    }
}

/// What a client has found out about a process that none of its sockets answers for. `None` is "could not be
/// found out".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// Whether `/proc/PID` exists and is no zombie.
    pub alive: bool,
    /// Whether `/proc/PID/ns/net` is the client's own.
    pub same_network: Option<bool>,
    /// Whether the process has just as many pids (`NSpid` of `/proc/PID/status`) as the client.
    pub same_pid_namespace: Option<bool>,
    /// Whether `/proc/PID/maps` shows the library.
    pub preloaded: Option<bool>,
    /// Somebody else who listens on the name.
    pub taken_by: Option<Credentials>,
}

/// Why a process was not reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unreachable {
    /// Who was meant.
    pub pid: i32,
    /// Why it was not reached.
    pub reason: Reason,
}

/// Kinds of not reaching a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// There is no such process, or nobody has waited for the dead one yet.
    NoProcess,
    /// Its pid inside its own namespace is another.
    OtherPidNamespace,
    /// It lives in another network namespace, and abstract sockets do too.
    OtherNetwork,
    /// The library is loaded and does not listen: no `cuInit` has succeeded, or the library is switched off.
    NotListening,
    /// The library is not loaded.
    NoShim,
    /// The library's presence cannot be seen, and nothing listens.
    Silent,
    /// Another process listens on the name.
    NameTaken(Credentials),
}

impl Unreachable {
    /// What `facts` about the process `pid` mean. What explains the silence best comes first.
    pub fn from_facts(pid: i32, facts: Facts) -> Self {
        let reason = if !facts.alive {
            Reason::NoProcess
        } else if facts.same_pid_namespace == Some(false) {
            Reason::OtherPidNamespace
        } else if facts.same_network == Some(false) {
            Reason::OtherNetwork
        } else if facts.preloaded == Some(false) {
            Reason::NoShim
        } else if let Some(owner) = facts.taken_by {
            Reason::NameTaken(owner)
        } else if facts.preloaded == Some(true) {
            Reason::NotListening
        } else {
            Reason::Silent
        };
        Self { pid, reason }
    }
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pid = self.pid;
        match self.reason {
            Reason::NoProcess => write!(f, "process {pid}: there is no such process"),
            Reason::OtherPidNamespace => write!(
                f,
                "process {pid} lives in another pid namespace: run the command inside its container \
                 (for example with nsenter --target {pid} --all)"
            ),
            Reason::OtherNetwork => write!(
                f,
                "process {pid} lives in another network namespace, where its control socket cannot be seen: \
                 run the command inside it (for example with nsenter --target {pid} --net)"
            ),
            Reason::NotListening => write!(
                f,
                "process {pid} has libnvsnap_gpushare.so loaded but does not listen: it has not called cuInit, \
                 or runs with NVSNAP_GPUSHARE=off"
            ),
            Reason::NoShim => {
                write!(
                    f,
                    "process {pid} runs without libnvsnap_gpushare.so: start it with `nvsnap-gpu-suspend run`, or \
                     with the library in LD_PRELOAD"
                )
            }
            Reason::Silent => write!(
                f,
                "process {pid} has no control socket, and whether libnvsnap_gpushare.so is loaded cannot be \
                 seen: run the command as its user or as root"
            ),
            Reason::NameTaken(Credentials { pid: 0, uid }) => write!(
                f,
                "process {pid}: its socket name is taken by a process of user {uid} in another pid namespace"
            ),
            Reason::NameTaken(owner) => write!(
                f,
                "process {pid}: its socket name is taken by process {} of user {}",
                owner.pid, owner.uid
            ),
        }
    }
}

impl core::error::Error for Unreachable {}

/// How many pids a process has, one per namespace it is seen in, from the text of its `/proc/PID/status`.
/// A process in a namespace below one's own has more than oneself.
pub fn pid_depth(status: &str) -> Option<usize> {
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    Some(pids.split_ascii_whitespace().count()).filter(|count| *count > 0)
}
