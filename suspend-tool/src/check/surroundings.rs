//! What about the surroundings of a process stands in the way: slices of GPUs, a server between it and the GPU, relatives.

use std::collections::BTreeSet;

use super::{Finding, Survey};
use crate::pid::Pid;
use crate::proc::ProcFs;

/// Directories of a slice's devices; the driver cannot checkpoint there (cuda-checkpoint #42).
const SLICES: &str = "/dev/nvidia-caps/";
/// Where the clients of a multi-process server are told to find it.
const SERVER_VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";
/// Part of the name of its socket where nobody says otherwise.
const SERVER_SOCKET: &str = "/nvidia-mps/control";

/// What is in the way of these processes, or worth knowing.
pub(super) fn surroundings(proc: &ProcFs, survey: &Survey, criu: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let serves_all = proc.has_socket(SERVER_SOCKET);
    for seen in survey.seen.iter().filter(|seen| seen.takes_part()) {
        let pid = seen.target.pid;
        let slices = proc.descriptors(pid, SLICES).unwrap_or_default();
        if let Some(slice) = slices.first() {
            let message =
                format!("process {pid} uses a slice of a GPU (MIG): the driver cannot checkpoint it");
            let remedy = "give it a whole GPU (nvidia-smi -mig 0)";
            findings.push(Finding::blocker("mig", message, remedy).of(pid).on(slice.clone()));
        }
        let server = proc.variable(pid, SERVER_VARIABLE);
        if server.is_some() || serves_all {
            let message = format!("process {pid} may use its GPU through a multi-process server (MPS)");
            let remedy = "if the driver refuses the checkpoint, everything is undone; start the process without MPS then";
            let place = server.unwrap_or_else(|| SERVER_SOCKET.to_owned());
            findings.push(Finding::warning("mps", message, remedy).of(pid).on(place));
        }
    }
    findings.extend(relatives(proc, survey, criu));
    findings
}

/// Children that hold descriptors of the driver which nobody closes for them: CRIU dumps them along with their parents.
fn relatives(proc: &ProcFs, survey: &Survey, criu: bool) -> Vec<Finding> {
    let named: BTreeSet<Pid> = survey.seen.iter().map(|seen| seen.target.pid).collect();
    let taking_part: Vec<Pid> =
        survey.seen.iter().filter(|seen| seen.takes_part()).map(|seen| seen.target.pid).collect();
    let children = proc.descendants(&taking_part).unwrap_or_default();
    let mut findings = Vec::new();
    for pid in children.into_iter().filter(|pid| !named.contains(pid)) {
        let open = proc.descriptors(pid, "/dev/nvidia").unwrap_or_default();
        let Some(first) = open.first() else { continue };
        let name = proc.stat(pid).map(|stat| stat.name).unwrap_or_default();
        let message = format!("process {pid} ({name}), a child of one that is named, holds {first} open");
        let remedy = "CRIU cannot dump that; start such processes before CUDA is initialised, or name it if it uses CUDA";
        let finding = if criu {
            Finding::blocker("inherited-devices", message, remedy)
        } else {
            Finding::warning("inherited-devices", message, remedy)
        };
        findings.push(finding.of(pid).on(first.clone()));
    }
    findings
}
