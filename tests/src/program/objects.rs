//! What the worker has, by name. An entry stays when its object is given back, so that a line can use it wrongly.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use cuda_sys::{Array, Context, DevicePtr, Event, Graph, GraphExec, MemHandle, MemPool, Stream};

use crate::driver::Kernels;

/// A reserved or allocated range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) address: DevicePtr,
    pub(super) size: usize,
}

impl Range {
    pub(super) fn at(self, offset: u64) -> DevicePtr {
        DevicePtr(self.address.0.wrapping_add(offset))
    }
}

/// A table of named things.
#[derive(Debug)]
pub(super) struct Table<T> {
    what: &'static str,
    entries: Mutex<HashMap<String, T>>,
}

impl<T: Copy> Table<T> {
    fn new(what: &'static str) -> Self {
        Self { what, entries: Mutex::default() }
    }

    pub(super) fn put(&self, name: &str, value: T) {
        self.lock().insert(name.to_owned(), value);
    }

    pub(super) fn get(&self, name: &str) -> Result<T, String> {
        self.find(name).ok_or_else(|| format!("no {} is called {name}", self.what))
    }

    pub(super) fn find(&self, name: &str) -> Option<T> {
        self.lock().get(name).copied()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, T>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Descriptors by name. A name that gets another descriptor closes the one it had.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    /// The number stays when the descriptor is closed, as other entries do.
    entries: Mutex<HashMap<String, (RawFd, Option<OwnedFd>)>>,
}

impl Descriptors {
    pub(super) fn put(&self, name: &str, descriptor: OwnedFd) {
        self.lock().insert(name.to_owned(), (descriptor.as_raw_fd(), Some(descriptor)));
    }

    pub(super) fn get(&self, name: &str) -> Result<RawFd, String> {
        let found = self.lock().get(name).map(|(number, _)| *number);
        found.ok_or_else(|| format!("no descriptor is called {name}"))
    }

    /// Closes it. One that is closed already has a number that somebody else may have by now.
    pub(super) fn close(&self, name: &str) -> Result<(), Errno> {
        let open = self.lock().get_mut(name).and_then(|(_, descriptor)| descriptor.take());
        open.map(drop).ok_or(Errno::BADF)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (RawFd, Option<OwnedFd>)>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All tables.
#[derive(Debug)]
pub(super) struct Objects {
    pub(super) handles: Table<MemHandle>,
    pub(super) ranges: Table<Range>,
    pub(super) fds: Descriptors,
    pub(super) pools: Table<MemPool>,
    pub(super) streams: Table<Stream>,
    pub(super) events: Table<Event>,
    pub(super) arrays: Table<Array>,
    pub(super) graphs: Table<Graph>,
    pub(super) executables: Table<GraphExec>,
    /// By ordinal of the device.
    pub(super) contexts: Table<Context>,
    pub(super) kernels: Table<&'static Kernels>,
    /// By ordinal: eight bytes for a result.
    pub(super) scratch: Table<DevicePtr>,
}

impl Default for Objects {
    fn default() -> Self {
        Self {
            handles: Table::new("handle"),
            ranges: Table::new("range"),
            fds: Descriptors::default(),
            pools: Table::new("memory pool"),
            streams: Table::new("stream"),
            events: Table::new("event"),
            arrays: Table::new("array"),
            graphs: Table::new("graph"),
            executables: Table::new("executable graph"),
            contexts: Table::new("context of device"),
            kernels: Table::new("kernels of device"),
            scratch: Table::new("scratch memory of device"),
        }
    }
}
