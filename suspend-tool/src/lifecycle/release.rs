//! Taking the sharing apart, saving and freeing; and its reverse, `load` and `remap`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use protocol::verbs::{Load, Release as ReleaseVerb, Remap, Stage as StageVerb};
use protocol::{
    AllocationId, Contents, Extent, HostLimits, Inventory, LoadExtent, LoadRequest, Phase, ReleaseRequest,
    RemapRequest, SaveTo, StageRequest, Transferred, Turn,
};

use super::session::{GLANCE, OWN_BOUND, STANDSTILL, Session, inspect};
use super::{Step, StepError, Trouble};
use crate::client::{Ask, Patience};
use crate::pid::{Pid, Target};
use crate::report::Stage;
use crate::topology::{Member, Plan, Torn, sources_now, torn};

/// How long a peer is asked again that is not ready to hand out its memory.
const PEER_WAIT: Duration = Duration::from_secs(30);

/// What each process is to do, decided when all have come to rest.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Orders {
    /// Who saves and who hands out.
    pub plan: Plan,
    /// How much host memory each may fill.
    pub limits: BTreeMap<Pid, HostLimits>,
    /// Where the bytes go.
    pub to: SaveTo,
}

/// Decides what each process is to do. Called when all have come to rest, so that what it sees stays true.
pub type Decide<'s> = Box<dyn FnMut() -> Result<Orders, StepError> + 's>;

/// Saves and frees the memory of all processes.
pub struct Release<'s> {
    session: &'s Session,
    decide: Decide<'s>,
}

impl std::fmt::Debug for Release<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Release").field("session", &self.session).finish_non_exhaustive()
    }
}

impl<'s> Release<'s> {
    /// For all processes of the session that have a shim.
    pub fn new(session: &'s Session, decide: Decide<'s>) -> Self {
        Self { session, decide }
    }

    fn release(
        &self,
        stage: Stage,
        extent: Extent,
        orders: &Arc<Orders>,
        targets: &[Target],
    ) -> Result<(), StepError> {
        let shims = Arc::clone(&self.session.shims);
        let orders = Arc::clone(orders);
        let task = move |target: Target| {
            let request = ReleaseRequest {
                extent,
                heir_of: orders.plan.heir_of(target.pid).to_vec(),
                limits: orders.limits.get(&target.pid).copied().unwrap_or_default(),
                to: orders.to.clone(),
            };
            Ok(shims.ask::<ReleaseVerb>(target, &request, Patience::WhileMoving(STANDSTILL))?)
        };
        let failed = self.session.stage(stage, targets, OWN_BOUND, |done| Some(done.bytes), task).failed;
        StepError::unless_empty(stage, failed)
    }

    /// Has processes drop what they still map of memory that its keeper has dropped already: one that a release did not
    /// reach. Its keeper is going to make that memory anew, and the two would no longer share it. Where it cannot be
    /// dropped, its keepers are not brought back either.
    pub fn mend(&self) -> Result<(), StepError> {
        // What one drops may be mapped by a next one.
        for _ in 0..self.session.participants.len() {
            let shimmed = self.session.unstuck(self.session.shimmed());
            let torn = torn(&Member::of(self.session.inspect(&shimmed, true).done));
            if torn.keepers.is_empty() {
                break;
            }
            self.drop_torn(&shimmed, torn)?;
        }
        Ok(())
    }

    fn drop_torn(&self, shimmed: &[Target], torn: Torn) -> Result<(), StepError> {
        let Torn { keepers, heirs } = torn;
        let targets: Vec<Target> =
            shimmed.iter().copied().filter(|target| keepers.contains_key(&target.pid)).collect();
        let plan = Plan { heirs, ..Plan::default() };
        // Few bytes, if any: a store, should there be one, is left out of it.
        let orders = Arc::new(Orders { plan, ..Orders::default() });
        let result = self.release(Stage::Release, Extent::Drop, &orders, &targets);
        if let Err(StepError::Processes { failures, .. }) = &result {
            let without = failures.iter().filter_map(|(pid, _)| keepers.get(pid)).flatten();
            self.session.leave_out(failures.iter().map(|(pid, _)| *pid).chain(without.copied()));
        }
        result
    }

