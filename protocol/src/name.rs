//! Names of the control sockets.
//!
//! A process listens on the abstract stream socket `@nvsnap-gpushare.<pid>`. Where that is taken (two processes
//! with equal pids in one network namespace, two restores of one image) a suffix is tried: `.1`, `.2`, up to
//! [`SUFFIXES`]. A name proves nothing: anybody may take one. Who is meant is found out by credentials.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

extern crate alloc;

/// How many names a process tries: the bare one and those with a suffix.
pub const SUFFIXES: u32 = 16;

const PREFIX: &str = "nvsnap-gpushare.";

/// The socket's name without the leading NUL of an abstract address.
pub fn socket_name(pid: i32, suffix: u32) -> String {
    match suffix {
        0 => format!("{PREFIX}{pid}"),
        suffix => format!("{PREFIX}{pid}.{suffix}"),
    }
}

/// All names under which the process may be found, in the order in which they are tried.
pub fn socket_names(pid: i32) -> impl Iterator<Item = String> {
    (0..SUFFIXES).map(move |suffix| socket_name(pid, suffix))
}

/// The pid and the suffix that a name is made of, if it is one of ours.
pub fn parse_socket_name(name: &str) -> Option<(i32, u32)> {
    let rest = name.strip_prefix(PREFIX)?;
    let (pid, suffix) = match rest.split_once('.') {
        Some((pid, suffix)) => (pid, suffix.parse().ok().filter(|suffix| *suffix > 0)?),
        None => (rest, 0),
    };
    let pid = pid.parse().ok().filter(|pid| *pid > 0)?;
    // Numbers have one spelling only: `+7` and `07` are somebody else's.
    (socket_name(pid, suffix) == name).then_some((pid, suffix))
}

/// The pids that something listens for in this network namespace, from the text of `/proc/net/unix`, each once
/// and in ascending order.
pub fn listening_pids(proc_net_unix: &str) -> Vec<i32> {
    let mut pids: Vec<i32> = proc_net_unix.lines().skip(1).filter_map(listening_pid).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// One line: `Num RefCount Protocol Flags Type St Inode Path`. The flag is `__SO_ACCEPTCON` of the kernel; an
/// accepted connection shows the listener's path too, without it.
fn listening_pid(line: &str) -> Option<i32> {
    const ACCEPTS: u32 = 1 << 16;
    let mut fields = line.split_ascii_whitespace();
    let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
    let path = fields.nth(3)?;
    let (pid, _) = parse_socket_name(path.strip_prefix('@')?)?;
    (flags & ACCEPTS != 0).then_some(pid)
}
