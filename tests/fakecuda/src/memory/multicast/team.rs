//! What all members of a multicast object share: which devices take part, and which memory each has bound.
//!
//! It is a file that every member maps. A binding names the process whose memory it is; other members reach the
//! bytes through `/proc`, as the openers of legacy IPC handles do.

use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use cuda_sys::{CuError, CuResult};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::args::{size, wide};
use crate::driver::{Driver, driver};
use crate::memory::exhausted;
use crate::memory::physical::Physical;
use crate::memory::pool::Pool;

/// Bindings of one object at a time.
const BINDINGS: usize = 256;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const BOUND: u32 = 2;

/// The file.
#[derive(Debug)]
#[repr(C)]
struct Shared {
    /// How many devices there will be.
    devices: AtomicU32,
    /// Those that were added, as a bit set of the machine's devices.
    added: AtomicU32,
    bindings: [Binding; BINDINGS],
}

/// Memory bound to a range of the object.
#[derive(Debug)]
#[repr(C)]
struct Binding {
    state: AtomicU32,
    device: AtomicU32,
    pid: AtomicU32,
    /// The file of the memory, as a descriptor of that process.
    descriptor: AtomicU32,
    inode: AtomicU64,
    /// Where in the object.
    offset: AtomicU64,
    size: AtomicU64,
    /// Where in the file.
    at: AtomicU64,
}

/// A member's view of the object.
#[derive(Debug)]
pub(crate) struct Team {
    file: OwnedFd,
    shared: &'static Shared,
    /// What this member has bound, by the number of the binding: it keeps the memory.
    own: Mutex<Vec<(usize, Arc<Physical>)>>,
    pools: Mutex<Vec<Arc<Pool>>>,
}

/// What to bind where.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) memory: Arc<Physical>,
    pub(super) memory_offset: usize,
    pub(super) offset: usize,
    pub(super) size: usize,
}

impl Team {
    /// A new object.
    pub(super) fn new(devices: u32) -> CuResult<Self> {
        let file = memfd_create("fakecuda-team", MemfdFlags::CLOEXEC).map_err(exhausted)?;
        ftruncate(&file, wide(size_of::<Shared>())).map_err(exhausted)?;
        let team = Self::open(file)?;
        team.shared.devices.store(devices, Ordering::SeqCst);
        Ok(team)
    }

    /// The object behind a descriptor that was imported.
    pub(super) fn open(file: OwnedFd) -> CuResult<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapped = unsafe {
            mmap(std::ptr::null_mut(), size_of::<Shared>(), protection, MapFlags::SHARED, &file, 0)
        }
        .map_err(exhausted)?;
        // SAFETY: the file is that long, all of it is atomics, and it stays mapped as long as the team lives.
        let shared = unsafe { &*mapped.cast::<Shared>() };
        Ok(Self { file, shared, own: Mutex::default(), pools: Mutex::default() })
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Devices the object was made for.
    pub(super) fn devices(&self) -> u32 {
        self.shared.devices.load(Ordering::SeqCst)
    }

    /// Adds a device of the machine. It stays for the life of the object, so it cannot be added again.
    pub(super) fn add(&self, device: usize) -> CuResult {
        let bit = 1 << device;
        let room =
            |added: u32| (added & bit == 0 && added.count_ones() < self.devices()).then_some(added | bit);
        let changed = self.shared.added.fetch_update(Ordering::SeqCst, Ordering::SeqCst, room);
        changed.map(drop).map_err(|_| CuError::INVALID_VALUE)
    }

    /// Whether a device takes part.
    pub(super) fn has(&self, device: usize) -> bool {
        self.shared.added.load(Ordering::SeqCst) & 1 << device != 0
    }

    /// Whether all devices have been added.
    pub(super) fn is_complete(&self) -> bool {
        self.shared.added.load(Ordering::SeqCst).count_ones() >= self.devices()
    }

