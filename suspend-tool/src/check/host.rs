//! Whether host memory can hold what is to be saved.
//!
//! How much that is turns out when the GPU has looked at the memory, which is when the processes have come to rest:
//! zeros take no room, and much of a card that is reserved ahead is zero. So there are two bounds, as for disks. What does
//! not fit at least is in the way; what may not fit is worth knowing, and each process then gets a limit at which its save
//! ends, long before the system runs out of memory.

use std::collections::BTreeMap;
use std::path::PathBuf;

use protocol::HostLimits;

use super::Finding;
use crate::pid::{Pid, listed};
use crate::proc::{HostMemory, ProcFs};
use crate::report::bytes;
use crate::topology::HostNeed;

/// What its findings are called.
pub(super) const KIND: &str = "host-memory";

/// What is left to the rest of the system where it is not sure that everything fits: one part in so many.
const RESERVE: u64 = 16;

/// Who shares a bound: the whole system, or a control group.
#[derive(Debug)]
struct Domain {
    group: Option<PathBuf>,
    available: u64,
    members: Vec<Pid>,
}

/// How much each process may fill, given what each needs, and what does not fit or may not.
///
/// Limits of control groups hold for all processes in a group together, and so does what the system has.
pub fn host_limits(
    proc: &ProcFs,
    needs: &BTreeMap<Pid, HostNeed>,
) -> (BTreeMap<Pid, HostLimits>, Vec<Finding>) {
    fit(&domains(proc, needs.keys().copied()), needs)
}

/// An equal share for each process of what host memory there is: for buffers that bytes go through, which are as large as
/// they may be.
pub fn host_shares(proc: &ProcFs, pids: impl IntoIterator<Item = Pid> + Clone) -> BTreeMap<Pid, HostLimits> {
    shares(&domains(proc, pids.clone()), pids)
}

fn shares(domains: &[Domain], pids: impl IntoIterator<Item = Pid>) -> BTreeMap<Pid, HostLimits> {
    let share = |pid: Pid| {
        let mine = domains.iter().filter(|domain| domain.members.contains(&pid));
        mine.map(|domain| {
            let members = u64::try_from(domain.members.len()).unwrap_or(u64::MAX);
            domain.available.checked_div(members).unwrap_or(0)
        })
        .min()
    };
    pids.into_iter().map(|pid| (pid, HostLimits { arena_bytes: share(pid) })).collect()
}

/// The bounds on the host memory of these processes.
fn domains(proc: &ProcFs, pids: impl IntoIterator<Item = Pid> + Clone) -> Vec<Domain> {
    let memory = HostMemory::new(proc);
    let mut domains: Vec<Domain> = Vec::new();
    if let Ok(system) = memory.system() {
        let members = pids.clone().into_iter().collect();
        domains.push(Domain { group: None, available: system.available, members });
    }
    for pid in pids {
        for bound in memory.groups(pid) {
            match domains.iter_mut().find(|domain| domain.group == bound.group) {
                Some(domain) => domain.members.push(pid),
                None => domains.push(Domain {
                    group: bound.group,
                    available: bound.available,
                    members: vec![pid],
                }),
            }
        }
    }
    domains
}

fn fit(domains: &[Domain], needs: &BTreeMap<Pid, HostNeed>) -> (BTreeMap<Pid, HostLimits>, Vec<Finding>) {
    let findings = domains.iter().filter_map(|domain| domain.judge(needs)).collect();
    let limit = |pid: &Pid| {
        let mine = domains.iter().filter(|domain| domain.members.contains(pid));
        mine.map(|domain| domain.limit(*pid, needs)).min()
    };
    (needs.keys().map(|pid| (*pid, HostLimits { arena_bytes: limit(pid) })).collect(), findings)
}

impl Domain {
    fn sum(&self, needs: &BTreeMap<Pid, HostNeed>, bound: fn(&HostNeed) -> u64) -> u64 {
        self.members.iter().filter_map(|pid| needs.get(pid)).map(bound).fold(0, u64::saturating_add)
    }

    /// The members that a sum is made of.
    fn who(&self, needs: &BTreeMap<Pid, HostNeed>, bound: fn(&HostNeed) -> u64) -> String {
        let needs_some = |pid: &Pid| needs.get(pid).is_some_and(|need| bound(need) > 0);
        listed(self.members.iter().copied().filter(needs_some))
    }

