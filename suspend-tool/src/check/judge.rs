//! What is in the way of a suspend.

use std::collections::BTreeMap;

use protocol::{Blocker, BlockerKind, HostLimits, Inventory, Phase};

use super::criu::for_criu;
use super::surroundings::surroundings;
use super::unclaimed::unclaimed;
use super::{Finding, Machine, Seen, Standing, Survey, host_limits};
use crate::pid::Pid;
use crate::proc::ProcFs;
use crate::report::chain;
use crate::topology::{Amount, Around, HostNeed, Member, Obstacle, Plan, host_bytes, make_plan, released};

/// The version of this command, which is that of the library it was installed with.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What came of a check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// Blockers and warnings.
    pub findings: Vec<Finding>,
    /// Who saves and who hands out.
    pub plan: Plan,
    /// How much host memory each may fill.
    pub limits: BTreeMap<Pid, HostLimits>,
    /// Bytes that will go to host memory, by process.
    pub saved: BTreeMap<Pid, HostNeed>,
    /// What will be saved by the processes themselves, wherever to.
    pub released: BTreeMap<Pid, Amount>,
}

impl Verdict {
    /// The same where only what the driver saves is going to stay in host memory.
    #[must_use]
    pub fn with_store(mut self, proc: &ProcFs) -> Self {
        self.findings.retain(|finding| finding.kind != super::host::KIND);
        let needs = self.saved.iter().map(|(pid, need)| (*pid, HostNeed::exactly(need.least))).collect();
        self.findings.extend(host_limits(proc, &needs).1);
        self.findings.sort();
        self
    }
}

/// Judges what was seen. With `criu`, what keeps a process from being dumped blocks too.
pub fn judge(machine: &Machine, survey: &Survey, criu: bool) -> Verdict {
    let mut findings = Vec::new();
    match &machine.driver {
        Err(error) => findings.push(Finding::blocker("driver", chain(error), "")),
        Ok(driver) => {
            if let Err(error) = driver.can_checkpoint() {
                findings.push(Finding::blocker("driver", chain(&error), ""));
            }
        }
    }
    for (pid, trouble) in &survey.unseen {
        findings.push(Finding::blocker("process", chain(trouble), "").of(*pid));
    }
    for seen in &survey.seen {
        findings.extend(about(seen, machine.driver.is_ok()));
        findings.extend(for_criu(&machine.proc, seen, criu));
    }
    if survey.unseen.is_empty() && !survey.seen.iter().any(Seen::uses_cuda) {
        let remedy = "name the processes that use the GPU (`nvsnap-gpu-suspend list` shows them)";
        findings.push(Finding::blocker("nothing", "none of the processes uses CUDA", remedy));
    }
    findings.extend(surroundings(&machine.proc, survey, criu));
    let members = survey.members();
    findings.extend(different_versions(&members));
    findings.extend(unclaimed(&members, criu));
    let mut verdict = plan(&machine.proc, &members, &survey.around);
    verdict.findings.extend(findings);
    verdict.findings.sort();
    verdict
}

/// The part of a verdict that depends on what the processes hold: asked again when they have come to rest.
pub fn plan(proc: &ProcFs, members: &[Member], around: &Around) -> Verdict {
    let mut verdict = Verdict::default();
    for member in members {
        verdict.findings.extend(held(member.pid, &member.inventory));
    }
    match make_plan(members, around) {
        Ok(plan) => verdict.plan = plan,
        Err(obstacles) => verdict.findings.extend(obstacles.iter().map(in_the_way)),
    }
    verdict.saved = members
        .iter()
        .map(|member| {
            let HostNeed { least, most } = host_bytes(member, verdict.plan.heir_of(member.pid));
            // What is kept is used again, or given back first.
            let most = most.saturating_sub(member.inventory.kept_bytes).max(least);
            (member.pid, HostNeed { least, most })
        })
        .collect();
    let amount = |member: &Member| (member.pid, released(member, verdict.plan.heir_of(member.pid)));
    verdict.released = members.iter().map(amount).collect();
    let (limits, findings) = host_limits(proc, &verdict.saved);
    verdict.limits = limits;
    verdict.findings.extend(findings);
    verdict
}

