//! Holding the processor threads still, and letting them go on.
//!
//! Part of the checkpoint: they are frozen when the driver has checkpointed their process, and go on when it has restored
//! it. Both the driver's restore thread and the library's threads go on all the time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use protocol::InspectRequest;
use protocol::verbs::Inspect;

use super::session::{GLANCE, Session};
use super::{Outcome, StepError, Trouble, in_parallel};
use crate::client::{Ask, Patience, ShimError};
use crate::freeze::{NotFrozen, Order};
use crate::pid::{Pid, Target};
use crate::report::Stage;

/// How often it is tried: a thread that was stopped with a lock of the allocator in its hands may keep the library from
/// answering, and is caught somewhere else the next time.
const ATTEMPTS: u32 = 5;
/// How long a process whose threads are frozen may take to answer.
const ANSWER: Duration = Duration::from_secs(1);

/// Freezes all processes of the session, if that is wanted.
pub(super) fn freeze(session: &Session) -> Result<(), StepError> {
    if !session.freezes {
        return Ok(());
    }
    let targets = session.all();
    let clock = session.begin(Stage::Freeze, &targets);
    let frozen = orders(session).and_then(|orders| freeze_so_that_all_answer(session, &orders));
    session.end(Stage::Freeze, clock);
    frozen
}

/// What is to be frozen, and what goes on.
fn orders(session: &Session) -> Result<Vec<Order>, StepError> {
    let driver = Arc::clone(&session.driver);
    let ask = move |target: Target| Ok(driver.restore_thread(target.pid)?);
    let asked: Outcome<i32> = in_parallel(Stage::Freeze, &session.all(), GLANCE, ask, |_| {}).into();
    let inventories = session.inspect(&session.shimmed(), false);
    let failed = asked.failed.into_iter().chain(inventories.failed).collect();
    StepError::unless_empty(Stage::Freeze, failed)?;
    let mut spared: BTreeMap<Pid, Vec<i32>> = BTreeMap::new();
    for (pid, thread) in asked.done {
        spared.entry(pid).or_default().push(thread);
    }
    for (pid, inventory) in inventories.done {
        spared.entry(pid).or_default().extend(inventory.threads);
    }
    let order = |target: Target| Order { target, spared: spared.remove(&target.pid).unwrap_or_default() };
    Ok(session.all().into_iter().map(order).collect())
}

fn freeze_so_that_all_answer(session: &Session, orders: &[Order]) -> Result<(), StepError> {
    let mut attempt = 1;
    loop {
        session.hold.freeze(orders).map_err(|failed| told(Stage::Freeze, failed))?;
        let silent = silent(session);
        let may_be_luck =
            |(_, trouble): &(Pid, Trouble)| matches!(trouble, Trouble::Shim(ShimError::Late { .. }));
        if attempt == ATTEMPTS || silent.is_empty() || !silent.iter().all(may_be_luck) {
            return StepError::unless_empty(Stage::Freeze, silent);
        }
        attempt += 1;
        session.hold.thaw(&session.all()).map_err(|failed| told(Stage::Thaw, failed))?;
    }
}

/// The processes that do not answer while their threads are frozen.
fn silent(session: &Session) -> Vec<(Pid, Trouble)> {
    let shims = Arc::clone(&session.shims);
    let request = InspectRequest { allocations: false };
    let ask = move |target| Ok(shims.ask::<Inspect>(target, &request, Patience::For(ANSWER))?);
    let asked: Outcome<_> = in_parallel(Stage::Freeze, &session.shimmed(), ANSWER * 2, ask, |_| {}).into();
    asked.failed
}

/// How long a restore may take before the threads of its process are let go on all the same: it may wait for a lock that
/// one of them holds. They meet the closed gate.
const RELIEF: Duration = if cfg!(test) { Duration::from_millis(300) } else { Duration::from_secs(20) };

/// Lets threads go on while a restore takes too long. Dropped when that is over.
pub(super) struct Relief {
    _over: Sender<()>,
}

/// Watches over the restore that is about to begin.
pub(super) fn relieve(session: &Session) -> Relief {
    let (over, is_over) = channel::<()>();
    let (thaw, targets) = (session.hold.thawer(), session.all());
    let body = move || {
        if is_over.recv_timeout(RELIEF) == Err(RecvTimeoutError::Timeout) {
            thaw(&targets);
        }
    };
    // Without that thread only the limit of the restore itself is left.
    let _ = std::thread::Builder::new().name("relief".into()).spawn(body);
    Relief { _over: over }
}

/// Lets the threads of all processes go on, whoever holds them.
pub(super) fn thaw(session: &Session) -> Result<(), StepError> {
    let targets = session.all();
    let clock = session.begin(Stage::Thaw, &targets);
    let thawed = session.hold.thaw(&targets);
    session.end(Stage::Thaw, clock);
    thawed.map_err(|failed| {
        // What stands still may hold a lock that the next steps need.
        session.leave_out(failed.iter().map(|(pid, _)| *pid));
        told(Stage::Thaw, failed)
    })
}

fn told(stage: Stage, failed: Vec<(Pid, NotFrozen)>) -> StepError {
    let trouble = |(pid, source)| (pid, Trouble::NotFrozen { pid, source });
    StepError::Processes { stage, failures: failed.into_iter().map(trouble).collect() }
}
