//! Who saves, and who hands out again.

use std::collections::{BTreeMap, BTreeSet};

use protocol::{AllocationId, Contents, Source, Team};
use serde::{Deserialize, Serialize};

use super::Member;
use crate::pid::Pid;

/// What is known about processes that are not to be suspended.
#[derive(Clone, Debug, Default)]
pub struct Around {
    /// Others with the shim, and what they have.
    pub others: Vec<Member>,
    /// Pids, named as exporters by an import, that belong to a living CUDA process which could not be asked.
    pub unasked: BTreeSet<i32>,
}

/// Why the sharing cannot be taken apart.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Obstacle {
    /// The process that has the memory runs and is not among those to be suspended.
    ExporterOutside {
        /// Who imported it.
        importer: Pid,
        /// Who has it.
        exporter: i32,
        /// How many allocations.
        count: u64,
        /// One of them.
        example: AllocationId,
    },
    /// A process that is not among those to be suspended uses memory of one that is.
    ImporterOutside {
        /// Who imported it.
        importer: Pid,
        /// Who has it, among those to be suspended.
        holder: Pid,
        /// How many allocations.
        count: u64,
        /// One of them.
        example: AllocationId,
    },
    /// A multicast object cannot be put together again: a process that took part is gone.
    Incomplete {
        /// Who holds it.
        holder: Pid,
        /// The object.
        object: AllocationId,
        /// Devices it was made for.
        devices: u32,
        /// Devices that those to be suspended have added.
        joined: u32,
    },
    /// The contents are gone: nobody has saved them.
    Lost {
        /// Who imported it.
        importer: Pid,
        /// Who had it.
        exporter: i32,
        /// The allocation.
        allocation: AllocationId,
    },
}

/// Who does what for the sharing.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Plan {
    /// Imported allocations that a process saves in place of their exporter.
    pub heirs: BTreeMap<Pid, Vec<AllocationId>>,
    /// Whom each process asks for what it imported.
    pub sources: BTreeMap<Pid, Vec<Source>>,
}

impl Plan {
    /// What this process saves in place of somebody else.
    pub fn heir_of(&self, pid: Pid) -> &[AllocationId] {
        self.heirs.get(&pid).map_or(&[], Vec::as_slice)
    }

    /// Whom this process asks.
    pub fn sources_of(&self, pid: Pid) -> &[Source] {
        self.sources.get(&pid).map_or(&[], Vec::as_slice)
    }

    /// The processes that this one cannot be remapped without.
    pub fn providers_of(&self, pid: Pid) -> BTreeSet<Pid> {
        self.sources_of(pid).iter().filter_map(|source| Pid::new(source.pid)).collect()
    }
}

/// Imports of one allocation, by whom and from whom.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) makers: BTreeSet<Pid>,
    importers: BTreeMap<Pid, i32>,
    /// Those that have it in memory.
    pub(super) live: BTreeSet<Pid>,
    /// Those that have dropped it and kept its bytes.
    pub(super) saved: BTreeSet<Pid>,
    /// Those that have dropped it, bytes or not.
    pub(super) dropped: BTreeSet<Pid>,
    /// What all have done with it, if it is a multicast object.
    pub(super) team: Option<Team>,
}

impl Shared {
    fn has_bytes(&self, pid: Pid) -> bool {
        self.live.contains(&pid) || self.saved.contains(&pid)
    }
}

pub(super) fn shared(members: &[Member]) -> BTreeMap<AllocationId, Shared> {
    let mut all: BTreeMap<AllocationId, Shared> = BTreeMap::new();
    for member in members {
        for allocation in &member.inventory.allocations {
            let entry = all.entry(allocation.id).or_default();
            match allocation.origin {
                protocol::Origin::Imported { exporter } if exporter != member.pid.number() => {
                    entry.importers.insert(member.pid, exporter);
                }
                _ => {
                    entry.makers.insert(member.pid);
                }
            }
            match allocation.contents {
                Contents::Live => drop(entry.live.insert(member.pid)),
                Contents::Zero | Contents::Host | Contents::Chunks => drop(entry.saved.insert(member.pid)),
                Contents::Elsewhere => {}
            }
            if allocation.contents != Contents::Live {
                entry.dropped.insert(member.pid);
            }
            if let Some(own) = allocation.multicast {
                let team = entry.team.get_or_insert(Team { devices: own.devices, joined: 0, bound: 0 });
                team.joined = team.joined.saturating_add(own.joined);
                team.bound = team.bound.saturating_add(own.bound);
            }
        }
    }
    all
}

