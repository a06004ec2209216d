//! Whether the threads of processes could be held still. Only asked where that is wanted.

use super::{Finding, Survey};
use crate::freeze::tracers;
use crate::pid::Pid;
use crate::proc::ProcFs;

/// What keeps processes from being frozen.
pub fn cannot_freeze(proc: &ProcFs, survey: &Survey) -> Vec<Finding> {
    survey
        .seen
        .iter()
        .filter(|seen| seen.takes_part())
        .flat_map(|seen| about(proc, seen.target.pid))
        .collect()
}

fn about(proc: &ProcFs, pid: Pid) -> Vec<Finding> {
    let mut findings: Vec<Finding> = tracers::of(proc, pid)
        .into_iter()
        .map(|tracer| {
            let message = format!("process {} ({}) traces process {pid}", tracer.pid, tracer.name);
            let remedy = "end that first (a debugger, strace), or use --no-freeze";
            Finding::blocker("traced", message, remedy).of(pid).on(format!("thread {}", tracer.tid))
        })
        .collect();
    if findings.is_empty() && !proc.may_trace(pid) {
        let message = format!("the system does not let this command trace process {pid}");
        let remedy =
            "run it as root or with CAP_SYS_PTRACE (see also kernel.yama.ptrace_scope), or use --no-freeze";
        findings.push(Finding::blocker("trace-rights", message, remedy).of(pid));
    }
    findings
}
