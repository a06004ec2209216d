//! What the checkpoint API takes.

use core::ffi::{c_char, c_uint};

use super::Uuid;

/// `CUcheckpointLockArgs`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CheckpointLockArgs {
    /// Milliseconds to try; 0 is without bound.
    pub timeout_ms: c_uint,
    /// Zero.
    pub reserved0: c_uint,
    /// Zero.
    pub reserved1: [u64; 7],
}

/// `CUcheckpointCheckpointArgs`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CheckpointCheckpointArgs {
    /// Zero.
    pub reserved: [u64; 8],
}

/// `CUcheckpointGpuPair`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct CheckpointGpuPair {
    /// The GPU the process was on.
    pub old: Uuid,
    /// The GPU it comes back on.
    pub new: Uuid,
}

/// `CUcheckpointRestoreArgs`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CheckpointRestoreArgs {
    /// The pairs, or null: every GPU stays itself.
    pub gpu_pairs: *mut CheckpointGpuPair,
    /// How many pairs.
    pub gpu_pairs_count: c_uint,
    /// Zero.
    pub reserved: [c_char; 52 - size_of::<*mut CheckpointGpuPair>()],
    /// Zero.
    pub reserved1: u64,
}

impl Default for CheckpointRestoreArgs {
    fn default() -> Self {
        Self {
            gpu_pairs: core::ptr::null_mut(),
            gpu_pairs_count: 0,
            reserved: [0; 52 - size_of::<*mut CheckpointGpuPair>()],
            reserved1: 0,
        }
    }
}

/// `CUcheckpointUnlockArgs`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CheckpointUnlockArgs {
    /// Zero.
    pub reserved: [u64; 8],
}
