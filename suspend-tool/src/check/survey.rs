//! A look at everything at once. Nothing is changed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cuda_sys::{CuError, ProcessState};
use protocol::verbs::Inspect;
use protocol::{InspectRequest, Inventory, Origin};

use crate::client::{Ask, Patience, ShimError, Shims};
use crate::driver::{Driver, DriverError};
use crate::lifecycle::{Trouble, in_parallel};
use crate::pid::{Pid, Target};
use crate::proc::{Maps, ProcError, ProcFs, RunState};
use crate::report::Stage;
use crate::topology::{Around, Member};

/// How long a process that is named may take to answer.
const LIMIT: Duration = Duration::from_secs(5);
/// How long one may take that is only looked at because it might share with one that is named.
const BRIEF: Duration = Duration::from_millis(700);

/// Everything the command can look at and act on.
#[derive(Clone)]
pub struct Machine {
    /// What the kernel tells.
    pub proc: ProcFs,
    /// The driver, or why there is none.
    pub driver: Result<Arc<dyn Driver>, DriverError>,
    /// The shims.
    pub shims: Arc<dyn Shims>,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("proc", &self.proc).finish_non_exhaustive()
    }
}

/// What a process is to this command.
#[derive(Debug)]
pub enum Standing {
    /// It has a shim that answers.
    Shimmed(Box<Inventory>),
    /// The driver knows it, and it has not loaded the driver's library: it uses the management library. It needs no
    /// shim.
    DriverOnly,
    /// It uses CUDA and has no shim that answers.
    Unshimmed(ShimError),
    /// It does not use CUDA.
    Idle,
}

/// What was seen of one process.
#[derive(Debug)]
pub struct Seen {
    /// The process.
    pub target: Target,
    /// Its name, as the kernel has it.
    pub name: String,
    /// What it is to this command.
    pub standing: Standing,
    /// The driver's state of it, where the driver knows it.
    pub state: Option<ProcessState>,
    /// What is mapped into it, where that can be read.
    pub maps: Maps,
}

impl Seen {
    /// What it answered, if it has a shim.
    pub fn inventory(&self) -> Option<&Inventory> {
        match &self.standing {
            Standing::Shimmed(inventory) => Some(inventory),
            _ => None,
        }
    }

    /// Whether it uses CUDA, also where it cannot be suspended.
    pub fn uses_cuda(&self) -> bool {
        !matches!(self.standing, Standing::Idle)
    }

    /// Whether it takes part in a suspend.
    pub fn takes_part(&self) -> bool {
        matches!(self.standing, Standing::Shimmed(_) | Standing::DriverOnly)
    }
}

/// What was seen of the processes named, and of those around them.
#[derive(Debug)]
pub struct Survey {
    /// The processes named, in order of their numbers.
    pub seen: Vec<Seen>,
    /// Those that could not be looked at.
    pub unseen: Vec<(Pid, Trouble)>,
    /// The others.
    pub around: Around,
}

impl Survey {
    /// The processes with a shim, as the topology takes them.
    pub fn members(&self) -> Vec<Member> {
        let answers = self.seen.iter().filter_map(|seen| Some((seen.target.pid, seen.inventory()?.clone())));
        Member::of(answers)
    }
}

impl Machine {
    /// Looks at these processes, and at those around them that may share memory with them.
    pub fn survey(&self, pids: &[Pid]) -> Survey {
        let (seen, unseen) = self.look_at(pids, true);
        let mut survey = Survey { seen, unseen, around: Around::default() };
        survey.around = self.look_around(&survey.members(), pids);
        survey
    }

    /// Looks at these processes alone. Some may not be there.
    pub fn look_at(&self, pids: &[Pid], allocations: bool) -> (Vec<Seen>, Vec<(Pid, Trouble)>) {
        self.look_within(pids, allocations, LIMIT)
    }

    fn look_within(
        &self,
        pids: &[Pid],
        allocations: bool,
        limit: Duration,
    ) -> (Vec<Seen>, Vec<(Pid, Trouble)>) {
        let mut targets = Vec::new();
        let mut unseen = Vec::new();
        for &pid in pids.iter().collect::<BTreeSet<_>>() {
            match self.proc.stat(pid) {
                Ok(stat) if stat.state == RunState::Zombie => unseen.push((pid, gone(pid))),
                Ok(stat) if self.proc.is_stopped(pid, stat.state) => {
                    unseen.push((pid, Trouble::Stopped { pid }))
                }
                Ok(stat) => match self.proc.is_process(pid) {
                    Err(source @ ProcError::Thread { .. }) => {
                        unseen.push((pid, Trouble::Proc { pid, source }))
                    }
                    _ => targets.push(Target { pid, start: stat.start }),
                },
                Err(ProcError::Gone { .. }) => unseen.push((pid, gone(pid))),
                Err(source) => unseen.push((pid, Trouble::Proc { pid, source })),
            }
        }
        let machine = self.clone();
        let task = move |target| machine.look(target, allocations, limit);
        let outcome: crate::lifecycle::Outcome<Seen> =
            in_parallel(Stage::Check, &targets, limit * 2, task, |_| {}).into();
        let mut seen: Vec<Seen> = outcome.done.into_iter().map(|(_, seen)| seen).collect();
        seen.sort_by_key(|seen| seen.target.pid);
        unseen.extend(outcome.failed);
        (seen, unseen)
    }

