//! What all steps of one run of the command have in common.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda_sys::ProcessState;
use protocol::verbs::Inspect;
use protocol::{HostLimits, InspectRequest, Inventory, Moved, ReadFrom};

use super::{Arrival, Outcome, StepError, Trouble, in_parallel};
use crate::client::{Ask, Patience, ShimError, Shims};
use crate::driver::Driver;
use crate::freeze::Hold;
use crate::interrupt::Interrupt;
use crate::pid::{Pid, Target};
use crate::report::{Event, Reporter, Stage, chain};

/// How long a question that needs no work may take.
pub(super) const GLANCE: Duration = Duration::from_secs(10);
/// How long moving bytes may stand still.
pub(super) const STANDSTILL: Duration = Duration::from_secs(60);
/// How long a call may take whose time depends on bytes the command cannot watch: the driver's own checkpoint and
/// restore. It moves at least 2 GB/s, so that a full card takes little more than a minute.
pub(super) const DRIVER_MOVES: Duration = Duration::from_secs(600);
/// How soon to look again at a process that another command has left at work.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// A bound for what has its own.
pub(super) const OWN_BOUND: Duration = Duration::from_secs(24 * 3600);

/// A process that takes part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Participant {
    /// The process.
    pub target: Target,
    /// Whether it has a shim that answers. One without (it uses the management library only) is locked and
    /// checkpointed like the rest.
    pub shimmed: bool,
}

/// What was measured.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Seconds each stage took, in the order in which they were begun.
    pub stages: Vec<(Stage, Duration)>,
    /// Bytes by fate for each stage that deals with bytes.
    pub bytes: BTreeMap<Stage, Moved>,
    /// Held launches that were let through.
    pub steps: u64,
}

/// One run of the command over a set of processes.
pub struct Session {
    /// The driver.
    pub driver: Arc<dyn Driver>,
    /// The shims.
    pub shims: Arc<dyn Shims>,
    /// Who takes part.
    pub participants: Vec<Participant>,
    /// How long to wait for a quiet point.
    pub timeout: Duration,
    /// Whether the command was asked to stop.
    pub interrupt: Rc<Interrupt>,
    /// Where what was saved to a store is read.
    pub from: ReadFrom,
    /// How much host memory each may use on the way of what is loaded.
    pub shares: BTreeMap<Pid, HostLimits>,
    /// Who holds threads still.
    pub hold: Rc<dyn Hold>,
    /// Whether threads are to be held still.
    pub freezes: bool,
    reporter: Arc<dyn Reporter>,
    stuck: RefCell<BTreeSet<Pid>>,
    tally: RefCell<Tally>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("participants", &self.participants)
            .field("stuck", &self.stuck)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// A run over these processes.
    pub fn new(
        driver: Arc<dyn Driver>,
        shims: Arc<dyn Shims>,
        reporter: Arc<dyn Reporter>,
        participants: Vec<Participant>,
        timeout: Duration,
        interrupt: Rc<Interrupt>,
        hold: (Rc<dyn Hold>, bool),
    ) -> Self {
        let (hold, freezes) = hold;
        Self {
            driver,
            shims,
            participants,
            timeout,
            interrupt,
            from: ReadFrom::default(),
            shares: BTreeMap::new(),
            hold,
            freezes,
            reporter,
            stuck: RefCell::default(),
            tally: RefCell::default(),
        }
    }

    /// The same, with what was saved to a store read from there.
    #[must_use]
    pub fn reading(self, from: ReadFrom) -> Self {
        Self { from, ..self }
    }

    pub(super) fn report(&self, event: &Event<'_>) {
        self.reporter.report(event);
    }

    /// An error when the command was asked to stop.
    pub(super) fn uninterrupted(&self) -> Result<(), StepError> {
        self.interrupt.pending().map_or(Ok(()), |signal| Err(StepError::Interrupted(signal)))
    }

    /// All processes.
    pub fn all(&self) -> Vec<Target> {
        self.participants.iter().map(|participant| participant.target).collect()
    }

    /// The processes with a shim.
    pub fn shimmed(&self) -> Vec<Target> {
        let shimmed = self.participants.iter().filter(|participant| participant.shimmed);
        shimmed.map(|participant| participant.target).collect()
    }

    /// Those of `targets` that no undo has failed on.
    pub(super) fn unstuck(&self, targets: Vec<Target>) -> Vec<Target> {
        let stuck = self.stuck.borrow();
        targets.into_iter().filter(|target| !stuck.contains(&target.pid)).collect()
    }

    /// The processes that an undo has failed on.
    pub fn stuck(&self) -> BTreeSet<Pid> {
        self.stuck.borrow().clone()
    }

