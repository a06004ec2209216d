//! Bringing the work of all processes to rest at one moment, and letting it go again.
//!
//! ```text
//!           +------------------------- step <--------------------------+
//!           v                                                           | somebody is busy
//!   close launches, look --- all idle ---> close memory too, look ------+
//!                                                 | all idle
//!                                                 v
//!                                              at rest
//! ```
//!
//! A process that does not come to rest may wait for work that is held in another. Held launches are then let
//! through one at a time, only among the processes that share memory with a busy one: first on idle ones, then on
//! busy ones that have held launches too. Past the deadline everything is opened again, and nothing is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::verbs::{Quiesce as QuiesceVerb, Reopen, Step as StepVerb};
use protocol::{Drain, GateLevel, Phase, QuiesceRequest, ReopenRequest, StepRequest};

use super::session::{GLANCE, OWN_BOUND, Session, inspect};
use super::{Arrival, Outcome, Step, StepError, Trouble, in_parallel};
use crate::client::Ask;
use crate::pid::{Pid, Target};
use crate::report::Stage;
use crate::topology::{Member, groups};

/// How long the first look waits: long enough for ordinary work to end by itself.
const FIRST_LOOK: Duration = Duration::from_millis(200);
/// How long a look waits after a launch was let through.
const NEXT_LOOK: Duration = Duration::from_millis(20);
/// How long a look waits where nothing can be let through.
const LONG_LOOK: Duration = Duration::from_millis(250);

/// What the processes answered, by process.
type Drains = BTreeMap<Pid, Drain>;

/// Brings all processes to rest.
#[derive(Debug)]
pub struct Quiesce<'s> {
    session: &'s Session,
    /// Where each process stood before. Empty for the undo of what another run of the command has done.
    found: BTreeMap<Pid, Phase>,
    /// How often each process was stepped.
    stepped: BTreeMap<Pid, u32>,
}

impl<'s> Quiesce<'s> {
    /// For all processes of the session that have a shim.
    pub const fn new(session: &'s Session) -> Self {
        Self { session, found: BTreeMap::new(), stepped: BTreeMap::new() }
    }

    /// Looks, steps, and looks again, until all are at rest.
    fn settle(&mut self, targets: &[Target]) -> Result<(), StepError> {
        let deadline = Instant::now() + self.session.timeout;
        let mut look = FIRST_LOOK;
        loop {
            let mut drains = self.close(targets, GateLevel::Launch, look, deadline)?;
            if all_idle(&drains) {
                drains = self.close(targets, GateLevel::Memory, FIRST_LOOK, deadline)?;
                if all_idle(&drains) {
                    return Ok(());
                }
                // A copy that is held is needed: the memory gates have to open again, on all processes.
                self.let_through(targets)?;
                look = NEXT_LOOK;
            } else {
                look = match self.next_to_step(targets, &drains)? {
                    Some(target) => {
                        self.let_through(&[target])?;
                        NEXT_LOOK
                    }
                    None => LONG_LOOK,
                };
            }
            if Instant::now() >= deadline {
                return Err(not_drained(self.session.timeout, &drains));
            }
        }
    }

    /// Closes the gates of all processes up to `level` and says what each still does after `look`.
    fn close(
        &self,
        targets: &[Target],
        level: GateLevel,
        look: Duration,
        deadline: Instant,
    ) -> Result<Drains, StepError> {
        self.session.uninterrupted()?;
        let wait = look.min(deadline.saturating_duration_since(Instant::now()));
        let request = QuiesceRequest { level, wait_ms: milliseconds(wait) };
        let shims = Arc::clone(&self.session.shims);
        let task = move |target: Target| {
            let reply = shims.ask_within::<QuiesceVerb>(target, &request, wait + GLANCE)?;
            healthy(target.pid, reply.drain)
        };
        let arrivals = in_parallel(Stage::Quiesce, targets, wait + GLANCE * 2, task, |_| {});
        collect(arrivals)
    }

    /// Lets one held launch through on each of `targets`, and opens their memory gates.
    fn let_through(&mut self, targets: &[Target]) -> Result<(), StepError> {
        let request = StepRequest { wait_ms: 0 };
        let shims = Arc::clone(&self.session.shims);
        let task = move |target: Target| {
            let reply = shims.ask_within::<StepVerb>(target, &request, GLANCE)?;
            healthy(target.pid, reply.drain)
        };
        let arrivals = in_parallel(Stage::Quiesce, targets, GLANCE * 2, task, |_| {});
        for target in targets {
            self.session.count_step(target.pid);
            *self.stepped.entry(target.pid).or_default() += 1;
        }
        collect(arrivals).map(drop)
    }

