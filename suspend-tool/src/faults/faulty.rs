//! What stands between the command and its shims, driver and holder where faults are ordered: it does what is asked unless that is
//! to go wrong.

use std::cell::RefCell;
use std::ffi::OsString;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cuda_sys::{CheckpointGpuPair, CuError, ProcessState};
use protocol::{Frame, VerbKind};

use super::{FAULTS_VARIABLE, Faults, Order};
use crate::client::{Patience, ShimError, Shims};
use crate::driver::{CheckpointCall, Driver, DriverError, Gpu};
use crate::freeze::{self, Hold, HoldError, NotFrozen, Thawer};
use crate::pid::{Pid, Target};
use crate::state::Run;

/// Shims that meet the faults.
pub struct FaultyShims<S>(pub S, pub Arc<Faults>);

impl<S: Shims> Shims for FaultyShims<S> {
    fn exchange(
        &self,
        target: Target,
        verb: VerbKind,
        request: &[u8],
        patience: Patience,
    ) -> Result<Frame, ShimError> {
        let verb_name = verb.name();
        let error = || {
            let source = std::io::Error::other(format!("ordered by {FAULTS_VARIABLE}"));
            ShimError::Connection { pid: target.pid, verb: verb_name, source }
        };
        self.1.around(verb_name, target.pid, error, || self.0.exchange(target, verb, request, patience))
    }
}

/// A driver that meets the faults.
pub struct FaultyDriver<D>(pub D, pub Arc<Faults>);

impl<D> FaultyDriver<D> {
    fn around<T>(
        &self,
        call: CheckpointCall,
        pid: Pid,
        body: impl FnOnce() -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        let error = || DriverError::Checkpoint { call, pid, error: CuError::UNKNOWN };
        self.1.around(call.symbol(), pid, error, body)
    }
}

impl<D: Driver> Driver for FaultyDriver<D> {
    fn version(&self) -> i32 {
        self.0.version()
    }

    fn can_checkpoint(&self) -> Result<(), DriverError> {
        self.0.can_checkpoint()
    }

    fn gpus(&self) -> Result<Vec<Gpu>, DriverError> {
        self.0.gpus()
    }

    fn free(&self) -> Result<Vec<u64>, DriverError> {
        self.0.free()
    }

    fn state(&self, pid: Pid) -> Result<ProcessState, DriverError> {
        self.around(CheckpointCall::GetState, pid, || self.0.state(pid))
    }

    fn lock(&self, pid: Pid, timeout_ms: u32) -> Result<(), DriverError> {
        self.around(CheckpointCall::Lock, pid, || self.0.lock(pid, timeout_ms))
    }

    fn checkpoint(&self, pid: Pid) -> Result<(), DriverError> {
        self.around(CheckpointCall::Checkpoint, pid, || self.0.checkpoint(pid))
    }

    fn restore(&self, pid: Pid, pairs: &[CheckpointGpuPair]) -> Result<(), DriverError> {
        self.around(CheckpointCall::Restore, pid, || self.0.restore(pid, pairs))
    }

    fn unlock(&self, pid: Pid) -> Result<(), DriverError> {
        self.around(CheckpointCall::Unlock, pid, || self.0.unlock(pid))
    }

    fn restore_thread(&self, pid: Pid) -> Result<i32, DriverError> {
        self.around(CheckpointCall::RestoreThread, pid, || self.0.restore_thread(pid))
    }
}

/// A holder that meets the faults.
pub struct FaultyHold {
    inner: Rc<dyn Hold>,
    faults: Arc<Faults>,
    /// Those whose threads it was asked to hold.
    frozen: RefCell<Vec<Pid>>,
}

impl FaultyHold {
    /// One that passes on what it is not ordered to spoil.
    pub fn new(inner: Rc<dyn Hold>, faults: Arc<Faults>) -> Self {
        Self { inner, faults, frozen: RefCell::default() }
    }

    fn around(
        &self,
        call: &str,
        targets: impl Iterator<Item = Pid>,
        body: impl FnOnce() -> Result<(), Vec<(Pid, NotFrozen)>>,
    ) -> Result<(), Vec<(Pid, NotFrozen)>> {
        let orders: Vec<(Pid, Order)> = targets.map(|pid| (pid, self.faults.order(call, pid))).collect();
        let failed = |(pid, order): &(Pid, Order)| {
            let reason = format!("ordered by {FAULTS_VARIABLE}");
            (*order != Order::Do).then_some((*pid, NotFrozen::System { tid: pid.number(), reason }))
        };
        let failed: Vec<_> = orders.iter().filter_map(failed).collect();
        if !orders.iter().any(|(_, order)| *order == Order::Fail) {
            body()?;
        }
        if failed.is_empty() { Ok(()) } else { Err(failed) }
    }
}

impl Hold for FaultyHold {
    fn process(&self) -> Option<i32> {
        self.inner.process()
    }

    fn watch(&self, run: Run, rescue: Vec<OsString>) -> Result<(), HoldError> {
        self.inner.watch(run, rescue)?;
        self.faults.holder.store(self.inner.process().unwrap_or(0), Ordering::Relaxed);
        Ok(())
    }

    fn freeze(&self, orders: &[freeze::Order]) -> Result<(), Vec<(Pid, NotFrozen)>> {
        self.frozen.replace(orders.iter().map(|order| order.target.pid).collect());
        self.around("freeze", orders.iter().map(|order| order.target.pid), || self.inner.freeze(orders))
    }

    fn thaw(&self, targets: &[Target]) -> Result<(), Vec<(Pid, NotFrozen)>> {
        self.around("thaw", targets.iter().map(|target| target.pid), || self.inner.thaw(targets))
    }

    fn thawer(&self) -> Thawer {
        self.inner.thawer()
    }

    fn keep(&self) -> Result<(), HoldError> {
        let frozen = self.frozen.borrow();
        let spoilt = frozen.iter().filter(|pid| self.faults.order("keep", **pid) != Order::Do).count();
        self.inner.keep()?;
        let ordered = || std::io::Error::other(format!("ordered by {FAULTS_VARIABLE}"));
        if spoilt == 0 { Ok(()) } else { Err(HoldError::Silent(ordered())) }
    }

    fn finish(&self) {
        self.inner.finish();
    }
}

impl std::fmt::Debug for FaultyHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FaultyHold").field(&self.faults).finish()
    }
}

impl<S> std::fmt::Debug for FaultyShims<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FaultyShims").field(&self.1).finish()
    }
}

impl<D> std::fmt::Debug for FaultyDriver<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FaultyDriver").field(&self.1).finish()
    }
}