    /// Has released processes start to read what they have saved to a store. The driver may still have them checkpointed.
    /// What is not read by then is read by the load, so a process that fails costs time and nothing else.
    pub fn stage(&self, limits: BTreeMap<Pid, HostLimits>) -> Result<(), StepError> {
        let seen = self.session.inspect(&self.session.unstuck(self.session.shimmed()), true).done;
        let stored = |inventory: &Inventory| {
            let mut allocations = inventory.allocations.iter();
            inventory.phase == Phase::Released
                && allocations.any(|allocation| allocation.contents == Contents::Chunks)
        };
        let pids: BTreeSet<Pid> =
            seen.iter().filter(|(_, inventory)| stored(inventory)).map(|(pid, _)| *pid).collect();
        let targets: Vec<Target> =
            self.session.shimmed().into_iter().filter(|target| pids.contains(&target.pid)).collect();
        if targets.is_empty() {
            return Ok(());
        }
        let shims = Arc::clone(&self.session.shims);
        let from = self.session.from.clone();
        let task = move |target: Target| {
            let limits = limits.get(&target.pid).copied().unwrap_or_default();
            let request = StageRequest { from: from.clone(), limits };
            Ok(shims.ask::<StageVerb>(target, &request, Patience::WhileMoving(STANDSTILL))?)
        };
        let failed = self.session.stage(Stage::Stage, &targets, OWN_BOUND, |()| None, task).failed;
        StepError::unless_empty(Stage::Stage, failed)
    }

    /// Makes the memory of released processes again, with its bytes.
    pub fn load(&self) -> Result<(), StepError> {
        let made = self.load_turn(LoadExtent::Make);
        let filled = self.load_turn(LoadExtent::Fill);
        made.and(filled)
    }

    fn load_turn(&self, extent: LoadExtent) -> Result<(), StepError> {
        let shims = Arc::clone(&self.session.shims);
        let (from, shares) = (self.session.from.clone(), self.session.shares.clone());
        let task = move |target: Target| {
            let limits = shares.get(&target.pid).copied().unwrap_or_default();
            let request = LoadRequest { extent, from: from.clone(), limits };
            let phase = inspect(&*shims, target, false)?.phase;
            if phase != Phase::Released {
                return Ok(Transferred::default());
            }
            Ok(shims.ask::<Load>(target, &request, Patience::WhileMoving(STANDSTILL))?)
        };
        let targets = self.session.unstuck(self.session.shimmed());
        let failed =
            self.session.stage(Stage::Load, &targets, OWN_BOUND, |done| Some(done.bytes), task).failed;
        self.session.leave_out(failed.iter().map(|(pid, _)| *pid));
        StepError::unless_empty(Stage::Load, failed)
    }

    /// Shares the memory of loaded processes again.
    pub fn remap(&self) -> Result<(), StepError> {
        // Those that are stuck are asked as well: what they hold tells who has to wait for them.
        let seen = self.session.inspect(&self.session.shimmed(), true);
        let members = Member::of(seen.done);
        let (plan, _) = sources_now(&members);
        let mut failed: Vec<(Pid, Trouble)> =
            seen.failed.into_iter().filter(|(pid, _)| !self.session.is_stuck(*pid)).collect();
        let mut ready = Vec::new();
        for target in self.session.unstuck(self.session.shimmed()) {
            let pid = target.pid;
            let Some(member) = members.iter().find(|member| member.pid == pid) else { continue };
            if member.inventory.phase != Phase::Loaded {
                continue;
            }
            match self.missing(pid, &plan) {
                // Asking would only wait for the deadline.
                Some(provider) => failed.push((pid, Trouble::Needs { pid, provider })),
                None => ready.push(target),
            }
        }
        failed.extend(self.remap_in_turns(&members, &plan, ready));
        self.session.leave_out(failed.iter().map(|(pid, _)| *pid));
        StepError::unless_empty(Stage::Remap, failed)
    }

