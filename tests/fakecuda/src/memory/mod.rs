//! Memory: what is allocated, where it is mapped, who may touch it.
//!
//! Bytes are in [`pool`]s (memfds); a [`physical::Physical`] is a piece of one, counted against its device; the
//! [`space`] says which addresses lead to which piece. Device addresses are reserved in the process's real address space and cannot be
//! touched by the host, as with a real GPU; the stand-in's own threads reach the bytes through another mapping.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, Weak};

use cuda_sys::{CuError, CuResult};

use crate::slab::Slab;

pub(crate) mod array;
pub(crate) mod host;
pub(crate) mod interop;
pub(crate) mod ipc;
pub(crate) mod managed;
pub(crate) mod multicast;
pub(crate) mod native;
pub(crate) mod physical;
pub(crate) mod pointer;
pub(crate) mod pool;
pub(crate) mod pools;
pub(crate) mod space;
pub(crate) mod token;
pub(crate) mod vmm;

use array::Array;
use native::Block;
use physical::Physical;
use pool::Pool;
use pools::{Defaults, MemPool};
use space::Space;
use vmm::Object;

/// The granularity of `cuMemCreate` (docs/DRIVER-VERSIONS.md, handles: 2 MiB).
pub(crate) const GRANULE: usize = 2 << 20;

/// All memory of the process.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Memory that is never exported as a descriptor.
    private: Arc<Pool>,
    /// Memory that may be. Apart, since its file outlives this process in the hands of importers.
    exportable: Arc<Pool>,
    peers: Mutex<Vec<Weak<Pool>>>,
    pub(crate) space: RwLock<Space>,
    pub(crate) objects: Slab<Object>,
    pub(crate) arrays: Slab<Array>,
    /// Where small native allocations are.
    blocks: Mutex<Vec<Block>>,
    pub(crate) pools: Slab<MemPool>,
    defaults: Defaults,
    live: Mutex<HashMap<u64, Weak<Physical>>>,
    next_id: AtomicU64,
}

impl Memory {
    pub(crate) fn new() -> CuResult<Self> {
        Ok(Self {
            private: Arc::new(Pool::new("fakecuda-private")?),
            exportable: Arc::new(Pool::new("fakecuda-exportable")?),
            peers: Mutex::new(Vec::new()),
            space: RwLock::new(Space::new()?),
            objects: Slab::new(),
            arrays: Slab::new(),
            blocks: Mutex::new(Vec::new()),
            pools: Slab::new(),
            defaults: Defaults::default(),
            live: Mutex::new(HashMap::new()),
            next_id: AtomicU64::new(1),
        })
    }

    fn own_pool(&self, exportable: bool) -> &Arc<Pool> {
        if exportable { &self.exportable } else { &self.private }
    }

    fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The pool behind a descriptor that came from a process, mapped once however often it comes.
    fn peer_pool(&self, file: OwnedFd) -> CuResult<Arc<Pool>> {
        let identity = pool::identity(&file)?;
        if let Some(own) =
            [&self.private, &self.exportable].into_iter().find(|own| own.identity() == identity)
        {
            return Ok(Arc::clone(own));
        }
        let mut peers = crate::lock(&self.peers);
        peers.retain(|peer| peer.strong_count() > 0);
        if let Some(known) = peers.iter().filter_map(Weak::upgrade).find(|peer| peer.identity() == identity) {
            return Ok(known);
        }
        let pool = Arc::new(Pool::open(file)?);
        peers.push(Arc::downgrade(&pool));
        Ok(pool)
    }

    /// Gives what others no longer hold back to the host.
    pub(crate) fn take_back_lent(&self) {
        self.exportable.take_back_lent();
    }

    /// A pool of another process that is mapped already.
    fn known_peer(&self, inode: u64) -> Option<Arc<Pool>> {
        crate::lock(&self.peers).iter().filter_map(Weak::upgrade).find(|peer| peer.identity().1 == inode)
    }

    /// Every piece of memory that is alive.
    pub(crate) fn all(&self) -> Vec<Arc<Physical>> {
        crate::lock(&self.live).values().filter_map(Weak::upgrade).collect()
    }
}

/// No memory of the host is left, or no address space.
fn exhausted(_error: rustix::io::Errno) -> CuError {
    CuError::OUT_OF_MEMORY
}
