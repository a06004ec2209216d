//! A made-up driver with the rules of the real one.

use std::sync::{Arc, Mutex};

use cuda_sys::{CheckpointGpuPair, CuError, ProcessState, Uuid};
use protocol::Contents;

use super::process::{GPU, SIZE};
use super::{Fault, Inner, locked};
use crate::driver::{CheckpointCall, Driver, DriverError, Gpu};
use crate::pid::Pid;

/// The number of the thread that restores a made-up process.
pub(super) fn restore_thread_of(pid: Pid) -> i32 {
    pid.number() * 1000 + 1
}

pub(super) struct Simulated(pub(super) Arc<Mutex<Inner>>);

impl Simulated {
    /// A call that takes a process from one state to another.
    fn moves(
        &self,
        call: CheckpointCall,
        pid: Pid,
        from: ProcessState,
        to: ProcessState,
    ) -> Result<(), DriverError> {
        let failed = |error| Err(DriverError::Checkpoint { call, pid, error });
        let mut inner = locked(&self.0);
        let fault = inner.called(pid.number(), call.symbol());
        if fault == Some(Fault::Before) {
            return failed(CuError::UNKNOWN);
        }
        let Some(process) = inner.processes.get_mut(&pid.number()).filter(|process| !process.idle) else {
            return failed(CuError::NOT_INITIALIZED);
        };
        if process.state != from {
            return failed(CuError::ILLEGAL_STATE);
        }
        let frozen = process.frozen;
        process.state = to;
        let left = process.holdings.iter().any(|holding| holding.contents == Contents::Live);
        if call == CheckpointCall::Checkpoint && left {
            inner.violation(format!("{pid} was checkpointed while it held shared memory"));
        }
        // Another thread may hold a lock that this needs.
        if frozen && call != CheckpointCall::Restore {
            inner.violation(format!("{} was asked of {pid}, whose threads are frozen", call.symbol()));
        }
        if fault == Some(Fault::After) { failed(CuError::UNKNOWN) } else { Ok(()) }
    }
}

impl Driver for Simulated {
    fn version(&self) -> i32 {
        13_000
    }

    fn can_checkpoint(&self) -> Result<(), DriverError> {
        Ok(())
    }

    fn gpus(&self) -> Result<Vec<Gpu>, DriverError> {
        Ok(vec![Gpu { uuid: Uuid { bytes: GPU }, name: "made up".into(), total: 1 << 40 }])
    }

    fn free(&self) -> Result<Vec<u64>, DriverError> {
        let inner = locked(&self.0);
        let live = inner
            .processes
            .values()
            .flat_map(|process| &process.holdings)
            .filter(|holding| holding.contents == Contents::Live && !holding.is_import())
            .count();
        Ok(vec![inner.free - live as u64 * SIZE])
    }

    fn state(&self, pid: Pid) -> Result<ProcessState, DriverError> {
        let call = CheckpointCall::GetState;
        let mut inner = locked(&self.0);
        let error = match inner.called(pid.number(), call.symbol()) {
            Some(Fault::Before | Fault::After) => CuError::UNKNOWN,
            _ => match inner.processes.get(&pid.number()) {
                Some(process) if !process.idle => return Ok(process.state),
                Some(_) => CuError::NOT_INITIALIZED,
                None => CuError::OPERATING_SYSTEM,
            },
        };
        Err(DriverError::Checkpoint { call, pid, error })
    }

    fn lock(&self, pid: Pid, _timeout_ms: u32) -> Result<(), DriverError> {
        self.moves(CheckpointCall::Lock, pid, ProcessState::RUNNING, ProcessState::LOCKED)
    }

    fn checkpoint(&self, pid: Pid) -> Result<(), DriverError> {
        self.moves(CheckpointCall::Checkpoint, pid, ProcessState::LOCKED, ProcessState::CHECKPOINTED)
    }

    fn restore(&self, pid: Pid, _pairs: &[CheckpointGpuPair]) -> Result<(), DriverError> {
        let waits = || {
            let inner = locked(&self.0);
            let process = inner.processes.get(&pid.number());
            process.is_some_and(|process| process.restore_needs_threads && process.frozen)
        };
        while waits() {
            std::thread::yield_now();
        }
        self.moves(CheckpointCall::Restore, pid, ProcessState::CHECKPOINTED, ProcessState::LOCKED)
    }

    fn unlock(&self, pid: Pid) -> Result<(), DriverError> {
        self.moves(CheckpointCall::Unlock, pid, ProcessState::LOCKED, ProcessState::RUNNING)
    }

    fn restore_thread(&self, pid: Pid) -> Result<i32, DriverError> {
        let call = CheckpointCall::RestoreThread;
        let mut inner = locked(&self.0);
        match inner.called(pid.number(), call.symbol()) {
            Some(Fault::Before | Fault::After) => {
                Err(DriverError::Checkpoint { call, pid, error: CuError::UNKNOWN })
            }
            _ if !inner.processes.contains_key(&pid.number()) => {
                Err(DriverError::Checkpoint { call, pid, error: CuError::OPERATING_SYSTEM })
            }
            _ => Ok(restore_thread_of(pid)),
        }
    }
}