/// What is wrong with one process as a whole.
fn about(seen: &Seen, with_driver: bool) -> Vec<Finding> {
    let pid = seen.target.pid;
    let mut findings = Vec::new();
    match &seen.standing {
        Standing::Unshimmed(error) => findings.push(
            Finding::blocker(
                "no-shim",
                format!("process {pid} ({}) uses CUDA and cannot be asked: {}", seen.name, chain(error)),
                "",
            )
            .of(pid),
        ),
        Standing::Idle => findings.push(
            Finding::warning(
                "no-cuda",
                format!("process {pid} ({}) does not use CUDA", seen.name),
                "it is left alone",
            )
            .of(pid),
        ),
        Standing::DriverOnly => {}
        Standing::Shimmed(inventory) => {
            findings.extend(phase(pid, inventory));
            if with_driver && seen.state.is_none() {
                let message = format!("the driver does not know process {pid}");
                let remedy = "run this command where it sees the same driver and GPUs as the process";
                findings.push(Finding::blocker("driver-state", message, remedy).of(pid));
            }
        }
    }
    if let Some(state) = seen.state.filter(|state| *state != cuda_sys::ProcessState::RUNNING) {
        findings.push(
            Finding::blocker(
                "driver-state",
                format!("the driver has process {pid} {}", crate::driver::state_name(state)),
                format!("`nvsnap-gpu-suspend resume {pid}` first"),
            )
            .of(pid),
        );
    }
    if seen.maps.shims.len() > 1 {
        let files = seen.maps.shims.join(" and ");
        findings.push(
            Finding::blocker(
                "two-shims",
                format!("process {pid} has loaded two libraries: {files}"),
                "name one of them in LD_PRELOAD",
            )
            .of(pid)
            .on(files),
        );
    }
    findings
}

/// Whether the process runs at all.
fn phase(pid: Pid, inventory: &Inventory) -> Vec<Finding> {
    let mut findings = Vec::new();
    if inventory.phase != Phase::Running {
        let message = format!("process {pid} is {} already", inventory.phase.name());
        let remedy = format!("`nvsnap-gpu-suspend resume {pid}` first");
        findings.push(Finding::blocker("phase", message, remedy).of(pid));
    }
    if let Some(progress) = inventory.progress {
        let message =
            format!("process {pid} is busy with {}, which another command began", progress.verb.name());
        findings.push(Finding::blocker("busy", message, "wait for it to end").of(pid));
    }
    if inventory.poisoned {
        let message =
            format!("the library in process {pid} has met a fault of its own and does nothing more");
        let remedy = "restart the process, and report what NVSNAP_GPUSHARE_LOG says";
        findings.push(Finding::blocker("poisoned", message, remedy).of(pid));
    }
    if let Some(number) = inventory.drain.error {
        let error =
            cuda_sys::CuError::from_raw(number).map_or_else(|| number.to_string(), |error| error.to_string());
        let message = format!("process {pid} has an error of its own on the GPU: {error}");
        findings.push(Finding::blocker("gpu-error", message, "restart the process").of(pid));
    }
    if inventory.drain.captures > 0 {
        let message = format!("process {pid} captures {} stream(s) at the moment", inventory.drain.captures);
        let remedy = "a suspend waits for the end of the capture, up to --timeout";
        findings.push(Finding::warning("capture", message, remedy).of(pid));
    }
    findings
}

/// What a process holds that cannot be carried.
fn held(pid: Pid, inventory: &Inventory) -> Vec<Finding> {
    inventory
        .blockers
        .iter()
        .map(|blocker| {
            let (kind, what, remedy) = words(blocker.kind);
            let Blocker { count, example, .. } = blocker;
            let example_text =
                if example.is_empty() { String::new() } else { format!(" (for example {example})") };
            let message = format!("process {pid} holds {count} {what}{example_text}");
            Finding::blocker(kind, message, remedy).of(pid).on(example.clone())
        })
        .collect()
}