    /// Binds memory to a range of the object in which that device of the machine has nothing bound yet.
    pub(super) fn bind(&self, device: usize, wish: Wish) -> CuResult {
        let end = wish.offset + wish.size;
        let overlaps =
            |binding: &Binding| binding.is_of(device) && binding.start() < end && wish.offset < binding.end();
        let mut own = crate::lock(&self.own);
        if self.shared.bindings.iter().any(overlaps) {
            return Err(CuError::INVALID_VALUE);
        }
        let take = |binding: &Binding| {
            binding.state.compare_exchange(FREE, TAKEN, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        let found = self.shared.bindings.iter().enumerate().find(|(_, binding)| take(binding));
        let (number, binding) = found.ok_or(CuError::OUT_OF_MEMORY)?;
        let (pool, at) = wish.memory.backing(wish.memory_offset);
        binding.device.store(u32::try_from(device).unwrap_or(u32::MAX), Ordering::SeqCst);
        binding.pid.store(std::process::id(), Ordering::SeqCst);
        binding.descriptor.store(pool.file().as_raw_fd().unsigned_abs(), Ordering::SeqCst);
        binding.inode.store(pool.identity().1, Ordering::SeqCst);
        binding.offset.store(wide(wish.offset), Ordering::SeqCst);
        binding.size.store(wide(wish.size), Ordering::SeqCst);
        binding.at.store(wide(at), Ordering::SeqCst);
        binding.state.store(BOUND, Ordering::SeqCst);
        own.push((number, wish.memory));
        Ok(())
    }

    /// Ends a binding that this member made with exactly this range.
    pub(super) fn unbind(&self, device: usize, offset: usize, size: usize) -> CuResult {
        let mut own = crate::lock(&self.own);
        let is_it = |number: usize| {
            self.shared.bindings.get(number).is_some_and(|binding| {
                binding.is_of(device) && binding.start() == offset && binding.end() == offset + size
            })
        };
        let found = own.iter().position(|(number, _)| is_it(*number)).ok_or(CuError::INVALID_VALUE)?;
        let (number, memory) = own.swap_remove(found);
        self.free(number);
        drop(own);
        drop(memory);
        Ok(())
    }

    fn free(&self, number: usize) {
        if let Some(binding) = self.shared.bindings.get(number) {
            binding.state.store(FREE, Ordering::SeqCst);
        }
    }

    /// The memory bound at an offset, that of `device` first, and for how many bytes that stays so.
    pub(crate) fn at(&self, offset: usize, device: usize) -> (Vec<*mut u8>, usize) {
        let bound = || self.shared.bindings.iter().filter(|binding| binding.is_bound());
        let next = bound().map(Binding::start).filter(|start| *start > offset).min();
        let mut length = next.map_or(usize::MAX, |next| next - offset);
        let mut here: Vec<&Binding> =
            bound().filter(|binding| (binding.start()..binding.end()).contains(&offset)).collect();
        here.sort_by_key(|binding| !binding.is_of(device));
        let mut places = Vec::new();
        for binding in here {
            let Some(pool) = driver().ok().and_then(|driver| self.pool(driver, binding)) else { continue };
            length = length.min(binding.end() - offset);
            let inside = size(binding.at.load(Ordering::SeqCst)) + offset - binding.start();
            places.push(pool.at(inside));
        }
        (places, length)
    }

    /// The file of a binding's memory. `None` where its process is gone and nobody has reached it before.
    fn pool(&self, driver: &Driver, binding: &Binding) -> Option<Arc<Pool>> {
        let inode = binding.inode.load(Ordering::SeqCst);
        let mut pools = crate::lock(&self.pools);
        if let Some(known) = pools.iter().find(|pool| pool.identity().1 == inode) {
            return Some(Arc::clone(known));
        }
        let (pid, descriptor) =
            (binding.pid.load(Ordering::SeqCst), binding.descriptor.load(Ordering::SeqCst));
        let path = format!("/proc/{pid}/fd/{descriptor}");
        let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
        let pool = driver.memory.peer_pool(OwnedFd::from(file)).ok()?;
        if pool.identity().1 != inode {
            return None;
        }
        pools.push(Arc::clone(&pool));
        Some(pool)
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        let own = std::mem::take(self.own.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner));
        for (number, _) in &own {
            self.free(*number);
        }
        // SAFETY: the mapping of `open`; nobody uses `shared` after this.
        let unmapped =
            unsafe { munmap(std::ptr::from_ref(self.shared).cast_mut().cast(), size_of::<Shared>()) };
        debug_assert!(unmapped.is_ok());
    }
}

impl Binding {
    fn is_bound(&self) -> bool {
        self.state.load(Ordering::SeqCst) == BOUND
    }

    fn is_of(&self, device: usize) -> bool {
        self.is_bound() && usize::try_from(self.device.load(Ordering::SeqCst)) == Ok(device)
    }

    fn start(&self) -> usize {
        size(self.offset.load(Ordering::SeqCst))
    }

    fn end(&self) -> usize {
        self.start() + size(self.size.load(Ordering::SeqCst))
    }
}