    pub(super) fn is_stuck(&self, pid: Pid) -> bool {
        self.stuck.borrow().contains(&pid)
    }

    /// Leaves these processes out of what follows.
    pub(super) fn leave_out(&self, pids: impl IntoIterator<Item = Pid>) {
        self.stuck.borrow_mut().extend(pids);
    }

    /// What was measured so far.
    pub fn tally(&self) -> Tally {
        self.tally.borrow().clone()
    }

    pub(super) fn count_step(&self, pid: Pid) {
        self.tally.borrow_mut().steps += 1;
        self.report(&Event::Stepped { pid });
    }

    /// Runs a whole stage: `task` on all targets at once, with its beginning, its results and its end reported.
    pub(super) fn stage<T: Send + 'static>(
        &self,
        stage: Stage,
        targets: &[Target],
        limit: Duration,
        bytes: fn(&T) -> Option<Moved>,
        task: impl Fn(Target) -> Result<T, Trouble> + Send + Sync + 'static,
    ) -> Outcome<T> {
        let clock = self.begin(stage, targets);
        let arrivals = in_parallel(stage, targets, limit, task, |arrival| {
            let bytes = arrival.result.as_ref().ok().and_then(bytes);
            self.arrived(stage, arrival, bytes);
        });
        self.end(stage, clock);
        arrivals.into()
    }

    /// Reports the beginning of a stage.
    pub(super) fn begin(&self, stage: Stage, targets: &[Target]) -> Instant {
        let pids: Vec<Pid> = targets.iter().map(|target| target.pid).collect();
        self.report(&Event::Begin { stage, pids: &pids });
        Instant::now()
    }

    /// Reports what came of a stage for one process.
    pub(super) fn arrived<T>(&self, stage: Stage, arrival: &Arrival<T>, bytes: Option<Moved>) {
        let pid = arrival.target.pid;
        match &arrival.result {
            Ok(_) => {
                if let Some(bytes) = bytes {
                    let mut tally = self.tally.borrow_mut();
                    let sum = tally.bytes.entry(stage).or_default();
                    sum.objects = sum.objects.saturating_add(bytes.objects);
                    sum.moved = sum.moved.saturating_add(bytes.moved);
                    sum.zero = sum.zero.saturating_add(bytes.zero);
                    sum.deduplicated = sum.deduplicated.saturating_add(bytes.deduplicated);
                }
                self.report(&Event::Done { stage, pid, took: arrival.took, bytes });
            }
            Err(trouble) => self.report(&Event::Failed { stage, pid, error: &chain(trouble) }),
        }
    }

    /// Reports the end of a stage.
    pub(super) fn end(&self, stage: Stage, begun: Instant) {
        let took = begun.elapsed();
        self.report(&Event::End { stage, took });
        let mut tally = self.tally.borrow_mut();
        match tally.stages.iter_mut().find(|(known, _)| *known == stage) {
            Some((_, sum)) => *sum += took,
            None => tally.stages.push((stage, took)),
        }
    }

    /// What these processes have.
    pub fn inspect(&self, targets: &[Target], allocations: bool) -> Outcome<Inventory> {
        let shims = Arc::clone(&self.shims);
        let task = move |target| inspect(&*shims, target, allocations);
        in_parallel(Stage::Check, targets, OWN_BOUND, task, |_| {}).into()
    }

    /// The driver's states of all processes.
    pub fn driver_states(&self) -> Vec<(Target, Result<ProcessState, Trouble>)> {
        let driver = Arc::clone(&self.driver);
        let ask = move |target: Target| Ok(driver.state(target.pid)?);
        let arrivals = in_parallel(Stage::Check, &self.all(), GLANCE, ask, |_| {});
        arrivals.into_iter().map(|arrival| (arrival.target, arrival.result)).collect()
    }
}

/// Asks one process what it has, once no verb is being carried out there: a command that was killed leaves one behind,
/// and where the process stands is not decided before it has ended.
pub(super) fn inspect(shims: &dyn Shims, target: Target, allocations: bool) -> Result<Inventory, Trouble> {
    let request = InspectRequest { allocations };
    let mut last = None;
    let mut since = Instant::now();
    loop {
        let inventory = shims.ask::<Inspect>(target, &request, Patience::For(GLANCE))?;
        let Some(progress) = inventory.progress else { return Ok(inventory) };
        if last.replace(progress) != Some(progress) {
            since = Instant::now();
        } else if since.elapsed() > STANDSTILL {
            let (pid, verb) = (target.pid, progress.verb.name());
            return Err(ShimError::Stalled { pid, verb, limit: STANDSTILL }.into());
        }
        // Nobody can be asked to say when it is over.
        std::thread::sleep(LOOK_AGAIN);
    }
}
