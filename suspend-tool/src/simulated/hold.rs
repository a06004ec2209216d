//! Made-up threads, held still.

use std::ffi::OsString;
use std::sync::{Arc, Mutex};

use cuda_sys::ProcessState;

use super::driver::restore_thread_of;
use super::process::library_thread_of;
use super::{Fault, Inner, locked};
use crate::freeze::{Hold, HoldError, NotFrozen, Order, Thawer};
use crate::pid::{Pid, Target};
use crate::state::Run;

pub(super) struct Simulated(pub(super) Arc<Mutex<Inner>>);

type Failures = Vec<(Pid, NotFrozen)>;

impl Simulated {
    /// Freezes or thaws each process; as with the real one, a freeze that fails anywhere leaves nobody frozen.
    fn each(&self, what: &'static str, pids: &[Pid], frozen: bool) -> Result<(), Failures> {
        let mut inner = locked(&self.0);
        let mut failed = Failures::new();
        for &pid in pids {
            let fault = inner.called(pid.number(), what);
            let error = || (pid, NotFrozen::System { tid: pid.number(), reason: "made to fail".into() });
            match inner.processes.get_mut(&pid.number()) {
                None if frozen => failed.push((pid, NotFrozen::Gone)),
                None => {}
                Some(_) if fault == Some(Fault::Before) => failed.push(error()),
                Some(process) => {
                    process.frozen = frozen;
                    if fault == Some(Fault::After) {
                        failed.push(error());
                    }
                }
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(failed) }
    }
}

impl Hold for Simulated {
    fn process(&self) -> Option<i32> {
        None
    }

    fn watch(&self, _run: Run, _rescue: Vec<OsString>) -> Result<(), HoldError> {
        Ok(())
    }

    fn freeze(&self, orders: &[Order]) -> Result<(), Failures> {
        for order in orders {
            let pid = order.target.pid;
            let spared = [restore_thread_of(pid), library_thread_of(pid.number())];
            let mut inner = locked(&self.0);
            if order.spared != spared {
                inner.violation(format!("these threads of {pid} were spared: {:?}", order.spared));
            }
            let state = inner.processes.get(&pid.number()).map(|process| process.state);
            if state.is_some_and(|state| state != ProcessState::CHECKPOINTED) {
                inner.violation(format!("{pid} was frozen in state {state:?}"));
            }
        }
        let pids: Vec<Pid> = orders.iter().map(|order| order.target.pid).collect();
        let result = self.each("freeze", &pids, true);
        if result.is_err() {
            let mut inner = locked(&self.0);
            inner.processes.values_mut().for_each(|process| process.frozen = false);
        }
        result
    }

    fn thaw(&self, targets: &[Target]) -> Result<(), Failures> {
        self.each("thaw", &targets.iter().map(|target| target.pid).collect::<Vec<_>>(), false)
    }

    fn thawer(&self) -> Thawer {
        let inner = Arc::clone(&self.0);
        Box::new(move |targets| {
            let mut inner = locked(&inner);
            for target in targets {
                if let Some(process) = inner.processes.get_mut(&target.pid.number()) {
                    process.frozen = false;
                }
            }
        })
    }

    fn keep(&self) -> Result<(), HoldError> {
        Ok(())
    }

    fn finish(&self) {}
}
