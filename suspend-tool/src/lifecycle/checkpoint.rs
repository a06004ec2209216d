//! The driver's part: its lock and its checkpoint.
//!
//! All processes are locked before the first is checkpointed, and all at once: a process that is locked can block
//! every call about a process it shares something with. For the same reason an undo asks for the state and acts on
//! it in one go per process; waiting for all states first could wait for a process that only the unlock of another
//! sets free.

use std::sync::Arc;
use std::time::Duration;

use cuda_sys::{CheckpointGpuPair, ProcessState};
use protocol::{Allocation, Contents, Inventory, Phase};

use super::freeze::{freeze, relieve, thaw};
use super::session::{DRIVER_MOVES, GLANCE, Session};
use super::{Outcome, Step, StepError, Trouble};
use crate::driver::Driver;
use crate::pid::{Pid, Target};
use crate::report::Stage;

/// Makes the driver calls of all processes wait.
#[derive(Debug)]
pub struct Lock<'s> {
    session: &'s Session,
    pairs: Vec<CheckpointGpuPair>,
}

impl<'s> Lock<'s> {
    /// For all processes of the session; one whose checkpoint was still under way when it was looked at comes back on
    /// the GPUs that `pairs` names.
    pub const fn new(session: &'s Session, pairs: Vec<CheckpointGpuPair>) -> Self {
        Self { session, pairs }
    }

    /// A restore fails for good where anything shared was left. So this is looked at, and not concluded, before the
    /// driver is asked.
    fn nothing_is_shared(&self) -> Result<(), StepError> {
        let Outcome { done, mut failed } = self.session.inspect(&self.session.shimmed(), true);
        failed.extend(done.iter().filter_map(|(pid, inventory)| Some((*pid, left_over(*pid, inventory)?))));
        StepError::unless_empty(Stage::Lock, failed)
    }
}

/// What a process still holds that the driver could not restore.
fn left_over(pid: Pid, inventory: &Inventory) -> Option<Trouble> {
    if inventory.phase != Phase::Released {
        let found = inventory.phase.name().to_owned();
        return Some(Trouble::Astray { pid, found, expected: Phase::Released.name() });
    }
    let live: Vec<&Allocation> =
        inventory.allocations.iter().filter(|allocation| allocation.contents == Contents::Live).collect();
    if let Some(first) = live.first() {
        return Some(Trouble::LeftOver { pid, count: live.len(), example: first.id.to_string() });
    }
    let blocker = inventory.blockers.first()?;
    Some(Trouble::LeftOver { pid, count: inventory.blockers.len(), example: blocker.example.clone() })
}

impl Step for Lock<'_> {
    fn stage(&self) -> Stage {
        Stage::Lock
    }

    fn apply(&mut self) -> Result<(), StepError> {
        self.nothing_is_shared()?;
        let driver = Arc::clone(&self.session.driver);
        let limit = self.session.timeout;
        let timeout_ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        let task = move |target: Target| match driver.state(target.pid)? {
            ProcessState::RUNNING => Ok(driver.lock(target.pid, timeout_ms)?),
            // A repeated command carries on.
            ProcessState::LOCKED | ProcessState::CHECKPOINTED => Ok(()),
            state => Err(given_up_or_astray(target.pid, state, "running")),
        };
        run(self.session, Stage::Lock, self.session.all(), limit + GLANCE, task)
    }

    fn undo(&mut self) -> Result<(), StepError> {
        let driver = Arc::clone(&self.session.driver);
        let pairs = self.pairs.clone();
        let task = move |target: Target| let_run(&*driver, target.pid, &pairs);
        undo(self.session, Stage::Unlock, DRIVER_MOVES, task)
    }
}

/// Has the driver let a process run, from whatever state it is in. A command that was killed may have left a call under
/// way, so that the state changes between the question and the answer to it.
fn let_run(driver: &dyn Driver, pid: Pid, pairs: &[CheckpointGpuPair]) -> Result<(), Trouble> {
    let mut before = None;
    loop {
        let state = driver.state(pid)?;
        let moved = match state {
            ProcessState::CHECKPOINTED => driver.restore(pid, pairs),
            ProcessState::LOCKED => driver.unlock(pid),
            ProcessState::RUNNING => return Ok(()),
            state => return Err(given_up_or_astray(pid, state, "locked")),
        };
        match moved {
            Err(error) if before.replace(state) == Some(state) => return Err(error.into()),
            Err(_) | Ok(()) => {}
        }
    }
}

/// Has the driver save what it has of all processes, and free it; then holds their threads still.
#[derive(Debug)]
pub struct Checkpoint<'s> {
    session: &'s Session,
    pairs: Vec<CheckpointGpuPair>,
}

impl<'s> Checkpoint<'s> {
    /// For all processes of the session; they come back on the GPUs that `pairs` names.
    pub const fn new(session: &'s Session, pairs: Vec<CheckpointGpuPair>) -> Self {
        Self { session, pairs }
    }
}

impl Step for Checkpoint<'_> {
    fn stage(&self) -> Stage {
        Stage::Checkpoint
    }

    fn apply(&mut self) -> Result<(), StepError> {
        let driver = Arc::clone(&self.session.driver);
        let task = move |target: Target| match driver.state(target.pid)? {
            ProcessState::LOCKED => Ok(driver.checkpoint(target.pid)?),
            ProcessState::CHECKPOINTED => Ok(()),
            state => Err(given_up_or_astray(target.pid, state, "locked")),
        };
        run(self.session, Stage::Checkpoint, self.session.all(), DRIVER_MOVES, task)?;
        freeze(self.session)
    }

    fn undo(&mut self) -> Result<(), StepError> {
        let driver = Arc::clone(&self.session.driver);
        let pairs = self.pairs.clone();
        let task = move |target: Target| match driver.state(target.pid)? {
            ProcessState::CHECKPOINTED => Ok(driver.restore(target.pid, &pairs)?),
            // Never got there, or is back already.
            ProcessState::LOCKED | ProcessState::RUNNING => Ok(()),
            state => Err(given_up_or_astray(target.pid, state, "checkpointed")),
        };
        let relief = relieve(self.session);
        let restored = undo(self.session, Stage::Restore, DRIVER_MOVES, task);
        drop(relief);
        // Whatever became of it: a thread that stays frozen helps nobody.
        let thawed = thaw(self.session);
        restored.and(thawed)
    }
}

fn given_up_or_astray(pid: Pid, state: ProcessState, expected: &'static str) -> Trouble {
    match state {
        ProcessState::FAILED => Trouble::GivenUp { pid },
        state => Trouble::Astray { pid, found: crate::driver::state_name(state), expected },
    }
}

fn run(
    session: &Session,
    stage: Stage,
    targets: Vec<Target>,
    limit: Duration,
    task: impl Fn(Target) -> Result<(), Trouble> + Send + Sync + 'static,
) -> Result<(), StepError> {
    let failed = session.stage(stage, &targets, limit, |()| None, task).failed;
    StepError::unless_empty(stage, failed)
}

fn undo(
    session: &Session,
    stage: Stage,
    limit: Duration,
    task: impl Fn(Target) -> Result<(), Trouble> + Send + Sync + 'static,
) -> Result<(), StepError> {
    let targets = session.unstuck(session.all());
    let failed = session.stage(stage, &targets, limit, |()| None, task).failed;
    session.leave_out(failed.iter().map(|(pid, _)| *pid));
    StepError::unless_empty(stage, failed)
}
