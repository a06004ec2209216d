//! What `/proc` tells about a process that was not reached.

use std::fs;
use std::path::PathBuf;

use protocol::{Credentials, Facts, Unreachable, pid_depth};

/// Why the process `pid` was not reached; `taken_by` listens on its name.
pub(super) fn unreachable(pid: i32, taken_by: Option<Credentials>) -> Unreachable {
    let facts = Facts {
        alive: alive(pid),
        same_network: equal(namespace(&pid.to_string()), namespace("self")),
        same_pid_namespace: equal(depth(&pid.to_string()), depth("self")),
        preloaded: fs::read(format!("/proc/{pid}/maps")).ok().map(|maps| shows_library(&maps)),
        taken_by,
    };
    Unreachable::from_facts(pid, facts)
}

fn equal<T: PartialEq>(theirs: Option<T>, ours: Option<T>) -> Option<bool> {
    Some(theirs? == ours?)
}

fn namespace(process: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/net")).ok()
}

fn depth(process: &str) -> Option<usize> {
    pid_depth(&fs::read_to_string(format!("/proc/{process}/status")).ok()?)
}

/// Whether there is such a process, and not only the entry of a dead one. The state follows the name, which is in
/// parentheses and may hold anything.
fn alive(pid: i32) -> bool {
    fs::read(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        let behind_name = stat.iter().rposition(|byte| *byte == b')').and_then(|end| stat.get(end + 2));
        !matches!(behind_name, Some(b'Z' | b'X') | None)
    })
}

fn shows_library(maps: &[u8]) -> bool {
    const NAME: &[u8] = b"libnvsnap_gpushare";
    maps.windows(NAME.len()).any(|window| window == NAME)
}