    /// The process whose turn it is, if any has a held launch that may help a busy one.
    fn next_to_step(&self, targets: &[Target], drains: &Drains) -> Result<Option<Target>, StepError> {
        let has_waiting = |pid: &Pid| drains.get(pid).is_some_and(|drain| !drain.waiting.is_empty());
        let is_busy = |pid: &Pid| drains.get(pid).is_none_or(|drain| !drain.drained);
        let candidates: Vec<Target> =
            targets.iter().copied().filter(|target| has_waiting(&target.pid)).collect();
        if candidates.is_empty() {
            return Ok(None);
        }
        let seen = self.session.inspect(targets, true);
        StepError::unless_empty(Stage::Quiesce, seen.failed)?;
        let groups = groups(&Member::of(seen.done));
        let connected =
            |pid: &Pid| groups.iter().any(|group| group.contains(pid) && group.iter().any(is_busy));
        let near: Vec<Target> = candidates.iter().copied().filter(|target| connected(&target.pid)).collect();
        // Processes may be connected by what no shim sees, a network for instance.
        let among = if near.is_empty() { candidates } else { near };
        Ok(among.into_iter().min_by_key(|target| {
            let times = self.stepped.get(&target.pid).copied().unwrap_or(0);
            (times, is_busy(&target.pid), target.pid)
        }))
    }
}

impl Step for Quiesce<'_> {
    fn stage(&self) -> Stage {
        Stage::Quiesce
    }

    fn apply(&mut self) -> Result<(), StepError> {
        let targets = self.session.shimmed();
        let seen = self.session.inspect(&targets, false);
        StepError::unless_empty(Stage::Quiesce, seen.failed)?;
        self.found = seen.done.into_iter().map(|(pid, inventory)| (pid, inventory.phase)).collect();
        let clock = self.session.begin(Stage::Quiesce, &targets);
        let settled = self.settle(&targets);
        for &target in &targets {
            let took = clock.elapsed();
            if settled.is_ok() {
                self.session.arrived(Stage::Quiesce, &Arrival { target, result: Ok(()), took }, None);
            }
        }
        self.session.end(Stage::Quiesce, clock);
        settled
    }

    fn undo(&mut self) -> Result<(), StepError> {
        let found = self.found.clone();
        let shims = Arc::clone(&self.session.shims);
        let task = move |target: Target| {
            // Somebody else's closed gate stays closed.
            if found.get(&target.pid).is_some_and(|phase| *phase != Phase::Running) {
                return Ok(());
            }
            match inspect(&*shims, target, false)?.phase {
                Phase::Running => Ok(()),
                Phase::Quiescing | Phase::Quiesced | Phase::Remapped => {
                    shims.ask_within::<Reopen>(target, &ReopenRequest {}, GLANCE)?;
                    Ok(())
                }
                phase @ (Phase::Released | Phase::Loaded) => Err(Trouble::Astray {
                    pid: target.pid,
                    found: phase.name().to_owned(),
                    expected: Phase::Remapped.name(),
                }),
            }
        };
        let targets = self.session.unstuck(self.session.shimmed());
        let failed = self.session.stage(Stage::Reopen, &targets, OWN_BOUND, |()| None, task).failed;
        self.session.leave_out(failed.iter().map(|(pid, _)| *pid));
        StepError::unless_empty(Stage::Reopen, failed)
    }
}

fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

fn all_idle(drains: &Drains) -> bool {
    drains.values().all(|drain| drain.drained)
}

/// A process whose contexts have failed can neither come to rest nor be carried.
fn healthy(pid: Pid, drain: Drain) -> Result<Drain, Trouble> {
    match drain.error {
        Some(number) => {
            let error = cuda_sys::CuError::from_raw(number)
                .map_or_else(|| number.to_string(), |error| error.to_string());
            Err(Trouble::Sticky { pid, error })
        }
        None => Ok(drain),
    }
}

fn collect(arrivals: Vec<Arrival<Drain>>) -> Result<Drains, StepError> {
    let Outcome { done, failed } = arrivals.into();
    StepError::unless_empty(Stage::Quiesce, failed).map(|()| done.into_iter().collect())
}

fn not_drained(limit: Duration, drains: &Drains) -> StepError {
    let busy = drains
        .iter()
        .filter(|(_, drain)| !drain.drained)
        .map(|(&pid, drain)| (pid, Trouble::Busy { pid, waits_for: described(drain) }))
        .collect();
    StepError::NotDrained { limit, busy }
}

/// What a process still does, in words.
fn described(drain: &Drain) -> String {
    let mut parts = Vec::new();
    let busy: Vec<String> = drain
        .contexts
        .iter()
        .filter(|context| context.busy)
        .map(|context| context.device.to_string())
        .collect();
    if !busy.is_empty() {
        parts.push(format!("GPU work that does not end on device {}", busy.join(", ")));
    }
    if drain.inside > 0 {
        parts.push(format!("{} thread(s) inside a driver call", drain.inside));
    }
    if drain.captures > 0 {
        parts.push(format!("{} stream capture(s) under way", drain.captures));
    }
    if let Some(first) = drain.waiting.first() {
        let count = drain.waiting.len();
        parts.push(format!("{count} thread(s) held at the gate ({} of thread {})", first.call, first.tid));
    }
    if parts.is_empty() { "work that does not end".into() } else { parts.join(", ") }
}
