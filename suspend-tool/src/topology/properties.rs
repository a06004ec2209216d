//! What holds for every plan, whatever the processes share.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use protocol::{AllocationId, Contents, Origin};

use super::made_up::{allocation, member};
use super::{Around, Member, Plan, Torn, make_plan, sources_now, torn};
use crate::pid::Pid;

/// Up to five processes, each of which holds some of six allocations, made here or imported from any of seven pids.
fn members() -> impl Strategy<Value = Vec<Member>> {
    let held = prop::collection::btree_map(0_u8..6, prop::option::of(1_i32..8), 0..6);
    prop::collection::btree_map(1_i32..6, held, 1..6).prop_map(|processes| {
        let mut made = BTreeSet::new();
        let member = |(pid, held): (i32, BTreeMap<u8, Option<i32>>)| {
            let allocations: Vec<_> = held
                .into_iter()
                .map(|(name, exporter)| match exporter {
                    Some(exporter) if exporter != pid => allocation(name, Origin::Imported { exporter }),
                    // Only one process makes an allocation.
                    None if made.insert(name) => allocation(name, Origin::Created),
                    Some(_) | None => allocation(name, Origin::Imported { exporter: 7 }),
                })
                .collect();
            member(pid, allocations)
        };
        processes.into_iter().map(member).collect()
    })
}

/// What `members` are while they are suspended by `plan`.
fn suspended(members: &[Member], plan: &Plan) -> Vec<Member> {
    let mut members = members.to_vec();
    for member in &mut members {
        let pid = member.pid;
        for allocation in &mut member.inventory.allocations {
            let own = allocation.origin == Origin::Created;
            let keeps = own || plan.heir_of(pid).contains(&allocation.id);
            allocation.contents = if keeps { Contents::Host } else { Contents::Elsewhere };
        }
    }
    members
}

proptest! {
    #[test]
    fn every_allocation_is_saved_once_and_every_importer_knows_whom_to_ask(members in members()) {
        let plan = make_plan(&members, &Around::default()).unwrap();
        let suspended = suspended(&members, &plan);
        let mut savers: BTreeMap<AllocationId, Vec<Pid>> = BTreeMap::new();
        for member in &suspended {
            for allocation in &member.inventory.allocations {
                let savers = savers.entry(allocation.id).or_default();
                if allocation.contents == Contents::Host {
                    savers.push(member.pid);
                }
            }
        }
        for member in &suspended {
            for allocation in &member.inventory.allocations {
                let savers = &savers[&allocation.id];
                prop_assert_eq!(savers.len(), 1, "{} is saved by {:?}", allocation.id, savers);
                let saver = savers.first().copied();
                let asked = plan.sources_of(member.pid).iter().find(|source| source.allocation == allocation.id);
                if saver == Some(member.pid) {
                    prop_assert_eq!(asked, None);
                } else {
                    prop_assert_eq!(asked.map(|source| Pid::new(source.pid)), Some(saver));
                }
            }
        }
    }

    #[test]
    fn what_is_found_while_suspended_is_what_was_planned(members in members()) {
        let plan = make_plan(&members, &Around::default()).unwrap();
        let (found, lost) = sources_now(&suspended(&members, &plan));
        prop_assert_eq!(lost, Vec::new());
        prop_assert_eq!(&found.sources, &plan.sources);
        prop_assert_eq!(torn(&suspended(&members, &plan)), Torn::default());
    }

    #[test]
    fn an_allocation_that_reaches_outside_is_never_overlooked(members in members(), cut in 0_usize..5) {
        let cut = cut % members.len();
        let mut inside = members;
        let outside = inside.remove(cut);
        let names = |members: &[Member]| -> BTreeSet<AllocationId> {
            members.iter().flat_map(|member| &member.inventory.allocations).map(|found| found.id).collect()
        };
        let common = names(&inside).intersection(&names(std::slice::from_ref(&outside))).count();
        let around = Around { others: vec![outside], ..Around::default() };
        prop_assert_eq!(make_plan(&inside, &around).is_err(), common > 0);
    }
}