/// Makes the plan for a suspend of `members`, which all run, or names everything that is in the way.
pub fn make_plan(members: &[Member], around: &Around) -> Result<Plan, Vec<Obstacle>> {
    let inside = shared(members);
    let outside = shared(&around.others);
    let mut plan = Plan::default();
    let mut obstacles = Obstacles::default();
    for (&allocation, inside) in &inside {
        let outside = outside.get(&allocation);
        let holder = inside.makers.first().or(inside.importers.keys().next());
        if let (Some(outside), Some(&holder)) = (outside, holder) {
            for &importer in outside.importers.keys() {
                obstacles.importer_outside(importer, holder, allocation);
            }
        }
        let maker_outside = outside.and_then(|outside| outside.makers.first());
        for (&importer, &exporter) in &inside.importers {
            if !inside.makers.is_empty() {
                continue;
            }
            // Who has it now counts, and where nobody can say, whether the exporter lives.
            let maker = maker_outside.map(|maker| maker.number());
            let unasked = around.unasked.contains(&exporter).then_some(exporter);
            if let Some(exporter) = maker.or(unasked) {
                obstacles.exporter_outside(importer, exporter, allocation);
            }
        }
        if let (Some(team), Some(&holder), None) = (inside.team, holder, outside) {
            obstacles.incomplete(holder, allocation, team);
        }
        plan.provide(allocation, inside);
    }
    let obstacles = obstacles.listed();
    if obstacles.is_empty() { Ok(plan) } else { Err(obstacles) }
}

impl Plan {
    /// Names the provider of an allocation for everybody who imported it.
    fn provide(&mut self, allocation: AllocationId, shared: &Shared) {
        let provider = match shared.makers.first() {
            Some(maker) => *maker,
            None => {
                let Some(heir) = shared.importers.keys().next() else { return };
                self.heirs.entry(*heir).or_default().push(allocation);
                *heir
            }
        };
        for importer in shared.importers.keys().filter(|importer| **importer != provider) {
            let source = Source { allocation, pid: provider.number() };
            self.sources.entry(*importer).or_default().push(source);
        }
    }
}

/// Whom to ask for what is missing in `members` as they stand, without the plan their suspend was made with.
pub fn sources_now(members: &[Member]) -> (Plan, Vec<Obstacle>) {
    let mut plan = Plan::default();
    let mut lost = Vec::new();
    for (allocation, shared) in shared(members) {
        let provider = shared.makers.first().or(shared.saved.first()).or(shared.live.first());
        for (&importer, &exporter) in &shared.importers {
            if shared.has_bytes(importer) {
                continue;
            }
            match provider {
                Some(provider) => plan
                    .sources
                    .entry(importer)
                    .or_default()
                    .push(Source { allocation, pid: provider.number() }),
                None => lost.push(Obstacle::Lost { importer, exporter, allocation }),
            }
        }
    }
    (plan, lost)
}

/// Obstacles, one for each pair of processes.
#[derive(Default)]
struct Obstacles {
    exporters: BTreeMap<(Pid, i32), (u64, AllocationId)>,
    importers: BTreeMap<(Pid, Pid), (u64, AllocationId)>,
    incomplete: Vec<Obstacle>,
}

impl Obstacles {
    fn exporter_outside(&mut self, importer: Pid, exporter: i32, allocation: AllocationId) {
        self.exporters.entry((importer, exporter)).or_insert((0, allocation)).0 += 1;
    }

    fn importer_outside(&mut self, importer: Pid, holder: Pid, allocation: AllocationId) {
        self.importers.entry((importer, holder)).or_insert((0, allocation)).0 += 1;
    }

    /// An object whose memory was bound had all its devices once, and needs them again.
    fn incomplete(&mut self, holder: Pid, object: AllocationId, team: Team) {
        let Team { devices, joined, bound } = team;
        if bound > 0 && joined < devices {
            self.incomplete.push(Obstacle::Incomplete { holder, object, devices, joined });
        }
    }

