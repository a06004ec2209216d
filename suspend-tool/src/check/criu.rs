//! What matters where processes are dumped by CRIU.

use std::collections::BTreeSet;

use super::{Finding, Seen, Standing};
use crate::proc::ProcFs;

/// What keeps a process from being dumped by CRIU. In place it is only worth knowing, if that.
pub(super) fn for_criu(proc: &ProcFs, seen: &Seen, criu: bool) -> Vec<Finding> {
    let pid = seen.target.pid;
    let finding = |kind, message: String, remedy: &str| {
        let finding = if criu {
            Finding::blocker(kind, message, remedy)
        } else {
            Finding::warning(kind, message, remedy)
        };
        finding.of(pid)
    };
    let mut findings = Vec::new();
    let events = seen.inventory().map_or(0, |inventory| inventory.shared_events);
    if criu && events > 0 {
        let message = format!(
            "process {pid} has {events} interprocess event(s): they still connect processes after a suspend in place, \
             and nobody has measured whether they do in processes that CRIU has restored"
        );
        let remedy = "try it with this program first, or have it destroy them before it is dumped";
        findings.push(Finding::warning("shared-event", message, remedy).of(pid));
    }
    if seen.maps.shim_deleted {
        findings.push(finding(
            "deleted-shim",
            format!("the library's file in process {pid} was replaced or deleted since it was loaded"),
            "restart the process before it is dumped with CRIU",
        ));
    }
    if seen.maps.probed {
        findings.push(finding(
            "probes",
            format!("a probe is set in process {pid}"),
            "detach tracers and profilers before it is dumped with CRIU",
        ));
    }
    for (prefix, what) in [("/dev/infiniband", "InfiniBand"), ("/dev/gdrdrv", "GDRCopy")] {
        let open: BTreeSet<String> = proc.descriptors(pid, prefix).unwrap_or_default().into_iter().collect();
        for path in open {
            let message = format!("process {pid} has {path} open ({what})");
            findings.push(finding("device-open", message, "CRIU cannot dump it").on(path));
        }
    }
    let inherited = matches!(seen.standing, Standing::Idle)
        && proc.descriptors(pid, "/dev/nvidia").is_ok_and(|found| !found.is_empty());
    if inherited {
        findings.push(finding(
            "inherited-devices",
            format!("process {pid} ({}) has inherited descriptors of the driver", seen.name),
            "CRIU cannot dump them; start such processes before CUDA is initialised",
        ));
    }
    findings
}
