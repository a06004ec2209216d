//! Bringing the work of all processes to rest at one moment, and letting it go again.
//!
//! ```text
//!           +--- step <---+                         +--- step <---+
//!           v             | somebody is busy        v             | somebody is busy
//!   close launches, look -+--- all idle ---> close memory too, look -+--- all idle ---> at rest
//!           ^                                       |
//!           +------------- let memory through <-----+ it does not help for long
//! ```
//!
//! A process that does not come to rest may wait for work that is held in another. Held calls are then let
//! through one at a time, only of threads of the processes that share memory with a busy one, in the order of [`Chase`].
//! Past the deadline everything is opened again, and nothing is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::verbs::{Quiesce as QuiesceVerb, Reopen, Step as StepVerb};
use protocol::{
    BusyStream, Drain, GateLevel, Held, Phase, QuiesceRequest, ReopenRequest, StepRequest, WaitingThread,
};

use super::chase::{Caller, Chase, Turn, Waiting};
use super::session::{GLANCE, OWN_BOUND, Session, inspect};
use super::{Arrival, Outcome, Step, StepError, Trouble, in_parallel};
use crate::client::Ask;
use crate::pid::{Pid, Target};
use crate::report::Stage;
use crate::topology::{Member, groups};

/// How long the first look waits: long enough for ordinary work to end by itself.
const FIRST_LOOK: Duration = Duration::from_millis(50);
/// How long a look waits after a call was let through: it grows a little each time, for machines on which even that what is
/// about to end takes longer. Only a little: two groups in the same processes may take hundreds of turns.
const NEXT_LOOK: Duration = Duration::from_millis(3);
/// How long a look waits before a call of a busy process is let through: it may just be running.
const PATIENT_LOOK: Duration = Duration::from_millis(25);
/// How long a look waits at most, and where nothing can be let through.
const LONG_LOOK: Duration = Duration::from_millis(250);
/// How long a look waits at most on a machine that is slow to answer.
const LONGEST_LOOK: Duration = Duration::from_secs(1);
/// Calls let through at closed memory gates before those are opened again: who makes many copies makes them faster so.
const MEMORY_STEPS: u32 = 100;

/// What the processes answered, by process.
type Drains = BTreeMap<Pid, Drain>;

/// Brings all processes to rest.
#[derive(Debug)]
pub struct Quiesce<'s> {
    session: &'s Session,
    /// Where each process stood before. Empty for the undo of what another run of the command has done.
    found: BTreeMap<Pid, Phase>,
}

impl<'s> Quiesce<'s> {
    /// For all processes of the session that have a shim.
    pub const fn new(session: &'s Session) -> Self {
        Self { session, found: BTreeMap::new() }
    }

    /// Looks, lets calls through, and looks again, until all are at rest.
    fn settle(&self, targets: &[Target]) -> Result<(), StepError> {
        let deadline = Instant::now() + self.session.timeout;
        let (mut level, mut look, mut next_look) = (GateLevel::Launch, FIRST_LOOK, NEXT_LOOK);
        let mut chase = Chase::new(fastrand::Rng::new());
        // A thread that is ahead, and may just have work that runs: it goes on if that has not ended after a longer look.
        let mut meant: Option<Caller> = None;
        let mut groups = None;
        let mut memory_steps = 0;
        loop {
            let drains = self.close(targets, level, look, deadline, false)?;
            if all_idle(&drains) {
                if level == GateLevel::Memory {
                    return Ok(());
                }
                (level, look) = (GateLevel::Memory, FIRST_LOOK);
                continue;
            }
            if Instant::now() >= deadline {
                let drains = self.close(targets, GateLevel::Memory, Duration::ZERO, deadline, true)?;
                return Err(not_drained(self.session.timeout, &drains));
            }
            if memory_steps == MEMORY_STEPS {
                self.let_through(targets, Held::Memory)?;
                (level, look, memory_steps) = (GateLevel::Launch, FIRST_LOOK, 0);
                continue;
            }
            if groups.is_none() {
                groups = Some(self.groups(targets)?);
            }
            let groups = groups.as_deref().unwrap_or_default();
            let waiting = candidates(groups, &drains);
            let turn = match meant.take().filter(|caller| waiting.ahead.contains(caller)) {
                Some(caller) => Some(Turn::Ahead(caller)),
                None => chase.next(&waiting, busy(&drains)),
            };
            let caller = match turn {
                Some(Turn::Ahead(caller)) if look < PATIENT_LOOK => {
                    look = PATIENT_LOOK;
                    meant = Some(caller);
                    continue;
                }
                Some(Turn::Ahead(caller)) => {
                    chase.went(caller);
                    caller
                }
                Some(Turn::Free(caller)) => caller,
                None => {
                    look = LONG_LOOK;
                    continue;
                }
            };
            let going: Vec<Target> =
                targets.iter().copied().filter(|target| target.pid == caller.pid).collect();
            let asked = Instant::now();
            self.let_through(&going, Held::Thread(caller.tid))?;
            memory_steps += u32::from(level == GateLevel::Memory);
            // Where an answer takes long, work that is about to end does too.
            look = next_look.max(asked.elapsed() * 2).min(LONGEST_LOOK);
            next_look = (next_look * 301 / 300).min(LONG_LOOK);
        }
    }