    /// What does not fit, or may not.
    fn judge(&self, needs: &BTreeMap<Pid, HostNeed>) -> Option<Finding> {
        let (least, most) = (self.sum(needs, |need| need.least), self.sum(needs, |need| need.most));
        let available = bytes(self.available);
        let (there, remedy) = match &self.group {
            None => (
                format!("{available} are available"),
                "free host memory, or suspend fewer processes at a time",
            ),
            Some(group) => (
                format!("the control group {} leaves {available}", group.display()),
                "raise memory.max of the group, or suspend fewer processes at a time",
            ),
        };
        let finding = if least > self.available {
            let message = format!(
                "at least {} of host memory would be needed for process {} and {there}",
                bytes(least),
                self.who(needs, |need| need.least)
            );
            Finding::blocker(KIND, message, remedy)
        } else if most > self.available {
            let message = format!(
                "up to {} of host memory may be needed for process {} and {there}; what is zero takes no room",
                bytes(most),
                self.who(needs, |need| need.most)
            );
            Finding::warning(KIND, message, format!("{remedy}; if it is too little, everything is undone"))
        } else {
            return None;
        };
        Some(match &self.group {
            None => finding,
            Some(group) => finding.on(group.display().to_string()),
        })
    }

    /// How much a member may fill.
    fn limit(&self, pid: Pid, needs: &BTreeMap<Pid, HostNeed>) -> u64 {
        let (least, most) = (self.sum(needs, |need| need.least), self.sum(needs, |need| need.most));
        let mine = needs.get(&pid).copied().unwrap_or_default();
        if most <= self.available {
            // What the others will need is theirs.
            return self.available.saturating_sub(most.saturating_sub(mine.most));
        }
        // Nobody knows whose bytes are zero, so each gets as large a part of the room as it may need.
        let room = self.available.saturating_sub(self.available / RESERVE).saturating_sub(least);
        let open = |least: u64, most: u64| u128::from(most.saturating_sub(least));
        let part = u128::from(room) * open(mine.least, mine.most) / open(least, most).max(1);
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::new(number).unwrap()
    }

    fn domain(group: Option<&str>, available: u64, members: &[i32]) -> Domain {
        let members = members.iter().map(|number| pid(*number)).collect();
        Domain { group: group.map(PathBuf::from), available, members }
    }

    #[test]
    fn a_bound_holds_for_all_its_processes_together() {
        let needs = BTreeMap::from([(pid(1), HostNeed::exactly(60)), (pid(2), HostNeed::exactly(60))]);
        let domains = [domain(None, 1000, &[1, 2]), domain(Some("/g"), 100, &[1, 2])];
        let (_, findings) = fit(&domains, &needs);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].blocks() && findings[0].message.contains("/g"), "{}", findings[0]);
        assert!(findings[0].message.contains("for process 1 2 and"), "{}", findings[0]);
    }

    #[test]
    fn what_may_be_zero_is_not_in_the_way_but_has_its_limit() {
        let needs = BTreeMap::from([
            (pid(1), HostNeed { least: 0, most: 900 }),
            (pid(2), HostNeed { least: 60, most: 360 }),
        ]);
        let (limits, findings) = fit(&[domain(None, 320, &[1, 2])], &needs);
        assert_eq!(findings.len(), 1);
        assert!(!findings[0].blocks() && findings[0].message.contains("up to 1.2 KiB"), "{}", findings[0]);
        // 320 less a sixteenth and what is needed in any case.
        let told: Vec<Option<u64>> = limits.into_values().map(|limits| limits.arena_bytes).collect();
        assert_eq!(told, [Some(180), Some(60)]);
        assert!(findings[0].message.contains("for process 1 2 and"), "{}", findings[0]);
        let (_, findings) = fit(&[domain(None, 59, &[1, 2])], &needs);
        assert!(findings[0].blocks() && findings[0].message.contains("at least 60 B"), "{}", findings[0]);
        assert!(findings[0].message.contains("for process 2 and"), "{}", findings[0]);
    }

    #[test]
    fn what_buffers_may_take_is_shared_evenly() {
        let domains =
            [domain(None, 900, &[1, 2, 3]), domain(Some("/g"), 100, &[2, 3]), domain(Some("/h"), 0, &[1])];
        let told = shares(&domains, [1, 2, 3, 4].map(pid));
        let told: Vec<Option<u64>> = told.into_values().map(|limits| limits.arena_bytes).collect();
        assert_eq!(told, [Some(0), Some(50), Some(50), None]);
    }

    #[test]
    fn each_may_fill_what_the_others_do_not_need() {
        let needs = BTreeMap::from([(pid(1), HostNeed::exactly(60)), (pid(2), HostNeed::exactly(30))]);
        let domains = [domain(None, 1000, &[1, 2]), domain(Some("/g"), 100, &[1])];
        let (limits, findings) = fit(&domains, &needs);
        assert_eq!(findings, []);
        assert_eq!(limits[&pid(1)].arena_bytes, Some(100));
        assert_eq!(limits[&pid(2)].arena_bytes, Some(940));
    }
}
