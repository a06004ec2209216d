//! Shows the stand-in's machine as `nvidia-smi` shows a real one: `fake-smi [--json] [DIR]`.
//!
//! `DIR` is the machine's directory, `FAKECUDA_DIR` where it is left out. The JSON form is one object:
//!
//! ```json
//! {"memory": 8589934592,
//!  "devices": [{"device": 0, "uuid": "GPU-...", "used": 4194304}],
//!  "processes": [{"pid": 4711, "index": null, "state": 0, "used": [4194304, 0]}],
//!  "orphaned": [0, 0]}
//! ```
//!
//! `memory` is the size of each device; a process is charged for what it allocated, also while others share it; `orphaned` is
//! what only the importers or descriptors of a dead process keep. A machine that nobody uses has no devices.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

#[allow(dead_code, reason = "the library uses all of it")]
#[path = "../device/uuid.rs"]
mod uuid;

#[allow(dead_code, reason = "the library uses all of it")]
#[path = "../machine/layout.rs"]
mod layout;

#[allow(dead_code, reason = "the library uses all of it")]
#[path = "../machine/locks.rs"]
mod locks;

use layout::{Layout, MAGIC};

#[derive(Debug, Default, Serialize)]
struct Report {
    memory: u64,
    devices: Vec<Device>,
    processes: Vec<Process>,
    orphaned: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct Device {
    device: usize,
    uuid: String,
    used: u64,
}

#[derive(Debug, Serialize)]
struct Process {
    pid: u32,
    index: Option<u32>,
    state: u32,
    used: Vec<u64>,
}

fn load(number: &AtomicU64) -> u64 {
    number.load(Ordering::SeqCst)
}

/// The machine's state file, mapped.
fn map(dir: &Path) -> std::io::Result<&'static Layout> {
    let file = File::open(dir.join("machine"))?;
    if file.metadata()?.len() < u64::try_from(size_of::<Layout>()).unwrap_or(u64::MAX) {
        return Err(std::io::Error::other("the machine was never set up"));
    }
    let flags = rustix::mm::MapFlags::SHARED;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let mapped = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            size_of::<Layout>(),
            rustix::mm::ProtFlags::READ,
            flags,
            &file,
            0,
        )
    }?;
    // SAFETY: the file is that long, `Layout` is atomics that are only read here, and the mapping stays.
    Ok(unsafe { &*mapped.cast::<Layout>() })
}

fn report(dir: &Path) -> std::io::Result<Report> {
    let layout = map(dir)?;
    if load(&layout.magic) != MAGIC {
        return Err(std::io::Error::other("the machine is of another version of the stand-in"));
    }
    let count = usize::try_from(layout.devices.load(Ordering::Relaxed)).unwrap_or(0);
    let (processes, shares) = (File::open(dir.join("processes"))?, File::open(dir.join("shares"))?);
    let mut report = Report { memory: load(&layout.memory), orphaned: vec![0; count], ..Report::default() };
    let mut owners = Vec::new();
    for (number, slot) in layout.slots.iter().enumerate() {
        let pid = slot.pid.load(Ordering::Acquire);
        if pid == 0 || !locks::held_by_other_process(processes.as_fd(), number) {
            continue;
        }
        let index = Some(slot.index.load(Ordering::Relaxed)).filter(|&index| index != u32::MAX);
        let used = slot.used.iter().take(count).map(load).collect();
        owners.push(number);
        report.processes.push(Process { pid, index, state: slot.state.load(Ordering::Acquire), used });
    }
    for (number, share) in layout.shares.iter().enumerate() {
        if load(&share.id) == 0 || !locks::held_by_other_description(shares.as_fd(), number) {
            continue;
        }
        let Ok(device) = usize::try_from(share.device.load(Ordering::Relaxed)) else { continue };
        let owner = usize::try_from(share.owner.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        let process =
            owners.iter().position(|&slot| slot == owner).and_then(|at| report.processes.get_mut(at));
        let charged = process.map_or(&mut report.orphaned, |process| &mut process.used);
        if let Some(bytes) = charged.get_mut(device) {
            *bytes += load(&share.bytes);
        }
    }
    for device in 0..count {
        let of_device = |used: &Vec<u64>| used.get(device).copied().unwrap_or(0);
        let used: u64 = report.processes.iter().map(|process| of_device(&process.used)).sum();
        let used = used + of_device(&report.orphaned);
        report.devices.push(Device { device, uuid: uuid::uuid(device).to_string(), used });
    }
    Ok(report)
}

const MIB: u64 = 1 << 20;

fn print(report: &Report) {
    for Device { device, uuid, used } in &report.devices {
        println!("GPU {device}  {uuid}  {:>8} MiB of {:>8} MiB", used / MIB, report.memory / MIB);
    }
    for Process { pid, used, .. } in &report.processes {
        let used: Vec<String> = used.iter().map(|bytes| format!("{:>8} MiB", bytes / MIB)).collect();
        println!("process {pid:>8}  {}", used.join("  "));
    }
}

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    arguments.retain(|argument| argument != "--json");
    let dir = match (arguments.as_slice(), std::env::var_os("FAKECUDA_DIR")) {
        ([dir], _) => PathBuf::from(dir),
        ([], Some(dir)) => PathBuf::from(dir),
        _ => {
            eprintln!("usage: fake-smi [--json] [DIR]; without DIR the variable FAKECUDA_DIR names it");
            return ExitCode::from(2);
        }
    };
    match report(&dir) {
        Ok(report) if json => println!("{}", serde_json::to_string(&report).unwrap_or_default()),
        Ok(report) => print(&report),
        Err(error) => {
            eprintln!("fake-smi: {}: {error}", dir.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
