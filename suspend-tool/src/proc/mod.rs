//! What the kernel tells about processes. Reads only; nothing here depends on the process that is read.
//!
//! Everything hangs below one root (`/proc`), so that tests read fixtures.

mod maps;
mod memory;
mod slices;
mod stat;
mod task;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

pub use maps::Maps;
pub use memory::{Bound, HostMemory};
pub use stat::{RunState, Stat};
pub use task::{Task, TaskState};

use crate::pid::{Pid, Target};

/// Why something about a process could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ProcError {
    /// The process is not there, or ended while it was read.
    #[error("there is no process {pid}")]
    Gone {
        /// The process.
        pid: Pid,
    },
    /// The number is that of a thread.
    #[error("{tid} is a thread of process {pid}: name the process")]
    Thread {
        /// The thread.
        tid: Pid,
        /// Its process.
        pid: i32,
    },
    /// It belongs to somebody else.
    #[error("{path} may not be read: run this command as the user of process {pid}, or as root")]
    Denied {
        /// The process.
        pid: Pid,
        /// What was read.
        path: PathBuf,
    },
    /// Reading failed otherwise.
    #[error("cannot read {path}")]
    Read {
        /// What was read.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The file does not look as it should.
    #[error("{path} does not look as expected")]
    Malformed {
        /// What was read.
        path: PathBuf,
    },
}

/// A mounted proc file system.
#[derive(Clone, Debug)]
pub struct ProcFs {
    root: PathBuf,
}

impl Default for ProcFs {
    fn default() -> Self {
        Self::at("/proc")
    }
}

