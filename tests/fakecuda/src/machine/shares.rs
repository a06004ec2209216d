//! Objects that several processes may refer to. A share lives as long as an open description holds its byte: in a process,
//! in a descriptor that was exported, or on its way through a socket.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use cuda_sys::{CuError, CuResult};

use super::layout;
use super::{Machine, locks};

/// What a share is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Kind {
    /// Memory that was exported as a descriptor.
    Memory = 1,
    /// An interprocess event.
    Event = 2,
    /// Memory for which a legacy IPC handle was made.
    LegacyMemory = 3,
    /// A memory pool.
    Pool = 4,
    /// A multicast object.
    Multicast = 5,
}

/// This process's hold on a share.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) number: usize,
    pub(crate) id: u64,
    lock: File,
}

impl Held {
    /// The description that keeps the share alive, to be sent along with what needs it.
    pub(crate) fn lock(&self) -> &File {
        &self.lock
    }
}

impl Machine {
    /// The share with this number.
    pub(crate) fn share(&self, number: usize) -> Option<&'static layout::Share> {
        self.layout.shares.get(number)
    }

    /// Makes a new share. Its bytes count from here on.
    pub(crate) fn new_share(&self, kind: Kind, device: Option<usize>, bytes: usize) -> CuResult<Held> {
        let lock = super::open(&self.dir, "shares").map_err(|_| CuError::OPERATING_SYSTEM)?;
        for (number, share) in self.layout.shares.iter().enumerate() {
            if share.id.load(Ordering::Acquire) != 0 || !locks::hold_alone(&lock, number) {
                continue;
            }
            if share.id.load(Ordering::Acquire) != 0 {
                // Somebody else made it between the look and the lock, and is gone already. It is reaped later.
                continue;
            }
            let id = new_id();
            share.kind.store(kind as u32, Ordering::Relaxed);
            share
                .device
                .store(device.map_or(u32::MAX, |d| u32::try_from(d).unwrap_or(u32::MAX)), Ordering::Relaxed);
            share.bytes.store(crate::args::wide(bytes), Ordering::Relaxed);
            share.owner.store(u32::try_from(self.slot).unwrap_or(u32::MAX), Ordering::Relaxed);
            share.flags.store(0, Ordering::Relaxed);
            share.recorded.store(0, Ordering::Relaxed);
            share.completed.store(0, Ordering::Relaxed);
            let used = u32::try_from(number + 1).unwrap_or(u32::MAX);
            self.layout.shares_used.fetch_max(used, Ordering::SeqCst);
            share.id.store(id, Ordering::Release);
            locks::hold_beside_others(&lock, number);
            return Ok(Held { number, id, lock });
        }
        Err(CuError::OPERATING_SYSTEM)
    }

    /// Joins a share through the description that came with what was imported.
    pub(crate) fn join_share(&self, number: usize, id: u64, lock: OwnedFd) -> Option<Held> {
        let share = self.share(number)?;
        (share.id.load(Ordering::Acquire) == id).then(|| Held { number, id, lock: File::from(lock) })
    }

    /// Joins a share by its number, as the opener of an interprocess event does.
    pub(crate) fn open_share(&self, number: usize, id: u64) -> Option<Held> {
        let lock = super::open(&self.dir, "shares").ok()?;
        let share = self.share(number).filter(|share| share.id.load(Ordering::Acquire) == id)?;
        if !locks::held_by_other_description(lock.as_fd(), number)
            || !locks::hold_beside_others(&lock, number)
        {
            return None;
        }
        (share.id.load(Ordering::Acquire) == id).then_some(Held { number, id, lock })
    }

    /// Lets go of a share, and tells whether this was the last hold on it.
    pub(crate) fn leave_share(&self, held: Held) -> bool {
        let Held { number, id, lock } = held;
        drop(lock);
        !self.is_held(number, id)
    }

    /// Whether somebody still holds the share. One that nobody holds is freed.
    pub(crate) fn is_held(&self, number: usize, id: u64) -> bool {
        let Some(share) = self.share(number) else { return false };
        if share.id.load(Ordering::Acquire) != id {
            return false;
        }
        if locks::held_by_other_description(self.shares.as_fd(), number) {
            return true;
        }
        // Only the one who sees it go frees it; an id never comes back.
        let _ = share.id.compare_exchange(id, 0, Ordering::AcqRel, Ordering::Relaxed);
        false
    }

    /// Whether anything is shared, if only with a descriptor that nobody has imported yet.
    pub(super) fn has_shares(&self) -> bool {
        let alive = |(number, share): (usize, &layout::Share)| {
            let id = share.id.load(Ordering::Acquire);
            id != 0 && self.is_held(number, id)
        };
        self.layout.shares.iter().enumerate().any(alive)
    }

    /// Bytes of a device that shares hold; with `exact`, shares that nobody holds are freed first.
    pub(super) fn shared_bytes(&self, device: usize, exact: bool) -> usize {
        let used = usize::try_from(self.layout.shares_used.load(Ordering::SeqCst)).unwrap_or(0);
        let of_device = |share: &layout::Share| {
            usize::try_from(share.device.load(Ordering::Relaxed)).is_ok_and(|of| of == device)
        };
        let mut bytes = 0;
        for (number, share) in self.layout.shares.iter().enumerate().take(used) {
            let id = share.id.load(Ordering::Acquire);
            if id != 0 && of_device(share) && (!exact || self.is_held(number, id)) {
                bytes += crate::args::size(share.bytes.load(Ordering::Relaxed));
            }
        }
        bytes
    }
}

fn new_id() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: the buffer is writable for its length.
    let read = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    debug_assert_eq!(read, 8);
    u64::from_ne_bytes(bytes) | 1
}
