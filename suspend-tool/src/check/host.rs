//! Whether host memory can hold what is to be saved.

use std::collections::BTreeMap;
use std::path::PathBuf;

use protocol::HostLimits;

use super::Finding;
use crate::pid::Pid;
use crate::proc::{HostMemory, ProcFs};
use crate::report::bytes;

/// What its findings are called.
pub(super) const KIND: &str = "host-memory";

/// Who shares a bound: the whole system, or a control group.
#[derive(Debug)]
struct Domain {
    group: Option<PathBuf>,
    available: u64,
    members: Vec<Pid>,
}

/// How much each process may fill, given what each needs; or what does not fit.
///
/// Limits of control groups hold for all processes in a group together, and so does what the system has.
pub fn host_limits(
    proc: &ProcFs,
    needs: &BTreeMap<Pid, u64>,
) -> Result<BTreeMap<Pid, HostLimits>, Vec<Finding>> {
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

fn fit(domains: &[Domain], needs: &BTreeMap<Pid, u64>) -> Result<BTreeMap<Pid, HostLimits>, Vec<Finding>> {
    let need_of = |pid: &Pid| needs.get(pid).copied().unwrap_or(0);
    let total = |domain: &Domain| domain.members.iter().map(need_of).fold(0, u64::saturating_add);
    let findings: Vec<Finding> = domains
        .iter()
        .filter(|domain| total(domain) > domain.available)
        .map(|domain| too_small(domain, total(domain)))
        .collect();
    if !findings.is_empty() {
        return Err(findings);
    }
    let limit = |pid: &Pid| {
        let mine = domains.iter().filter(|domain| domain.members.contains(pid));
        // What the others will need is theirs.
        mine.map(|domain| {
            let others = total(domain).saturating_sub(need_of(pid));
            domain.available.saturating_sub(others)
        })
        .min()
    };
    Ok(needs.keys().map(|pid| (*pid, HostLimits { arena_bytes: limit(pid) })).collect())
}

fn too_small(domain: &Domain, needed: u64) -> Finding {
    let (needed, available) = (bytes(needed), bytes(domain.available));
    match &domain.group {
        None => Finding::blocker(
            KIND,
            format!("{needed} of host memory would be needed and {available} are available"),
            "free host memory, or suspend fewer processes at a time",
        ),
        Some(group) => Finding::blocker(
            KIND,
            format!(
                "{needed} of host memory would be needed and the control group {} leaves {available}",
                group.display()
            ),
            "raise memory.max of the group, or suspend fewer processes at a time",
        )
        .on(group.display().to_string()),
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
        let needs = BTreeMap::from([(pid(1), 60), (pid(2), 60)]);
        let domains = [domain(None, 1000, &[1, 2]), domain(Some("/g"), 100, &[1, 2])];
        let findings = fit(&domains, &needs).unwrap_err();
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("/g"), "{}", findings[0]);
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
        let needs = BTreeMap::from([(pid(1), 60), (pid(2), 30)]);
        let domains = [domain(None, 1000, &[1, 2]), domain(Some("/g"), 100, &[1])];
        let limits = fit(&domains, &needs).unwrap();
        assert_eq!(limits[&pid(1)].arena_bytes, Some(100));
        assert_eq!(limits[&pid(2)].arena_bytes, Some(940));
    }
}
