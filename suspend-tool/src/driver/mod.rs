//! The driver as the command sees it: its GPUs, and the checkpoint API for other processes.
//!
//! Everything goes through [`Driver`], so that tests enumerate failures without a driver. The real one is in
//! [`library`].

pub mod library;
mod limit;
mod nvml;

use std::fmt;
use std::time::Duration;

use cuda_sys::{CheckpointGpuPair, CuError, ProcessState, Uuid};

use crate::pid::Pid;

/// A GPU that this command can see, in ordinal order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gpu {
    /// Its UUID.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
    /// Bytes of memory.
    pub total: u64,
}

/// Calls of the checkpoint API.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CheckpointCall {
    /// `cuCheckpointProcessGetState`
    GetState,
    /// `cuCheckpointProcessLock`
    Lock,
    /// `cuCheckpointProcessCheckpoint`
    Checkpoint,
    /// `cuCheckpointProcessRestore`
    Restore,
    /// `cuCheckpointProcessUnlock`
    Unlock,
    /// `cuCheckpointProcessGetRestoreThreadId`
    RestoreThread,
}

impl CheckpointCall {
    /// The driver's name of the call.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::GetState => "cuCheckpointProcessGetState",
            Self::Lock => "cuCheckpointProcessLock",
            Self::Checkpoint => "cuCheckpointProcessCheckpoint",
            Self::Restore => "cuCheckpointProcessRestore",
            Self::Unlock => "cuCheckpointProcessUnlock",
            Self::RestoreThread => "cuCheckpointProcessGetRestoreThreadId",
        }
    }
}

impl fmt::Display for CheckpointCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.symbol())
    }
}

/// Why the driver did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DriverError {
    /// There is no driver to ask.
    #[error("the CUDA driver cannot be used: {reason}")]
    NoDriver {
        /// What the loader or the driver said.
        reason: String,
    },
    /// The driver has no checkpoint API.
    #[error(
        "the CUDA driver (API version {version}) has no {symbol}: suspending needs a driver of the r570 line or \
         newer"
    )]
    TooOld {
        /// The function that is missing.
        symbol: &'static str,
        /// `cuDriverGetVersion`.
        version: i32,
    },
    /// A call about a process failed.
    #[error("{call} for process {pid} answered {error}{}", hint(*.call, *.error))]
    Checkpoint {
        /// The call.
        call: CheckpointCall,
        /// The process.
        pid: Pid,
        /// The driver's answer.
        error: CuError,
    },
    /// A call has not come back.
    #[error("{call} has not come back after {} s: the driver hangs", .limit.as_secs())]
    Hung {
        /// The call.
        call: &'static str,
        /// How long was waited.
        limit: Duration,
    },
    /// Another call failed.
    #[error("{call} answered {error}")]
    Call {
        /// The call.
        call: &'static str,
        /// The driver's answer.
        error: CuError,
    },
}

impl DriverError {
    /// The driver's number, where the driver answered.
    pub fn code(&self) -> Option<CuError> {
        match self {
            Self::Checkpoint { error, .. } | Self::Call { error, .. } => Some(*error),
            Self::NoDriver { .. } | Self::TooOld { .. } | Self::Hung { .. } => None,
        }
    }
}

/// What is known about an answer, so that nobody has to look up a bare number.
fn hint(call: CheckpointCall, error: CuError) -> &'static str {
    match (call, error) {
        (CheckpointCall::Restore, CuError::NOT_SUPPORTED) => {
            ": it still held memory imported from another process when it was checkpointed; the driver cannot \
             restore that"
        }
        (CheckpointCall::Restore, CuError::INVALID_VALUE) => {
            ": it held memory opened by a legacy IPC handle when it was checkpointed, or the GPUs do not match"
        }
        (CheckpointCall::Restore, CuError::OPERATING_SYSTEM) => {
            ": it held a shared memory pool when it was checkpointed; the driver cannot restore that"
        }
        (CheckpointCall::Restore, CuError::OUT_OF_MEMORY) => {
            ": the GPU has too little free memory; the driver may refuse every later attempt as well"
        }
        (CheckpointCall::Checkpoint, CuError::NOT_SUPPORTED) => {
            ": it holds something the driver cannot checkpoint, managed memory for instance"
        }
        (CheckpointCall::GetState, CuError::NOT_SUPPORTED) => {
            ": the driver does not support it; suspending needs a driver of the r570 line or newer"
        }
        (CheckpointCall::Lock, CuError::NOT_READY | CuError::TIMEOUT) => {
            ": its CUDA calls or GPU work did not come to rest in time"
        }
        _ => "",
    }
}

/// The driver.
pub trait Driver: Send + Sync {
    /// `cuDriverGetVersion`.
    fn version(&self) -> i32;

    /// Whether the checkpoint API is there.
    fn can_checkpoint(&self) -> Result<(), DriverError>;

    /// The GPUs this command can see, in ordinal order.
    fn gpus(&self) -> Result<Vec<Gpu>, DriverError>;

    /// Free bytes of every GPU, in ordinal order.
    fn free(&self) -> Result<Vec<u64>, DriverError>;

    /// The state of a process. `NOT_INITIALIZED` says that it does not use CUDA.
    fn state(&self, pid: Pid) -> Result<ProcessState, DriverError>;

    /// Makes driver calls of a process wait, trying for at most `timeout_ms`.
    fn lock(&self, pid: Pid, timeout_ms: u32) -> Result<(), DriverError>;

    /// Moves what a locked process has on its GPUs into its host memory.
    fn checkpoint(&self, pid: Pid) -> Result<(), DriverError>;

    /// The reverse of `checkpoint`, on other GPUs if `pairs` says so.
    fn restore(&self, pid: Pid, pairs: &[CheckpointGpuPair]) -> Result<(), DriverError>;

    /// The reverse of `lock`.
    fn unlock(&self, pid: Pid) -> Result<(), DriverError>;

    /// The thread of a process that carries out its restore, and must not be stopped.
    fn restore_thread(&self, pid: Pid) -> Result<i32, DriverError>;
}

/// The name of a state in messages.
pub fn state_name(state: ProcessState) -> String {
    match state {
        ProcessState::RUNNING => "running".into(),
        ProcessState::LOCKED => "locked".into(),
        ProcessState::CHECKPOINTED => "checkpointed".into(),
        ProcessState::FAILED => "failed".into(),
        ProcessState(other) => format!("unknown ({other})"),
    }
}
