//! Who is served.
//!
//! Root and the process's own user, and only from the process's own pid namespace. The credentials are those of the
//! client when it connected. A pid of 0 is a process that has no pid here (a parent or sibling namespace): it is
//! never anybody, whatever its user. A process of a namespace below ours does have a pid here; it is told by having
//! more pids than we do.

use core::fmt;
use std::fs;

use protocol::{Credentials, pid_depth};

/// Why a client is not served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Another user than root and the process's own.
    User {
        /// Who asks.
        client: u32,
        /// Who is served beside root.
        owner: u32,
    },
    /// Its pid namespace is not ours.
    Namespace,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User { client, owner } => write!(
                f,
                "this process serves root and user {owner}, not user {client}: run the command as one of them"
            ),
            Self::Namespace => f.write_str(
                "this process serves its own pid namespace only: run the command inside its container",
            ),
        }
    }
}

/// Whether a client with these credentials is served by a process of user `owner`.
pub(super) fn admit(client: Credentials, owner: u32) -> Result<(), Refusal> {
    if client.pid <= 0 {
        return Err(Refusal::Namespace);
    }
    if client.uid != 0 && client.uid != owner {
        return Err(Refusal::User { client: client.uid, owner });
    }
    // Without /proc, or with one that hides others, the user has to be enough.
    match (depth(&format!("/proc/{}/status", client.pid)), depth("/proc/self/status")) {
        (Some(theirs), Some(ours)) if theirs > ours => Err(Refusal::Namespace),
        _ => Ok(()),
    }
}

fn depth(path: &str) -> Option<usize> {
    pid_depth(&fs::read_to_string(path).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_pid() -> i32 {
        i32::try_from(std::process::id()).expect("a pid")
    }

    #[test]
    fn root_and_the_owner_are_served_and_nobody_else() {
        let client = |uid| Credentials { pid: own_pid(), uid };
        assert_eq!(admit(client(0), 1000), Ok(()));
        assert_eq!(admit(client(1000), 1000), Ok(()));
        assert_eq!(admit(client(1001), 1000), Err(Refusal::User { client: 1001, owner: 1000 }));
        assert_eq!(admit(client(1001), 0), Err(Refusal::User { client: 1001, owner: 0 }));
    }

    #[test]
    fn pid_zero_is_nobody_not_even_as_root() {
        for pid in [0, -1] {
            assert_eq!(admit(Credentials { pid, uid: 0 }, 0), Err(Refusal::Namespace));
        }
    }
}