impl ProcFs {
    /// The one mounted at `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// A path below the root.
    fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }

    fn pid_path(&self, pid: Pid, file: &str) -> PathBuf {
        self.root.join(pid.to_string()).join(file)
    }

    fn read(&self, pid: Pid, file: &str) -> Result<Vec<u8>, ProcError> {
        let path = self.pid_path(pid, file);
        std::fs::read(&path).map_err(|error| explain(pid, path, error))
    }

    /// The line of state of a process.
    pub fn stat(&self, pid: Pid) -> Result<Stat, ProcError> {
        let bytes = self.read(pid, "stat")?;
        Stat::parse(&bytes).ok_or_else(|| ProcError::Malformed { path: self.pid_path(pid, "stat") })
    }

    /// Insists that this is a process: the kernel tells of any thread under its number too.
    pub fn is_process(&self, pid: Pid) -> Result<(), ProcError> {
        let status = self.read(pid, "status")?;
        match stat::number(&status, "Tgid") {
            Some(leader) if leader != pid.number() => Err(ProcError::Thread { tid: pid, pid: leader }),
            _ => Ok(()),
        }
    }

    /// The process with its time of start.
    pub fn target(&self, pid: Pid) -> Result<Target, ProcError> {
        Ok(Target { pid, start: self.stat(pid)?.start })
    }

    /// Whether the process is still the one that was meant, and not a zombie.
    pub fn lives(&self, target: Target) -> bool {
        self.stat(target.pid).is_ok_and(|stat| stat.start == target.start && stat.state != RunState::Zombie)
    }

    /// What is mapped into a process, as far as it concerns us.
    pub fn maps(&self, pid: Pid) -> Result<Maps, ProcError> {
        self.read(pid, "maps").map(|bytes| Maps::parse(&bytes))
    }

    /// The effective user of a process.
    pub fn uid(&self, pid: Pid) -> Result<u32, ProcError> {
        let bytes = self.read(pid, "status")?;
        stat::effective_uid(&bytes).ok_or_else(|| ProcError::Malformed { path: self.pid_path(pid, "status") })
    }

    /// Whether the process is in the same namespace of this kind (`pid`, `net`) as the command itself.
    pub fn shares_namespace(&self, pid: Pid, kind: &str) -> Result<bool, ProcError> {
        let theirs = self.pid_path(pid, &format!("ns/{kind}"));
        let ours = self.path(format!("self/ns/{kind}"));
        let their_name = std::fs::read_link(&theirs).map_err(|error| explain(pid, theirs, error))?;
        let our_name = std::fs::read_link(&ours).map_err(|source| ProcError::Read { path: ours, source })?;
        Ok(their_name == our_name)
    }

    /// Paths of the open descriptors of a process that name a device or file whose path starts with `prefix`.
    pub fn descriptors(&self, pid: Pid, prefix: &str) -> Result<Vec<String>, ProcError> {
        let folder = self.pid_path(pid, "fd");
        let entries = std::fs::read_dir(&folder).map_err(|error| explain(pid, folder, error))?;
        // A descriptor that was closed between the listing and the look is not one that stays.
        let links = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        Ok(links
            .filter_map(|link| link.to_str().filter(|name| name.starts_with(prefix)).map(str::to_owned))
            .collect())
    }

    /// All processes.
    pub fn pids(&self) -> Result<Vec<Pid>, ProcError> {
        let entries = std::fs::read_dir(&self.root)
            .map_err(|source| ProcError::Read { path: self.root.clone(), source })?;
        let mut pids: Vec<Pid> =
            entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        pids.sort_unstable();
        Ok(pids)
    }

    /// `root` and every process below it.
    pub fn tree(&self, root: Pid) -> Result<Vec<Pid>, ProcError> {
        self.stat(root)?;
        Ok(below(root, &self.parents()?))
    }

    /// Every process below one of these.
    pub fn descendants(&self, roots: &[Pid]) -> Result<BTreeSet<Pid>, ProcError> {
        let parents = self.parents()?;
        let mut found: BTreeSet<Pid> = BTreeSet::new();
        let mut families: Vec<Pid> = roots.to_vec();
        while !families.is_empty() {
            let is_child = |of: i32| families.iter().any(|parent| parent.number() == of);
            let children = parents.iter().filter(|(_, of)| is_child(*of)).map(|(pid, _)| *pid);
            families = children.filter(|pid| found.insert(*pid)).collect();
        }
        Ok(found)
    }

    /// Each process with its parent.
    fn parents(&self) -> Result<Vec<(Pid, i32)>, ProcError> {
        let pids = self.pids()?.into_iter();
        Ok(pids.filter_map(|pid| self.stat(pid).ok().map(|stat| (pid, stat.parent))).collect())
    }

    /// A variable of the environment that a process was started with.
    pub fn variable(&self, pid: Pid, name: &str) -> Option<String> {
        let bytes = self.read(pid, "environ").ok()?;
        let mut variables = bytes.split(|byte| *byte == 0);
        let value = |variable: &[u8]| {
            let value = variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            Some(String::from_utf8_lossy(value).into_owned())
        };
        variables.find_map(value)
    }

    /// Whether a socket whose path ends so is open in this network namespace.
    pub fn has_socket(&self, end: &str) -> bool {
        let text = std::fs::read(self.path("net/unix")).unwrap_or_default();
        String::from_utf8_lossy(&text).lines().any(|line| line.trim_end().ends_with(end))
    }

    /// The processes whose shims listen in this network namespace.
    pub fn listening(&self) -> Result<Vec<Pid>, ProcError> {
        let path = self.path("net/unix");
        let bytes = std::fs::read(&path).map_err(|source| ProcError::Read { path, source })?;
        // Names of other programs may be any bytes.
        let text = String::from_utf8_lossy(&bytes);
        Ok(protocol::listening_pids(&text).into_iter().filter_map(Pid::new).collect())
    }

    /// The boot this kernel is in: pids and times of start of another one mean nothing.
    pub fn boot_id(&self) -> Result<String, ProcError> {
        let path = self.path("sys/kernel/random/boot_id");
        let text = std::fs::read_to_string(&path).map_err(|source| ProcError::Read { path, source })?;
        Ok(text.trim().to_owned())
    }
}

