//! Memory that only descriptors keep.

use std::collections::BTreeSet;

use protocol::{AllocationId, Unclaimed};

use super::Finding;
use crate::topology::Member;

/// Memory whose exporter is gone, of which a process holds a descriptor, and which none of the processes has imported: nobody can
/// save it or take it off the GPU. Its bytes are safe. What is behind the descriptor CRIU cannot dump, and where the memory
/// is gone too, it dumps what it cannot restore.
pub(super) fn unclaimed(members: &[Member], criu: bool) -> Vec<Finding> {
    let held = members.iter().flat_map(|member| &member.inventory.allocations);
    let held: BTreeSet<AllocationId> = held.map(|allocation| allocation.id).collect();
    let mut findings = Vec::new();
    for member in members {
        let matters = |one: &&Unclaimed| (one.kept || criu) && !held.contains(&one.id);
        for one in member.inventory.unclaimed.iter().filter(matters) {
            let message = format!(
                "process {} holds descriptor {} of {} bytes that process {} exported before it ended, and nobody has imported",
                member.pid, one.descriptor, one.size, one.exporter
            );
            let finding = if criu {
                Finding::blocker(
                    "unclaimed",
                    message,
                    "have the process import the memory or close the descriptor",
                )
            } else {
                Finding::warning(
                    "unclaimed",
                    message,
                    "the memory stays on the GPU while the process is suspended",
                )
            };
            findings.push(finding.of(member.pid).on(one.id.to_string()));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::made_up::{id, imported, member};

    #[test]
    fn memory_that_nobody_has_imported_is_told_and_keeps_criu_out() {
        let mut holder = member(1, []);
        let left = Unclaimed { id: id(1), size: 4096, exporter: 9, descriptor: 5, kept: true };
        holder.inventory.unclaimed = vec![left];
        for criu in [false, true] {
            let findings = unclaimed(std::slice::from_ref(&holder), criu);
            assert_eq!(findings.len(), 1);
            assert_eq!((findings[0].blocks(), findings[0].pid), (criu, Some(holder.pid)));
            assert!(
                findings[0].message.contains("descriptor 5 of 4096 bytes that process 9"),
                "{findings:?}"
            );
        }
        let importer = member(2, [imported(1, 9)]);
        assert_eq!(unclaimed(&[holder.clone(), importer], true), []);
        holder.inventory.unclaimed = vec![Unclaimed { kept: false, ..left }];
        assert_eq!(unclaimed(std::slice::from_ref(&holder), false), []);
        assert_eq!(unclaimed(std::slice::from_ref(&holder), true).len(), 1);
    }
}
