//! The machine that all processes with one `FAKECUDA_DIR` share: its devices' memory, who is alive, and what is shared.
//!
//! Nothing here needs a process to end well: see [`layout`].

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock, ftruncate};
use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::config::config;
use crate::futex;

pub(crate) mod layout;
pub(crate) mod locks;
pub(crate) mod shares;
mod usage;

use layout::{Layout, MAGIC, SLOTS, Slot};

/// This process's place in the machine.
#[derive(Debug)]
pub(crate) struct Machine {
    dir: PathBuf,
    layout: &'static Layout,
    /// Open for as long as the process lives: closing any descriptor of this file would drop our lock in it.
    processes: File,
    shares: File,
    slot: usize,
}

fn open(dir: &std::path::Path, name: &str) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(dir.join(name))
}

impl Machine {
    /// Joins the machine, or sets it up if no process of it is alive and no descriptor keeps any of its memory.
    pub(crate) fn join() -> io::Result<Self> {
        let dir = config().dir.clone();
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        // A file of its own, closed at the end: a mapping would keep its description, and with it the lock.
        let turn = open(&dir, "turn")?;
        flock(&turn, FlockOperation::LockExclusive)?;
        let state = open(&dir, "machine")?;
        ftruncate(&state, crate::args::wide(size_of::<Layout>()))?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapped = unsafe {
            mmap(std::ptr::null_mut(), size_of::<Layout>(), protection, MapFlags::SHARED, &state, 0)
        }?;
        // SAFETY: the file is that long, all of `Layout` is atomics (any bytes are valid), and it is never unmapped.
        let layout = unsafe { &*mapped.cast::<Layout>() };
        let processes = open(&dir, "processes")?;
        let shares = open(&dir, "shares")?;
        let mut machine = Self { dir, layout, processes, shares, slot: usize::MAX };
        let fresh = layout.magic.load(Ordering::Relaxed) != MAGIC;
        if fresh || (!machine.living().any(|_| true) && !machine.has_shares()) {
            machine.set_up(mapped.cast::<u8>());
        }
        machine.claim()?;
        Ok(machine)
    }

    fn set_up(&self, file: *mut u8) {
        // SAFETY: the mapping of `join`, which nobody else uses: we hold the lock, and no process is alive.
        unsafe { file.write_bytes(0, size_of::<Layout>()) };
        let devices = u32::try_from(config().devices).unwrap_or(u32::MAX);
        self.layout.devices.store(devices, Ordering::Relaxed);
        self.layout.memory.store(config().memory, Ordering::Relaxed);
        self.layout.magic.store(MAGIC, Ordering::Release);
    }

    fn claim(&mut self) -> io::Result<()> {
        let free = (0..SLOTS).find(|&slot| locks::hold_for_process(self.processes.as_fd(), slot));
        self.slot = free.ok_or_else(|| io::Error::other("too many processes use this machine"))?;
        let slot = self.own_slot();
        for used in &slot.used {
            used.store(0, Ordering::Relaxed);
        }
        slot.index.store(config().index.unwrap_or(u32::MAX), Ordering::Relaxed);
        slot.state.store(0, Ordering::Relaxed);
        slot.restore_thread.store(0, Ordering::Relaxed);
        slot.pid.store(std::process::id(), Ordering::Release);
        Ok(())
    }

    /// The directory of the machine.
    pub(crate) fn dir(&self) -> &std::path::Path {
        &self.dir
    }

    /// The number of this process's slot.
    pub(crate) fn slot_number(&self) -> usize {
        self.slot
    }

    /// This process's slot.
    pub(crate) fn own_slot(&self) -> &'static Slot {
        let [first, ..] = &self.layout.slots;
        self.layout.slots.get(self.slot).unwrap_or(first)
    }

    /// Devices of the machine.
    pub(crate) fn devices(&self) -> usize {
        usize::try_from(self.layout.devices.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Bytes of each device.
    pub(crate) fn memory(&self) -> usize {
        crate::args::size(self.layout.memory.load(Ordering::Relaxed))
    }

    fn is_alive(&self, number: usize, slot: &Slot) -> bool {
        slot.pid.load(Ordering::Acquire) != 0
            && (number == self.slot || locks::held_by_other_process(self.processes.as_fd(), number))
    }

    /// The slots of the living, with their numbers.
    pub(crate) fn living(&self) -> impl Iterator<Item = (usize, &'static Slot)> {
        self.layout.slots.iter().enumerate().filter(|(number, slot)| self.is_alive(*number, slot))
    }

    /// The slot of a living process.
    pub(crate) fn find(&self, pid: u32) -> Option<(usize, &'static Slot)> {
        let of_pid = |slot: &Slot| slot.pid.load(Ordering::Acquire) == pid;
        self.layout
            .slots
            .iter()
            .enumerate()
            .find(|(number, slot)| of_pid(slot) && self.is_alive(*number, slot))
    }

    /// Device memory or an event has changed: whoever waits for something in it looks again, in every process.
    pub(crate) fn changed(&self) {
        self.layout.wake.fetch_add(1, Ordering::SeqCst);
        if self.layout.sleepers.load(Ordering::SeqCst) != 0 {
            futex::wake_all(&self.layout.wake);
        }
    }

    /// Waits until `done`, which is asked again after each change; every millisecond too, since the host writes to page-locked
    /// memory without telling, and whenever a process dies that was to wake us.
    pub(crate) fn wait_until(&self, mut done: impl FnMut() -> bool) {
        loop {
            let seen = self.layout.wake.load(Ordering::SeqCst);
            if done() {
                return;
            }
            self.layout.sleepers.fetch_add(1, Ordering::SeqCst);
            futex::wait(&self.layout.wake, seen, Some(Duration::from_millis(1)));
            self.layout.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
