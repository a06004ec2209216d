//! Memory that some of its holders have dropped, and others have not.

use std::collections::{BTreeMap, BTreeSet};

use protocol::{AllocationId, Phase};

use super::Member;
use super::plan::shared;
use crate::pid::Pid;

/// Processes whose view of shared memory has come apart, and what each of them keeps for others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Torn {
    /// Those that still map memory which its keeper has dropped, each with the keepers of such memory.
    pub keepers: BTreeMap<Pid, BTreeSet<Pid>>,
    /// Memory that nobody would have the bytes of if these processes dropped it without saving it.
    pub heirs: BTreeMap<Pid, Vec<AllocationId>>,
}

/// Finds processes that still map memory which its keeper has dropped.
pub fn torn(members: &[Member]) -> Torn {
    let all = shared(members);
    let anew = |member: &&Member| matches!(member.inventory.phase, Phase::Loaded | Phase::Remapped);
    let made_anew: BTreeSet<Pid> = members.iter().filter(anew).map(|member| member.pid).collect();
    let mut torn = Torn::default();
    for shared in all.values() {
        for &mapped in &shared.live {
            // A multicast object is made anew by all its holders or by none.
            let droppers = match shared.team {
                Some(_) if made_anew.contains(&mapped) => continue,
                Some(_) => &shared.dropped,
                None => &shared.saved,
            };
            for &keeper in droppers.iter().filter(|keeper| **keeper != mapped) {
                torn.keepers.entry(mapped).or_default().insert(keeper);
            }
        }
    }
    for (id, shared) in &all {
        let all_are_torn = shared.live.iter().all(|pid| torn.keepers.contains_key(pid));
        if shared.makers.is_empty()
            && shared.saved.is_empty()
            && all_are_torn
            && let Some(heir) = shared.live.first()
        {
            torn.heirs.entry(*heir).or_default().push(*id);
        }
    }
    torn
}

#[cfg(test)]
mod tests {
    use protocol::Contents;

    use super::super::made_up::{as_object, created, id, imported, member, pid};
    use super::*;

    #[test]
    fn an_import_that_is_held_while_its_keeper_has_dropped_the_memory_is_torn() {
        let mut maker = member(1, [created(1), created(2)]);
        maker.inventory.allocations[0].contents = Contents::Host;
        let importer = member(2, [imported(1, 1), imported(2, 1)]);
        let found = torn(&[maker.clone(), importer.clone()]);
        assert_eq!(found.keepers, BTreeMap::from([(pid(2), BTreeSet::from([pid(1)]))]));
        maker.inventory.allocations[0].contents = Contents::Live;
        assert_eq!(torn(&[maker, importer]), Torn::default());
    }

    #[test]
    fn a_multicast_object_is_torn_as_soon_as_one_of_its_holders_has_dropped_it() {
        let maker = member(1, [as_object(created(1), 2)]);
        let mut importer = member(2, [as_object(imported(1, 1), 2)]);
        assert_eq!(torn(&[maker.clone(), importer.clone()]), Torn::default());
        importer.inventory.allocations[0].contents = Contents::Elsewhere;
        let found = torn(&[maker.clone(), importer.clone()]);
        assert_eq!(found.keepers, BTreeMap::from([(pid(1), BTreeSet::from([pid(2)]))]));
        let mut made_anew = maker;
        made_anew.inventory.phase = Phase::Loaded;
        assert_eq!(torn(&[made_anew, importer]), Torn::default());
    }

    #[test]
    fn what_only_torn_processes_still_have_is_saved_by_one_of_them() {
        let mut maker = member(1, [created(1)]);
        maker.inventory.allocations[0].contents = Contents::Host;
        let importer = member(2, [imported(1, 1), imported(9, 99)]);
        let mut other = member(3, [imported(9, 99)]);
        let found = torn(&[maker.clone(), importer.clone(), other.clone()]);
        assert_eq!(found.heirs, BTreeMap::new(), "the third still has it");
        other.inventory.allocations[0].contents = Contents::Elsewhere;
        let found = torn(&[maker, importer, other]);
        assert_eq!(found.heirs, BTreeMap::from([(pid(2), vec![id(9)])]));
    }
}