    /// Remaps, in as many turns as multicast objects ask for. One that a member fails to join cannot be finished by the others,
    /// which would wait in the driver.
    fn remap_in_turns(&self, members: &[Member], plan: &Plan, mut ready: Vec<Target>) -> Vec<(Pid, Trouble)> {
        let teams = teams(members);
        let turns = if teams.is_empty() { &[Turn::Map][..] } else { &[Turn::Join, Turn::Bind, Turn::Map] };
        let mut failed = Vec::new();
        for &turn in turns {
            self.without_broken_teams(&teams, &mut ready, &mut failed);
            let lost = self.remap_turn(plan, turn, &ready);
            ready.retain(|target| lost.iter().all(|(pid, _)| *pid != target.pid));
            failed.extend(lost);
        }
        failed
    }

    fn remap_turn(&self, plan: &Plan, turn: Turn, ready: &[Target]) -> Vec<(Pid, Trouble)> {
        let shims = Arc::clone(&self.session.shims);
        let wait_ms = u32::try_from(PEER_WAIT.as_millis()).unwrap_or(u32::MAX);
        let plan = plan.clone();
        let task = move |target: Target| {
            let request = RemapRequest { sources: plan.sources_of(target.pid).to_vec(), wait_ms, turn };
            Ok(shims.ask::<Remap>(target, &request, Patience::WhileMoving(STANDSTILL + PEER_WAIT))?)
        };
        self.session.stage(Stage::Remap, ready, OWN_BOUND, |_| None, task).failed
    }

    /// Leaves out who shares a multicast object with somebody that does not take part.
    fn without_broken_teams(
        &self,
        teams: &[BTreeSet<Pid>],
        ready: &mut Vec<Target>,
        failed: &mut Vec<(Pid, Trouble)>,
    ) {
        // Whoever is left out may be missed by others.
        loop {
            let there: BTreeSet<Pid> = ready.iter().map(|target| target.pid).collect();
            let lost = teams.iter().filter(|team| !team.is_disjoint(&there)).find_map(|team| {
                let missing = team.difference(&there).next()?;
                Some((*team.intersection(&there).next()?, *missing))
            });
            let Some((pid, provider)) = lost else { return };
            ready.retain(|target| target.pid != pid);
            failed.push((pid, Trouble::Needs { pid, provider }));
        }
    }

    /// A process that `pid` needs and that could not be brought back.
    fn missing(&self, pid: Pid, plan: &Plan) -> Option<Pid> {
        plan.providers_of(pid).into_iter().find(|provider| self.session.is_stuck(*provider))
    }
}

/// For each multicast object the holders that have to put it together again. Others have not taken it apart, or are done.
fn teams(members: &[Member]) -> Vec<BTreeSet<Pid>> {
    let mut teams: BTreeMap<AllocationId, BTreeSet<Pid>> = BTreeMap::new();
    let apart = |member: &&Member| matches!(member.inventory.phase, Phase::Released | Phase::Loaded);
    for member in members.iter().filter(apart) {
        let objects = member.inventory.allocations.iter().filter(|allocation| allocation.multicast.is_some());
        for object in objects {
            teams.entry(object.id).or_default().insert(member.pid);
        }
    }
    teams.into_values().collect()
}

impl Step for Release<'_> {
    fn stage(&self) -> Stage {
        Stage::Release
    }

    fn apply(&mut self) -> Result<(), StepError> {
        let orders = Arc::new((self.decide)()?);
        let targets = self.session.shimmed();
        // What may fail for want of memory fails before anything is dropped.
        self.release(Stage::Save, Extent::Save, &orders, &targets)?;
        self.session.uninterrupted()?;
        self.release(Stage::Release, Extent::Drop, &orders, &targets)
    }

    fn undo(&mut self) -> Result<(), StepError> {
        let loaded = self.mend().and(self.load());
        let remapped = self.remap();
        loaded.and(remapped)
    }
}

const _: () = assert!(GLANCE.as_secs() < STANDSTILL.as_secs());
