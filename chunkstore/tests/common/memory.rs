//! A file system in memory that knows what is durable.
//!
//! It can stop at any call, as a killed process does, and then be looked at as the next process finds it: with all
//! that was done, or with what a power cut leaves. A power cut keeps what was synced; of the rest it keeps any part:
//! names without their bytes, later changes without earlier ones, files half written.

#![allow(clippy::cast_possible_truncation, reason = "what fits into this disk fits into memory")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chunkstore::layer::{Access, FileLayer, Open, OpenFile, Rename, Stat, Volume};

#[derive(Clone, Debug)]
pub struct Memory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    disk: Mutex<Disk>,
    calls: AtomicU64,
    last: AtomicU64,
}

#[derive(Clone, Default, Debug)]
struct Disk {
    nodes: Vec<Node>,
    log: Vec<String>,
    clock: u64,
    handles: u64,
}

#[derive(Clone, Debug)]
enum Node {
    File { bytes: Vec<u8>, synced: Vec<u8>, is_synced: bool, modified: u64, locked_by: Option<u64> },
    Dir { names: BTreeMap<OsString, usize>, durable: BTreeMap<OsString, usize>, pending: Vec<Change> },
}

/// A change to a directory: names that went, and a name that came. All of it happens or nothing.
#[derive(Clone, Debug)]
struct Change {
    gone: Option<OsString>,
    came: Option<(OsString, usize)>,
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<OsString, usize>) {
        if let Some(gone) = &self.gone {
            names.remove(gone);
        }
        if let Some((name, node)) = &self.came {
            names.insert(name.clone(), *node);
        }
    }
}

fn error(kind: io::ErrorKind) -> io::Error {
    let errno = match kind {
        io::ErrorKind::NotFound => rustix::io::Errno::NOENT,
        io::ErrorKind::AlreadyExists => rustix::io::Errno::EXIST,
        _ => rustix::io::Errno::IO,
    };
    errno.into()
}

impl Memory {
    pub fn new() -> Self {
        let root = Node::Dir { names: BTreeMap::new(), durable: BTreeMap::new(), pending: Vec::new() };
        Self::of(Disk { nodes: vec![root], ..Disk::default() })
    }

    fn of(disk: Disk) -> Self {
        let (calls, last) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        Self(Arc::new(Shared { disk: Mutex::new(disk), calls, last }))
    }

    /// From call `last` on, counted from now, nothing is done any more: the process is dead.
    pub fn stop_at(&self, last: u64) {
        self.0.calls.store(0, Ordering::SeqCst);
        self.0.last.store(last, Ordering::SeqCst);
    }

    /// How many calls were made since `stop_at`.
    pub fn calls(&self) -> u64 {
        self.0.calls.load(Ordering::SeqCst)
    }

    /// The calls that were made.
    pub fn log(&self) -> Vec<String> {
        self.0.disk.lock().unwrap().log.clone()
    }

    /// What the next process finds when this one was killed.
    pub fn after_kill(&self) -> Self {
        let mut disk = self.0.disk.lock().unwrap().clone();
        for node in &mut disk.nodes {
            if let Node::File { locked_by, .. } = node {
                *locked_by = None;
            }
        }
        Self::of(disk)
    }

    /// What may be found after a power cut; each seed gives another outcome. Seed 0 keeps only what was synced, and
    /// seed 1 all names and no byte that was not.
    pub fn after_power_cut(&self, seed: u64) -> Self {
        let next = self.after_kill();
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for node in &mut next.0.disk.lock().unwrap().nodes {
            match node {
                Node::File { bytes, synced, is_synced, .. } => {
                    if !*is_synced {
                        *bytes = match (seed, random.below(4)) {
                            (0 | 1, _) | (_, 0) => synced.clone(),
                            (_, 1) => bytes[..bytes.len() / 2].to_vec(),
                            (_, 2) => vec![0; bytes.len()],
                            _ => bytes.clone(),
                        };
                    }
                    *synced = bytes.clone();
                    *is_synced = true;
                }
                Node::Dir { names, durable, pending } => {
                    for change in pending.drain(..) {
                        if seed == 1 || (seed > 1 && random.below(2) == 0) {
                            change.apply(durable);
                        }
                    }
                    *names = durable.clone();
                }
            }
        }
        next
    }

    fn call<T>(
        &self,
        what: &str,
        path: &Path,
        act: impl FnOnce(&mut Disk) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut disk = self.0.disk.lock().unwrap();
        if self.0.calls.fetch_add(1, Ordering::SeqCst) + 1 >= self.0.last.load(Ordering::SeqCst) {
            return Err(rustix::io::Errno::IO.into());
        }
        disk.log.push(format!("{what} {}", path.display()));
        act(&mut disk)
    }

    fn file(&self, node: usize, path: &Path, locks_as: u64) -> Box<dyn OpenFile> {
        Box::new(MemoryFile { memory: self.clone(), node, path: path.to_owned(), locks_as })
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) % bound
    }
}

impl Disk {
    fn find(&self, path: &Path) -> io::Result<usize> {
        let mut node = 0;
        for part in path.strip_prefix("/").unwrap() {
            let Node::Dir { names, .. } = &self.nodes[node] else {
                return Err(error(io::ErrorKind::NotFound));
            };
            node = *names.get(part).ok_or_else(|| error(io::ErrorKind::NotFound))?;
        }
        Ok(node)
    }

    fn change(&mut self, path: &Path, change: Change) -> io::Result<()> {
        let dir = self.find(path.parent().unwrap())?;
        let Node::Dir { names, pending, .. } = &mut self.nodes[dir] else {
            return Err(error(io::ErrorKind::NotFound));
        };
        change.apply(names);
        pending.push(change);
        Ok(())
    }