fn explain(pid: Pid, path: PathBuf, error: io::Error) -> ProcError {
    match error.raw_os_error() {
        // ESRCH: the process ended between open and read.
        Some(libc::ENOENT | libc::ESRCH) => ProcError::Gone { pid },
        Some(libc::EACCES | libc::EPERM) => ProcError::Denied { pid, path },
        _ => ProcError::Read { path, source: error },
    }
}

/// `root` and its descendants, parents before children, from a list of (process, its parent).
fn below(root: Pid, parents: &[(Pid, i32)]) -> Vec<Pid> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        let children = parents.iter().filter(|(_, of)| *of == parent.number()).map(|(pid, _)| *pid);
        let fresh: Vec<Pid> = children.filter(|pid| !found.contains(pid)).collect();
        found.extend(fresh);
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::new(number).unwrap()
    }

    #[test]
    fn a_tree_is_the_root_and_everything_below_it() {
        let parents = [(pid(1), 0), (pid(5), 1), (pid(9), 5), (pid(7), 9), (pid(8), 1), (pid(3), 7)];
        assert_eq!(below(pid(5), &parents), [pid(5), pid(9), pid(7), pid(3)]);
        assert_eq!(below(pid(8), &parents), [pid(8)]);
    }

    #[test]
    fn descendants_of_several_are_found_once_and_without_them() {
        let folder = tempfile::tempdir().unwrap();
        for (pid, parent) in [(5, 1), (9, 5), (7, 9), (8, 1), (3, 8), (4, 3)] {
            let process = folder.path().join(pid.to_string());
            std::fs::create_dir(&process).unwrap();
            let zeros = ["0"; 17].join(" ");
            std::fs::write(process.join("stat"), format!("{pid} (x) S {parent} {zeros} 7 0\n")).unwrap();
        }
        let proc = ProcFs::at(folder.path());
        let found = proc.descendants(&[pid(5), pid(8)]).unwrap();
        assert_eq!(found, [3, 4, 7, 9].map(pid).into());
        assert_eq!(proc.descendants(&[pid(5), pid(9)]).unwrap(), [7, 9].map(pid).into());
    }

    #[test]
    fn a_process_that_is_its_own_ancestor_does_not_hang_the_walk() {
        assert_eq!(below(pid(2), &[(pid(2), 3), (pid(3), 2)]), [pid(2), pid(3)]);
    }

    #[test]
    fn this_process_is_found_with_its_facts() {
        let proc = ProcFs::default();
        let me = pid(i32::try_from(std::process::id()).unwrap());
        let target = proc.target(me).unwrap();
        assert!(proc.lives(target));
        assert!(!proc.lives(Target { start: target.start + 1, ..target }), "a later process of this number");
        assert!(proc.shares_namespace(me, "pid").unwrap());
        assert_eq!(proc.uid(me).unwrap(), rustix::process::geteuid().as_raw());
        assert!(proc.pids().unwrap().contains(&me));
        assert!(proc.tree(me).unwrap().contains(&me));
        assert!(proc.is_process(me).is_ok());
    }

    #[test]
    fn a_thread_is_no_process() {
        let (say, said) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            say.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            ended.recv()
        });
        let error = ProcFs::default().is_process(pid(said.recv().unwrap())).unwrap_err();
        assert!(
            error.to_string().contains(&format!("a thread of process {}:", std::process::id())),
            "{error}"
        );
        drop(end);
        assert!(thread.join().unwrap().is_err());
    }

    #[test]
    fn a_process_that_is_not_there_is_said_to_be_gone() {
        let folder = tempfile::tempdir().unwrap();
        let proc = ProcFs::at(folder.path());
        assert!(matches!(proc.stat(pid(77)), Err(ProcError::Gone { .. })));
        std::fs::create_dir(folder.path().join("77")).unwrap();
        std::fs::write(folder.path().join("77/stat"), "77 (x").unwrap();
        assert!(matches!(proc.stat(pid(77)), Err(ProcError::Malformed { .. })));
    }
}
