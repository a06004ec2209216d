//! Who uses how much of a device. The sum over all processes never exceeds the device's memory.
//!
//! Each process counts in its own slot what only it refers to; what was exported is counted once, by its share. A count that ends
//! with its process needs no repair after a `kill -9`.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use cuda_sys::{CuError, CuResult};
use rustix::fs::{FlockOperation, flock};

use super::Machine;
use super::layout::MAGIC;

impl Machine {
    /// Bytes of a device that are in use. Slots of the dead are left out.
    pub(crate) fn used(&self, device: usize) -> usize {
        let private: usize = self.living().filter_map(|(_, slot)| slot.used.get(device)).map(load).sum();
        private + self.shared_bytes(device, true)
    }

    /// An upper bound of [`Machine::used`] that asks the kernel nothing.
    fn used_at_most(&self, device: usize) -> usize {
        let all = self.layout.slots.iter().filter(|slot| slot.pid.load(Ordering::Acquire) != 0);
        let private: usize = all.filter_map(|slot| slot.used.get(device)).map(load).sum();
        private + self.shared_bytes(device, false)
    }

    /// Takes bytes of a device for this process, or says that it has not enough.
    pub(crate) fn charge(&self, device: usize, bytes: usize) -> CuResult {
        debug_assert_eq!(self.layout.magic.load(Ordering::Relaxed), MAGIC);
        let used = self.own_slot().used.get(device).ok_or(CuError::INVALID_DEVICE)?;
        let amount = crate::args::wide(bytes);
        used.fetch_add(amount, Ordering::SeqCst);
        if self.used_at_most(device) <= self.memory() {
            return Ok(());
        }
        used.fetch_sub(amount, Ordering::SeqCst);
        self.charge_the_last_bytes(device, bytes)
    }

    /// Where it is tight: one process after the other, and the dead are left out.
    #[cold]
    fn charge_the_last_bytes(&self, device: usize, bytes: usize) -> CuResult {
        let used = self.own_slot().used.get(device).ok_or(CuError::INVALID_DEVICE)?;
        let amount = crate::args::wide(bytes);
        let turn = super::open(&self.dir, "turn").map_err(|_| CuError::OPERATING_SYSTEM)?;
        flock(turn.as_fd(), FlockOperation::LockExclusive).map_err(|_| CuError::OPERATING_SYSTEM)?;
        used.fetch_add(amount, Ordering::SeqCst);
        if self.used(device) <= self.memory() {
            return Ok(());
        }
        used.fetch_sub(amount, Ordering::SeqCst);
        Err(CuError::OUT_OF_MEMORY)
    }

    /// Gives back what [`Machine::charge`] took.
    pub(crate) fn discharge(&self, device: usize, bytes: usize) {
        if let Some(used) = self.own_slot().used.get(device) {
            used.fetch_sub(crate::args::wide(bytes), Ordering::SeqCst);
        }
    }
}

fn load(bytes: &std::sync::atomic::AtomicU64) -> usize {
    crate::args::size(bytes.load(Ordering::SeqCst))
}