    fn listed(self) -> Vec<Obstacle> {
        let exporters = self.exporters.into_iter().map(|((importer, exporter), (count, example))| {
            Obstacle::ExporterOutside { importer, exporter, count, example }
        });
        let importers = self.importers.into_iter().map(|((importer, holder), (count, example))| {
            Obstacle::ImporterOutside { importer, holder, count, example }
        });
        exporters.chain(importers).chain(self.incomplete).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{as_object, created, id, imported, member, pid};
    use super::*;

    fn source(allocation: u8, from: i32) -> Source {
        Source { allocation: id(allocation), pid: from }
    }

    #[test]
    fn an_importer_asks_the_exporter_that_still_has_the_memory() {
        let members = [member(1, [created(1)]), member(2, [imported(1, 1)])];
        let plan = make_plan(&members, &Around::default()).unwrap();
        assert_eq!(plan.heirs, BTreeMap::new());
        assert_eq!(plan.sources_of(pid(2)), [source(1, 1)]);
        assert_eq!(plan.sources_of(pid(1)), []);
        assert_eq!(plan.providers_of(pid(2)), BTreeSet::from([pid(1)]));
    }

    #[test]
    fn memory_whose_exporter_freed_it_is_saved_once_and_shared_again_by_all() {
        let members =
            [member(1, []), member(3, [imported(1, 1)]), member(2, [imported(1, 1)]), member(4, [])];
        let plan = make_plan(&members, &Around::default()).unwrap();
        assert_eq!(plan.heirs, BTreeMap::from([(pid(2), vec![id(1)])]));
        assert_eq!(plan.sources, BTreeMap::from([(pid(3), vec![source(1, 2)])]));
    }

    #[test]
    fn memory_of_a_dead_exporter_has_an_heir() {
        let members = [member(2, [imported(1, 99)])];
        let plan = make_plan(&members, &Around::default()).unwrap();
        assert_eq!(plan.heir_of(pid(2)), [id(1)]);
    }

    #[test]
    fn an_exporter_that_runs_and_was_not_named_is_refused_once_per_pair() {
        let members = [member(2, [imported(1, 1), imported(2, 1)])];
        let around = Around { others: vec![member(1, [created(1), created(2)])], ..Around::default() };
        assert_eq!(
            make_plan(&members, &around).unwrap_err(),
            [Obstacle::ExporterOutside { importer: pid(2), exporter: 1, count: 2, example: id(1) }]
        );
    }

    #[test]
    fn an_exporter_outside_that_freed_the_memory_is_not_missed() {
        let members = [member(2, [imported(1, 1)])];
        let around = Around { others: vec![member(1, [created(5)])], ..Around::default() };
        assert_eq!(make_plan(&members, &around).unwrap().heir_of(pid(2)), [id(1)]);
    }

    #[test]
    fn an_exporter_that_lives_and_cannot_be_asked_is_refused() {
        let members = [member(2, [imported(1, 1)])];
        let around = Around { unasked: BTreeSet::from([1]), ..Around::default() };
        assert_eq!(
            make_plan(&members, &around).unwrap_err(),
            [Obstacle::ExporterOutside { importer: pid(2), exporter: 1, count: 1, example: id(1) }]
        );
    }

    #[test]
    fn an_importer_that_was_not_named_is_refused() {
        let members = [member(1, [created(1)])];
        let around = Around { others: vec![member(2, [imported(1, 1)])], ..Around::default() };
        assert_eq!(
            make_plan(&members, &around).unwrap_err(),
            [Obstacle::ImporterOutside { importer: pid(2), holder: pid(1), count: 1, example: id(1) }]
        );
    }

    #[test]
    fn a_second_importer_of_an_orphan_that_was_not_named_is_refused() {
        let members = [member(2, [imported(1, 99)])];
        let around = Around { others: vec![member(3, [imported(1, 99)])], ..Around::default() };
        assert_eq!(
            make_plan(&members, &around).unwrap_err(),
            [Obstacle::ImporterOutside { importer: pid(3), holder: pid(2), count: 1, example: id(1) }]
        );
    }

    #[test]
    fn a_process_that_imported_its_own_ticket_needs_nobody() {
        let members = [member(1, [imported(1, 1)])];
        assert_eq!(make_plan(&members, &Around::default()).unwrap(), Plan::default());
    }

    #[test]
    fn without_a_plan_the_one_that_has_the_bytes_is_asked() {
        let mut heir = member(3, [imported(1, 99)]);
        heir.inventory.allocations[0].contents = Contents::Host;
        let mut other = member(2, [imported(1, 99)]);
        other.inventory.allocations[0].contents = Contents::Elsewhere;
        let (plan, lost) = sources_now(&[other, heir]);
        assert_eq!(plan.sources, BTreeMap::from([(pid(2), vec![source(1, 3)])]));
        assert_eq!(lost, []);
    }

    #[test]
    fn a_multicast_object_whose_member_is_gone_is_refused() {
        let members = [member(1, [as_object(created(1), 3)]), member(2, [as_object(imported(1, 1), 3)])];
        assert_eq!(
            make_plan(&members, &Around::default()).unwrap_err(),
            [Obstacle::Incomplete { holder: pid(1), object: id(1), devices: 3, joined: 2 }]
        );
        let members = [member(1, [as_object(created(1), 2)]), member(2, [as_object(imported(1, 1), 2)])];
        assert_eq!(make_plan(&members, &Around::default()).unwrap().sources_of(pid(2)), [source(1, 1)]);
    }

    #[test]
    fn contents_that_nobody_has_are_named_as_lost() {
        let mut orphan = member(2, [imported(1, 99)]);
        orphan.inventory.allocations[0].contents = Contents::Elsewhere;
        let (_, lost) = sources_now(&[orphan]);
        assert_eq!(lost, [Obstacle::Lost { importer: pid(2), exporter: 99, allocation: id(1) }]);
    }
}
