//! How much host memory can still be filled: by the system, and by the control group of a process.

use std::path::{Path, PathBuf};

use super::{ProcError, ProcFs};
use crate::pid::Pid;

/// A bound on host memory, and who shares it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Bound {
    /// The control group whose limit it is, or `None` for the whole system. All processes with an equal name
    /// share the bound.
    pub group: Option<PathBuf>,
    /// Bytes that can still be filled.
    pub available: u64,
}

/// Host memory as the kernel reports it.
#[derive(Clone, Debug)]
pub struct HostMemory<'a> {
    proc: &'a ProcFs,
    cgroups: PathBuf,
}

impl<'a> HostMemory<'a> {
    /// Reads below this proc file system and the control groups where they are usually mounted.
    pub fn new(proc: &'a ProcFs) -> Self {
        Self::with_groups(proc, "/sys/fs/cgroup")
    }

    /// Reads control groups below `cgroups`.
    pub fn with_groups(proc: &'a ProcFs, cgroups: impl Into<PathBuf>) -> Self {
        Self { proc, cgroups: cgroups.into() }
    }

    /// What the system could still give out (`MemAvailable`).
    pub fn system(&self) -> Result<Bound, ProcError> {
        let path = self.proc.path("meminfo");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) => return Err(ProcError::Read { path, source }),
        };
        match mem_available(&text) {
            Some(available) => Ok(Bound { group: None, available }),
            None => Err(ProcError::Malformed { path }),
        }
    }

    /// The limits of the control groups that a process is in, outermost first. A group without a limit is no
    /// bound, and neither is one that cannot be read: it lies outside of the part that is mounted here.
    pub fn groups(&self, pid: Pid) -> Vec<Bound> {
        let Ok(text) = self.proc.read(pid, "cgroup") else { return Vec::new() };
        let text = String::from_utf8_lossy(&text);
        let mut bounds = Vec::new();
        for line in text.lines() {
            let mut parts = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
                continue;
            };
            if controllers.is_empty() {
                bounds.extend(along(&self.cgroups, path, "memory.max", "memory.current"));
            } else if controllers.split(',').any(|name| name == "memory") {
                let root = self.cgroups.join("memory");
                bounds.extend(along(&root, path, "memory.limit_in_bytes", "memory.usage_in_bytes"));
            }
        }
        bounds
    }
}

/// The bounds of every group on the way from `root` to `path`.
fn along(root: &Path, path: &str, limit: &str, usage: &str) -> Vec<Bound> {
    let mut folder = root.to_path_buf();
    let mut folders = vec![folder.clone()];
    for part in path.split('/').filter(|part| !part.is_empty() && *part != "..") {
        folder.push(part);
        folders.push(folder.clone());
    }
    folders.into_iter().filter_map(|folder| bound(folder, limit, usage)).collect()
}

fn bound(folder: PathBuf, limit: &str, usage: &str) -> Option<Bound> {
    // "max" is no number: no limit. Version 1 writes a number near 2^63 instead, which is never the least.
    let limit: u64 = std::fs::read_to_string(folder.join(limit)).ok()?.trim().parse().ok()?;
    let usage: u64 = std::fs::read_to_string(folder.join(usage)).ok()?.trim().parse().ok()?;
    // Page cache counts as usage but is given back under pressure.
    let reclaimable = std::fs::read_to_string(folder.join("memory.stat")).ok().map_or(0, |text| {
        ["inactive_file ", "total_inactive_file "]
            .iter()
            .find_map(|name| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()))
            .unwrap_or(0)
    });
    let available = limit.saturating_sub(usage.saturating_sub(reclaimable));
    Some(Bound { group: Some(folder), available })
}

fn mem_available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read() {
        let text = "MemTotal:       16384 kB\nMemFree: 1 kB\nMemAvailable:    2048 kB\n";
        assert_eq!(mem_available(text), Some(2048 * 1024));
        assert_eq!(mem_available("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn every_group_on_the_way_with_a_limit_is_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        let (proc, groups) = (folder.path().join("proc"), folder.path().join("cg"));
        std::fs::create_dir_all(proc.join("42")).unwrap();
        std::fs::create_dir_all(groups.join("pod/box")).unwrap();
        std::fs::write(proc.join("42/cgroup"), "0::/pod/box\n").unwrap();
        std::fs::write(groups.join("pod/memory.max"), "1000\n").unwrap();
        std::fs::write(groups.join("pod/memory.current"), "900\n").unwrap();
        std::fs::write(groups.join("pod/memory.stat"), "anon 5\ninactive_file 100\n").unwrap();
        std::fs::write(groups.join("pod/box/memory.max"), "max\n").unwrap();
        std::fs::write(groups.join("pod/box/memory.current"), "900\n").unwrap();

        let proc = ProcFs::at(&proc);
        let bounds = HostMemory::with_groups(&proc, &groups).groups(Pid::new(42).unwrap());
        assert_eq!(bounds, [Bound { group: Some(groups.join("pod")), available: 200 }]);
    }

    #[test]
    fn the_older_layout_of_groups_is_read_too() {
        let folder = tempfile::tempdir().unwrap();
        let (proc, groups) = (folder.path().join("proc"), folder.path().join("cg"));
        std::fs::create_dir_all(proc.join("42")).unwrap();
        std::fs::create_dir_all(groups.join("memory/pod")).unwrap();
        std::fs::write(proc.join("42/cgroup"), "5:cpu,cpuacct:/x\n4:memory:/pod\n").unwrap();
        std::fs::write(groups.join("memory/pod/memory.limit_in_bytes"), "1000\n").unwrap();
        std::fs::write(groups.join("memory/pod/memory.usage_in_bytes"), "1200\n").unwrap();

        let proc = ProcFs::at(&proc);
        let bounds = HostMemory::with_groups(&proc, &groups).groups(Pid::new(42).unwrap());
        assert_eq!(bounds, [Bound { group: Some(groups.join("memory/pod")), available: 0 }]);
    }
}