    fn look(&self, target: Target, allocations: bool, limit: Duration) -> Result<Seen, Trouble> {
        let pid = target.pid;
        let proc_error = |source| match source {
            ProcError::Gone { .. } => gone(pid),
            source => Trouble::Proc { pid, source },
        };
        let name = self.proc.stat(pid).map_err(proc_error)?.name;
        // Not readable: somebody else's process. The shim's answer will say so in better words.
        let maps = self.proc.maps(pid).unwrap_or_default();
        let state = self.state(pid)?;
        let request = InspectRequest { allocations };
        let standing = match self.shims.ask::<Inspect>(target, &request, Patience::For(limit)) {
            Ok(inventory) => Standing::Shimmed(Box::new(inventory)),
            Err(error @ ShimError::Unreachable(_)) if !error.is_gone() => match state {
                None => Standing::Idle,
                Some(_) if !maps.libcuda && self.proc.maps(pid).is_ok() => Standing::DriverOnly,
                Some(_) => Standing::Unshimmed(error),
            },
            Err(error) => return Err(error.into()),
        };
        Ok(Seen { target, name, standing, state, maps })
    }

    /// The driver's state of a process, `None` where it does not use CUDA.
    fn state(&self, pid: Pid) -> Result<Option<ProcessState>, Trouble> {
        let Ok(driver) = &self.driver else { return Ok(None) };
        match driver.state(pid) {
            Ok(state) => Ok(Some(state)),
            // 304 is the answer for a process that has just ended, 3 for one without CUDA.
            Err(DriverError::Checkpoint {
                error: CuError::NOT_INITIALIZED | CuError::OPERATING_SYSTEM,
                ..
            })
            | Err(DriverError::TooOld { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The other processes with a shim, and exporters that cannot be asked.
    fn look_around(&self, members: &[Member], named: &[Pid]) -> Around {
        let listening = self.proc.listening().unwrap_or_default();
        let others: Vec<Pid> = listening.iter().copied().filter(|pid| !named.contains(pid)).collect();
        let (seen, unseen) = self.look_within(&others, true, BRIEF);
        let answers = seen.into_iter().filter_map(|seen| Some((seen.target.pid, seen.inventory()?.clone())));
        let others = Member::of(answers);
        let unasked = exporters(members)
            .into_iter()
            .filter(|pid| !named.contains(pid) && !others.iter().any(|other| other.pid == *pid))
            // A number that belongs to a process without CUDA has been given to somebody else since.
            .filter(|pid| {
                let could_not_say = unseen.iter().any(|(other, trouble)| other == pid && !trouble.is_gone());
                could_not_say || matches!(self.state(*pid), Ok(Some(_)) | Err(_))
            })
            .map(Pid::number)
            .collect();
        Around { others, unasked }
    }

    /// The processes that use CUDA, among these or among all.
    pub fn cuda_processes(&self, among: Option<&[Pid]>) -> Result<Vec<Pid>, ProcError> {
        let listening: BTreeSet<Pid> = self.proc.listening()?.into_iter().collect();
        let own = Pid::new(std::process::id().try_into().unwrap_or(0));
        let candidates = match among {
            Some(pids) => pids.to_vec(),
            None => self.proc.pids()?,
        };
        // What neither listens nor has the driver's library or a device of it costs no further question.
        let touches_driver = |pid: &Pid| {
            listening.contains(pid)
                || self.proc.maps(*pid).is_ok_and(|maps| maps.libcuda || maps.device)
                || self.proc.descriptors(*pid, "/dev/nvidia").is_ok_and(|found| !found.is_empty())
        };
        Ok(candidates.into_iter().filter(|pid| Some(*pid) != own && touches_driver(pid)).collect())
    }
}

fn gone(pid: Pid) -> Trouble {
    let facts = protocol::Facts { alive: false, ..protocol::Facts::default() };
    ShimError::from(protocol::Unreachable::from_facts(pid.number(), facts)).into()
}

/// Who is named as an exporter by an import.
fn exporters(members: &[Member]) -> BTreeSet<Pid> {
    let allocations = members.iter().flat_map(|member| &member.inventory.allocations);
    allocations
        .filter_map(|allocation| match allocation.origin {
            Origin::Imported { exporter } => Pid::new(exporter),
            Origin::Created => None,
        })
        .collect()
}