    /// Closes the gates of all processes up to `level` and says what each still does after `look`.
    fn close(
        &self,
        targets: &[Target],
        level: GateLevel,
        look: Duration,
        deadline: Instant,
        name_streams: bool,
    ) -> Result<Drains, StepError> {
        self.session.uninterrupted()?;
        let wait = look.min(deadline.saturating_duration_since(Instant::now()));
        let request = QuiesceRequest { level, wait_ms: milliseconds(wait), name_streams };
        let shims = Arc::clone(&self.session.shims);
        let task = move |target: Target| {
            let reply = shims.ask_within::<QuiesceVerb>(target, &request, wait + GLANCE)?;
            healthy(target.pid, reply.drain)
        };
        let arrivals = in_parallel(Stage::Quiesce, targets, wait + GLANCE * 2, task, |_| {});
        collect(arrivals)
    }

    /// Lets held calls through on each of `targets`.
    fn let_through(&self, targets: &[Target], held: Held) -> Result<(), StepError> {
        let request = StepRequest { held, wait_ms: 0 };
        let shims = Arc::clone(&self.session.shims);
        let task = move |target: Target| {
            let reply = shims.ask_within::<StepVerb>(target, &request, GLANCE)?;
            healthy(target.pid, reply.drain)
        };
        let arrivals = in_parallel(Stage::Quiesce, targets, GLANCE * 2, task, |_| {});
        targets.iter().for_each(|target| self.session.count_step(target.pid));
        collect(arrivals).map(drop)
    }

    /// Which processes are connected by memory that they share.
    fn groups(&self, targets: &[Target]) -> Result<Vec<BTreeSet<Pid>>, StepError> {
        let seen = self.session.inspect(targets, true);
        StepError::unless_empty(Stage::Quiesce, seen.failed)?;
        Ok(groups(&Member::of(seen.done)))
    }
}

/// The threads of a process that may be let through. The begin of a capture is not while another is under way: that has to come to
/// its end, and so would the next; nor while the process has other threads that wait.
fn callers(pid: Pid, drain: &Drain) -> Waiting {
    let begins = |waiting: &WaitingThread| waiting.call.starts_with("cuStreamBeginCapture");
    let all_begin = drain.waiting.iter().all(begins);
    let mut callers = Waiting::default();
    for waiting in &drain.waiting {
        if begins(waiting) && (drain.captures > 0 || !all_begin) {
            continue;
        }
        let is_free = drain.drained || waiting.unfinished == Some(false);
        let list = if is_free { &mut callers.free } else { &mut callers.ahead };
        list.insert(Caller { pid, tid: waiting.tid });
    }
    callers
}

fn busy(drains: &Drains) -> BTreeSet<Pid> {
    drains.iter().filter(|(_, drain)| !drain.drained).map(|(pid, _)| *pid).collect()
}

/// Threads with a held call that may help a busy process.
fn candidates(groups: &[BTreeSet<Pid>], drains: &Drains) -> Waiting {
    let busy = busy(drains);
    let connected = |pid: &Pid| groups.iter().any(|group| group.contains(pid) && !group.is_disjoint(&busy));
    let of = |wanted: &dyn Fn(&Pid) -> bool| {
        let mut all = Waiting::default();
        for (&pid, drain) in drains.iter().filter(|(pid, _)| wanted(pid)) {
            let mut callers = callers(pid, drain);
            all.free.append(&mut callers.free);
            all.ahead.append(&mut callers.ahead);
        }
        all
    };
    let near = of(&connected);
    // Processes may be connected by what no shim sees, a network for instance.
    if near.free.is_empty() && near.ahead.is_empty() { of(&|_| true) } else { near }
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
    if !drain.streams.is_empty() {
        let streams: Vec<String> = drain.streams.iter().map(described_stream).collect();
        parts.push(format!("on {}", streams.join(", ")));
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

fn described_stream(stream: &BusyStream) -> String {
    match stream.handle {
        0 => format!("the default stream of device {}", stream.device),
        handle => format!("stream {handle:#x} of device {}", stream.device),
    }
}
