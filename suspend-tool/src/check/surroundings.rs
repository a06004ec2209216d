//! What about the surroundings of a process stands in the way, or is worth knowing: slices of GPUs, a server between it and the
//! GPU, others on the same GPU, relatives.

use std::collections::{BTreeMap, BTreeSet};

use cuda_sys::Uuid;
use protocol::{Inventory, Location, Origin};

use super::{Finding, Seen, Survey};
use crate::pid::Pid;
use crate::proc::ProcFs;

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
        if let Some(slice) = proc.open_slice(pid) {
            let message =
                format!("process {pid} uses a slice of a GPU (MIG): the driver cannot checkpoint it");
            let remedy = "give it a whole GPU (nvidia-smi -mig 0)";
            findings.push(Finding::blocker("mig", message, remedy).of(pid).on(slice));
        }
        let server = proc.variable(pid, SERVER_VARIABLE);
        if server.is_some() || serves_all {
            let message = format!("process {pid} may use its GPU through a multi-process server (MPS)");
            let remedy = "if the driver refuses the checkpoint, everything is undone; start the process without MPS then";
            let place = server.unwrap_or_else(|| SERVER_SOCKET.to_owned());
            findings.push(Finding::warning("mps", message, remedy).of(pid).on(place));
        }
    }
    findings.extend(crowded(&survey.seen));
    findings.extend(relatives(proc, survey, criu));
    findings
}

/// GPUs that several of the processes have memory on. After a restore the driver no longer interrupts their kernels for one another
/// (580.159.04): work of the others waits, and a kernel that keeps it waiting for some 4 s is ended as failed.
fn crowded(seen: &[Seen]) -> Vec<Finding> {
    let mut users: BTreeMap<[u8; 16], BTreeSet<Pid>> = BTreeMap::new();
    for process in seen {
        for gpu in process.inventory().into_iter().flat_map(gpus) {
            users.entry(gpu).or_default().insert(process.target.pid);
        }
    }
    let shared = users.into_iter().filter(|(_, pids)| pids.len() > 1);
    shared
        .map(|(gpu, pids)| {
            let pids = pids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let message = format!(
                "processes {pids} use one GPU: after a resume the driver does not interrupt the kernels of one for another, and \
                 a kernel that keeps another waiting for 4 s fails"
            );
            let remedy = "use a GPU for each, if kernels run for seconds or wait for another process";
            Finding::warning("shared-gpu", message, remedy).on(Uuid { bytes: gpu }.to_string())
        })
        .collect()
}

/// The GPUs a process has made memory on.
fn gpus(inventory: &Inventory) -> BTreeSet<[u8; 16]> {
    let made = inventory.allocations.iter().filter(|allocation| allocation.origin == Origin::Created);
    let ordinals = made.filter_map(|allocation| match allocation.location {
        Location::Device(ordinal) => Some(ordinal),
        _ => None,
    });
    let uuid_of = |ordinal| inventory.devices.iter().find(|device| device.ordinal == ordinal);
    ordinals.filter_map(uuid_of).map(|device| device.uuid).collect()
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