/// A word for programs, what it is, and what to do about it.
fn words(kind: BlockerKind) -> (&'static str, &'static str, &'static str) {
    match kind {
        BlockerKind::IpcOpened => (
            "ipc-opened",
            "allocation(s) opened by a legacy CUDA IPC handle",
            "switch CUDA IPC off in the program (vLLM: --disable-custom-all-reduce)",
        ),
        BlockerKind::IpcExported => (
            "ipc-exported",
            "allocation(s) handed out by a legacy CUDA IPC handle",
            "switch CUDA IPC off in the program (vLLM: --disable-custom-all-reduce)",
        ),
        BlockerKind::SharedPool => (
            "shared-pool",
            "memory pool(s) that can be shared, or allocation(s) out of another process's pool",
            "use pools without a shareable handle type",
        ),
        BlockerKind::HostPool => (
            "host-pool",
            "memory pool(s) of the host, or allocation(s) out of one, which no driver is known to restore",
            "use cudaMallocHost, or pools of the device",
        ),
        BlockerKind::Managed => (
            "managed",
            "managed allocation(s), which the driver cannot checkpoint",
            "use cudaMalloc in place of cudaMallocManaged",
        ),
        BlockerKind::Multicast => (
            "multicast",
            "multicast object(s), which this driver does not let a restored process join again (r610 or later does)",
            "switch multicast off in the program: NCCL_NVLS_ENABLE=0; in vLLM also VLLM_ALLREDUCE_USE_SYMM_MEM=0, in \
                 SGLang no --enable-nccl-nvls and no --enable-torch-symm-mem, in PyTorch TORCH_SYMM_MEM_DISABLE_MULTICAST=1",
        ),
        BlockerKind::ForeignImport => (
            "foreign-import",
            "handle(s) imported from a process without the library",
            "start the exporting process with the library too",
        ),
        BlockerKind::RawHandle => (
            "raw-handle",
            "raw handle(s) that were handed out",
            "unset NVSNAP_GPUSHARE_RAW_FD, and switch dma-buf or fabric handles off in the program",
        ),
        BlockerKind::Fabric => (
            "fabric",
            "allocation(s) that can be shared over a fabric",
            "unset NVSNAP_GPUSHARE_FABRIC on all ranks: an engine within one node then uses descriptors",
        ),
        BlockerKind::SparseMapping => ("sparse", "sparse array mapping(s)", "free them before the suspend"),
        BlockerKind::ExternalMemory => {
            ("external-memory", "allocation(s) of a graphics API", "free them before the suspend")
        }
        BlockerKind::Graphics => ("graphics", "mapped graphics resource(s)", "unmap them before the suspend"),
        BlockerKind::UnknownAbi => (
            "unknown-abi",
            "driver function(s) that allocate or share in a form the library does not know",
            "use a version of the library that knows this driver",
        ),
        BlockerKind::BoundPast => (
            "bound-past",
            "way(s) to a driver function that lead past the library",
            "open that library without RTLD_DEEPBIND, and name nvsnap-gpushare first in LD_PRELOAD",
        ),
        BlockerKind::SharedEvent => (
            "shared-event",
            "interprocess event(s), which this driver is not known to carry (r580 or later does)",
            "destroy them before the suspend (PyTorch makes them where processes share tensors on the GPU), or use a newer driver",
        ),
        BlockerKind::Pinned => (
            "pinned",
            "window(s) of GDRCopy on memory of the GPU",
            "switch GDRCopy off in the program (NCCL_GDRCOPY_ENABLE=0), or set NVSNAP_GPUSHARE_GDRCOPY=1 if it pins \
             anew after a resume",
        ),
        BlockerKind::SecondDriver => (
            "second-driver",
            "copies of the CUDA driver library in one process",
            "take all but one libcuda.so off the program's search paths, and open it without dlmopen",
        ),
    }
}

/// An obstacle in words.
fn in_the_way(obstacle: &Obstacle) -> Finding {
    match obstacle {
        Obstacle::ExporterOutside { importer, exporter, count, example } => Finding::blocker(
            "exporter-outside",
            format!(
                "process {importer} uses {count} allocation(s) of process {exporter}, which is not among the \
                 processes named"
            ),
            format!("name process {exporter} as well"),
        )
        .of(*importer)
        .on(example.to_string()),
        Obstacle::ImporterOutside { importer, holder, count, example } => Finding::blocker(
            "importer-outside",
            format!(
                "process {importer}, which is not among the processes named, uses {count} allocation(s) of process \
                 {holder}"
            ),
            format!("name process {importer} as well"),
        )
        .of(*importer)
        .on(example.to_string()),
        Obstacle::Incomplete { holder, object, devices, joined } => Finding::blocker(
            "multicast-incomplete",
            format!(
                "process {holder} holds a multicast object for {devices} devices, of which only {joined} belong to the \
                 processes named"
            ),
            "name the other processes as well; if they have ended, restart the workload",
        )
        .of(*holder)
        .on(object.to_string()),
        Obstacle::Lost { importer, exporter, allocation } => Finding::blocker(
            "lost",
            format!(
                "process {importer} uses an allocation of process {exporter}, which ended without anybody having \
                 saved it"
            ),
            "restart the process",
        )
        .of(*importer)
        .on(allocation.to_string()),
    }
}

/// Libraries of different versions, or of another than this command.
fn different_versions(members: &[Member]) -> Vec<Finding> {
    let others = members.iter().filter(|member| member.inventory.shim_version != VERSION);
    others
        .map(|member| {
            let (pid, theirs) = (member.pid, &member.inventory.shim_version);
            let message =
                format!("the library in process {pid} is version {theirs}, this command version {VERSION}");
            let remedy = "use the command that was installed with the library";
            Finding::blocker("version", message, remedy).of(pid).on(theirs.clone())
        })
        .collect()
}