    fn add(&mut self, path: &Path, node: Node) -> io::Result<usize> {
        if self.find(path).is_ok() {
            return Err(error(io::ErrorKind::AlreadyExists));
        }
        self.nodes.push(node);
        let number = self.nodes.len() - 1;
        self.change(path, Change { gone: None, came: Some((name(path), number)) })?;
        Ok(number)
    }

    fn stat(&self, node: usize) -> Stat {
        match &self.nodes[node] {
            Node::File { bytes, modified, .. } => {
                Stat { regular: true, len: bytes.len() as u64, modified: Duration::from_secs(*modified) }
            }
            Node::Dir { .. } => Stat { regular: false, len: 0, modified: Duration::ZERO },
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

fn name(path: &Path) -> OsString {
    path.file_name().unwrap().to_owned()
}

impl FileLayer for Memory {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn OpenFile>> {
        self.call("open", path, |disk| {
            disk.handles += 1;
            let locks_as = disk.handles;
            if how.access != Access::Create {
                return Ok(self.file(disk.find(path)?, path, locks_as));
            }
            let modified = disk.tick();
            let (bytes, synced) = (Vec::new(), Vec::new());
            let node = Node::File { bytes, synced, is_synced: false, modified, locked_by: None };
            Ok(self.file(disk.add(path, node)?, path, locks_as))
        })
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.call("stat", path, |disk| Ok(disk.stat(disk.find(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path, how: Rename) -> io::Result<()> {
        assert_eq!(from.parent(), to.parent(), "a rename is atomic within a directory only");
        self.call("rename", to, |disk| {
            let node = disk.find(from)?;
            if how == Rename::Keep && disk.find(to).is_ok() {
                return Err(error(io::ErrorKind::AlreadyExists));
            }
            disk.change(to, Change { gone: Some(name(from)), came: Some((name(to), node)) })
        })
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call("link", to, |disk| {
            let node = disk.find(from)?;
            if disk.find(to).is_ok() {
                return Err(error(io::ErrorKind::AlreadyExists));
            }
            disk.change(to, Change { gone: None, came: Some((name(to), node)) })
        })
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.call("unlink", path, |disk| {
            disk.find(path)?;
            disk.change(path, Change { gone: Some(name(path)), came: None })
        })
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.call("mkdir", path, |disk| {
            let dir = Node::Dir { names: BTreeMap::new(), durable: BTreeMap::new(), pending: Vec::new() };
            disk.add(path, dir).map(|_| ())
        })
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.call("syncdir", path, |disk| {
            let dir = disk.find(path)?;
            if let Node::Dir { names, durable, pending } = &mut disk.nodes[dir] {
                *durable = names.clone();
                pending.clear();
            }
            Ok(())
        })
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.call("list", path, |disk| match &disk.nodes[disk.find(path)?] {
            Node::Dir { names, .. } => Ok(names.keys().cloned().collect()),
            Node::File { .. } => Err(error(io::ErrorKind::NotFound)),
        })
    }

    fn touch(&self, path: &Path) -> io::Result<()> {
        self.call("touch", path, |disk| {
            let (node, now) = (disk.find(path)?, disk.tick());
            if let Node::File { modified, .. } = &mut disk.nodes[node] {
                *modified = now;
            }
            Ok(())
        })
    }

    fn volume(&self, path: &Path) -> io::Result<Volume> {
        self.call("volume", path, |_| Ok(Volume { free: u64::MAX, local: true }))
    }
}

#[derive(Debug)]
struct MemoryFile {
    memory: Memory,
    node: usize,
    path: PathBuf,
    locks_as: u64,
}

impl OpenFile for MemoryFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.memory.call("read", &self.path, |disk| {
            let Node::File { bytes, .. } = &disk.nodes[self.node] else {
                return Err(error(io::ErrorKind::Other));
            };
            let rest = bytes.get(offset as usize..).unwrap_or_default();
            let amount = rest.len().min(into.len());
            into[..amount].copy_from_slice(&rest[..amount]);
            Ok(amount)
        })
    }

    fn write_at(&self, new: &[u8], offset: u64) -> io::Result<usize> {
        self.memory.call("write", &self.path, |disk| {
            let now = disk.tick();
            if let Node::File { bytes, is_synced, modified, .. } = &mut disk.nodes[self.node] {
                let end = offset as usize + new.len();
                bytes.resize(end.max(bytes.len()), 0);
                bytes[offset as usize..end].copy_from_slice(new);
                (*is_synced, *modified) = (false, now);
            }
            Ok(new.len())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.memory.call("sync", &self.path, |disk| {
            if let Node::File { bytes, synced, is_synced, .. } = &mut disk.nodes[self.node] {
                (*synced, *is_synced) = (bytes.clone(), true);
            }
            Ok(())
        })
    }

    fn stat(&self) -> io::Result<Stat> {
        self.memory.call("stat", &self.path, |disk| Ok(disk.stat(self.node)))
    }

    fn set_buffered(&self) -> io::Result<()> {
        Ok(())
    }

    fn direct_alignment(&self) -> usize {
        4096
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.memory.call("lock", &self.path, |disk| {
            let Node::File { locked_by, .. } = &mut disk.nodes[self.node] else {
                return Err(error(io::ErrorKind::Other));
            };
            Ok(*locked_by.get_or_insert(self.locks_as) == self.locks_as)
        })
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        if let Node::File { locked_by, .. } = &mut self.memory.0.disk.lock().unwrap().nodes[self.node]
            && *locked_by == Some(self.locks_as)
        {
            *locked_by = None;
        }
    }
}
