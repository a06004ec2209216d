//! The file `machine` in `FAKECUDA_DIR`: what all processes of one machine see, mapped by each.
//!
//! A slot belongs to the living process that holds the lock of its byte in the file `processes` (a lock the kernel
//! drops when the process ends, however it ends); the numbers in a slot nobody holds mean nothing. A share belongs to all open
//! descriptions that hold the lock of its byte in the file `shares`.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// Devices that a slot has room for.
pub(crate) const DEVICES: usize = 16;
/// Processes at a time.
pub(crate) const SLOTS: usize = 256;
/// Shared objects at a time.
pub(crate) const SHARES: usize = 16_384;
/// What a set-up file begins with. Changes whenever this layout does.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"fakecu01");

/// The whole file.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Layout {
    pub(crate) magic: AtomicU64,
    /// Bytes of each device.
    pub(crate) memory: AtomicU64,
    pub(crate) devices: AtomicU32,
    /// Counts changes of device memory and of events; those who wait for one sleep on it.
    pub(crate) wake: AtomicU32,
    /// How many sleep on `wake`.
    pub(crate) sleepers: AtomicU32,
    /// No share at or above this index was ever used.
    pub(crate) shares_used: AtomicU32,
    pub(crate) slots: [Slot; SLOTS],
    pub(crate) shares: [Share; SHARES],
}

/// One process.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Slot {
    /// 0 for a slot that was never used.
    pub(crate) pid: AtomicU32,
    /// `FAKECUDA_INDEX`, or `u32::MAX`.
    pub(crate) index: AtomicU32,
    /// `CUprocessState`
    pub(crate) state: AtomicU32,
    /// The thread that restores the process.
    pub(crate) restore_thread: AtomicU32,
    /// Bytes per device that only this process refers to.
    pub(crate) used: [AtomicU64; DEVICES],
}

/// One object that several processes may refer to.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Share {
    /// 0 for a free one; else a number that is never used again.
    pub(crate) id: AtomicU64,
    pub(crate) kind: AtomicU32,
    pub(crate) device: AtomicU32,
    pub(crate) bytes: AtomicU64,
    pub(crate) owner: AtomicU32,
    pub(crate) flags: AtomicU32,
    /// For an event: how often it was recorded, and the last record that has completed.
    pub(crate) recorded: AtomicU64,
    pub(crate) completed: AtomicU64,
}
