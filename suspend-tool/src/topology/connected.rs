//! Which processes are connected by shared memory.

use std::collections::{BTreeMap, BTreeSet};

use protocol::AllocationId;

use super::Member;
use crate::pid::Pid;

/// The members in groups: two are in one group if they share an allocation, or each shares with a third.
pub fn groups(members: &[Member]) -> Vec<BTreeSet<Pid>> {
    let mut sharers: BTreeMap<AllocationId, BTreeSet<Pid>> = BTreeMap::new();
    for member in members {
        for allocation in &member.inventory.allocations {
            sharers.entry(allocation.id).or_default().insert(member.pid);
        }
    }
    let mut groups: Vec<BTreeSet<Pid>> = Vec::new();
    let alone = members.iter().map(|member| BTreeSet::from([member.pid]));
    for mut group in alone.chain(sharers.into_values()) {
        let (joined, apart): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|other| !other.is_disjoint(&group));
        group.extend(joined.into_iter().flatten());
        groups = apart;
        groups.push(group);
    }
    groups.sort();
    groups
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{created, imported, member, pid};
    use super::*;

    #[test]
    fn sharing_connects_over_a_third_process() {
        let members = [
            member(1, [created(1)]),
            member(2, [imported(1, 1), created(2)]),
            member(3, [imported(2, 2)]),
            member(4, [created(4)]),
        ];
        assert_eq!(groups(&members), [BTreeSet::from([pid(1), pid(2), pid(3)]), BTreeSet::from([pid(4)])]);
    }
}
