//! What the verbs work with.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::check::{Machine, Seen, Standing, host_shares};
use crate::client::{Shims, Sockets};
use crate::driver::library::LibCuda;
use crate::driver::{Driver, DriverError};
use crate::faults::{Faults, FaultyDriver, FaultyHold, FaultyShims};
use crate::freeze::Hold;
use crate::interrupt::Interrupt;
use crate::lifecycle::{Participant, Session};
use crate::pid::Pid;
use crate::proc::{ProcError, ProcFs};
use crate::report::{Event, Reporter};
use crate::state::Run;

/// What the verbs work with.
pub struct Context {
    /// The processes, the driver, the shims.
    pub machine: Machine,
    /// Where to report.
    pub reporter: Arc<dyn Reporter>,
    /// Whether the command was asked to stop.
    pub interrupt: Rc<Interrupt>,
    /// Who holds threads still and watches over this run.
    pub hold: Rc<dyn Hold>,
    /// Whether a suspend is to hold threads still.
    pub freezes: bool,
    /// Which run of the command this is, or is part of.
    pub run: Run,
    /// Whether it carries on what a command began that has died.
    pub rescues: bool,
    /// Where the state directory is, if not at the usual place.
    pub state_dir: Option<std::path::PathBuf>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("machine", &self.machine).finish_non_exhaustive()
    }
}

impl Context {
    /// The real machine; `faults` are what a test ordered.
    pub fn open(
        reporter: Arc<dyn Reporter>,
        interrupt: Rc<Interrupt>,
        (hold, freezes): (Rc<dyn Hold>, bool),
        (run, rescues): (Run, bool),
        faults: Option<Arc<Faults>>,
    ) -> Self {
        let proc = ProcFs::default();
        let watcher = Arc::clone(&reporter);
        let shims = Sockets::new(proc.clone()).watched_by(Box::new(move |pid, progress| {
            watcher.report(&Event::Moving { pid, bytes: progress.bytes, total: progress.total });
        }));
        let driver = LibCuda::open();
        type Outside = (Result<Arc<dyn Driver>, DriverError>, Arc<dyn Shims>, Rc<dyn Hold>);
        let (driver, shims, hold): Outside = match faults {
            None => (driver.map(|driver| Arc::new(driver) as _), Arc::new(shims), hold),
            Some(faults) => {
                let shims = FaultyShims(shims, Arc::clone(&faults));
                let hold = Rc::new(FaultyHold::new(hold, Arc::clone(&faults)));
                (driver.map(|driver| Arc::new(FaultyDriver(driver, faults)) as _), Arc::new(shims), hold)
            }
        };
        let machine = Machine { proc, driver, shims };
        Self { machine, reporter, interrupt, hold, freezes, run, rescues, state_dir: None }
    }

    /// A run over these processes.
    pub(super) fn session(&self, driver: &Arc<dyn Driver>, seen: &[Seen], timeout: Duration) -> Session {
        let participants = seen
            .iter()
            .filter(|seen| seen.takes_part())
            .map(|seen| Participant {
                target: seen.target,
                shimmed: matches!(seen.standing, Standing::Shimmed(_)),
            })
            .collect();
        let mut session = Session::new(
            Arc::clone(driver),
            Arc::clone(&self.machine.shims),
            Arc::clone(&self.reporter),
            participants,
            timeout,
            Rc::clone(&self.interrupt),
            (Rc::clone(&self.hold), self.freezes),
        );
        session.shares = host_shares(&self.machine.proc, session.all().into_iter().map(|target| target.pid));
        session
    }
}

impl Machine {
    /// The processes that use CUDA among these and all their descendants.
    pub(super) fn below(&self, roots: &[Pid]) -> Result<Vec<Pid>, ProcError> {
        let mut all = Vec::new();
        for root in roots {
            all.extend(self.proc.tree(*root)?);
        }
        let touching = self.cuda_processes(Some(&all))?;
        let (seen, _) = self.look_at(&touching, false);
        Ok(seen
            .into_iter()
            .filter(|seen| !matches!(seen.standing, Standing::Idle))
            .map(|seen| seen.target.pid)
            .collect())
    }
}
