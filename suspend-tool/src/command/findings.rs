//! Every thing that can be in the way or worth knowing, each put into a world that has nothing else.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{check, suspend};
use crate::check::{Finding, Severity};
use crate::pid::Pid;
use crate::simulated::{Process, World};

/// A pair of processes that share memory, with a child of the first.
fn world() -> World {
    let world = World::of([Process::new(101).makes(1, 11), Process::new(102).imports(1, 101)]);
    let child = world.proc_of(150);
    std::fs::create_dir_all(child.join("fd")).unwrap();
    let zeros = ["0"; 17].join(" ");
    std::fs::write(child.join("stat"), format!("150 (child) S 101 {zeros} 6000 0\n")).unwrap();
    world
}

fn add(file: impl AsRef<Path>, text: &str) {
    let before = std::fs::read_to_string(&file).unwrap_or_default();
    std::fs::write(file, before + text).unwrap();
}

fn open(world: &World, pid: i32, device: &str) {
    symlink(device, world.proc_of(pid).join(format!("fd/{}", device.len()))).unwrap();
}

fn thread_of_102(world: &World, tracer: i32) {
    let task = world.proc_of(102).join("task/102");
    std::fs::create_dir_all(&task).unwrap();
    std::fs::write(task.join("status"), format!("Name:\tx\nTracerPid:\t{tracer}\n")).unwrap();
}

/// A thing: how it comes into the world, and how it is told: kind, process, in place, for CRIU.
type Case = (fn(&World), &'static str, Option<i32>, Option<Severity>, Option<Severity>);

const BLOCKER: Option<Severity> = Some(Severity::Blocker);
const WARNING: Option<Severity> = Some(Severity::Warning);

/// Has the driver name its slices, as it does wherever slices can be made.
fn slices(world: &World) {
    let folder = world.proc_of(101).join("../driver/nvidia-caps");
    std::fs::create_dir_all(&folder).unwrap();
    let minors = "config 1\nmonitor 2\ngpu0/gi0/access 3\ngpu0/gi0/ci0/access 4\ngpu0/gi0/ci1/access 5\n";
    std::fs::write(folder.join("mig-minors"), minors).unwrap();
}

/// Gives 102 memory of its own, on the GPU that 101 uses.
fn crowd(world: &World) {
    let made = Process::new(102).makes(2, 12).holdings;
    world.inner().processes.get_mut(&102).unwrap().holdings.extend(made);
}

const CASES: [Case; 13] = [
    (|world| open(world, 102, "/dev/infiniband/uverbs0"), "device-open", Some(102), WARNING, BLOCKER),
    (|world| open(world, 101, "/dev/gdrdrv"), "device-open", Some(101), WARNING, BLOCKER),
    (|world| open(world, 150, "/dev/nvidiactl"), "inherited-devices", Some(150), WARNING, BLOCKER),
    (
        |world| {
            slices(world);
            open(world, 101, "/dev/nvidia-caps/nvidia-cap5");
        },
        "mig",
        Some(101),
        BLOCKER,
        BLOCKER,
    ),
    (crowd, "shared-gpu", None, WARNING, WARNING),
    (
        |world| {
            std::fs::write(world.proc_of(102).join("environ"), "A=1\0CUDA_MPS_PIPE_DIRECTORY=/m\0").unwrap()
        },
        "mps",
        Some(102),
        WARNING,
        WARNING,
    ),
    (
        |world| add(world.proc_of(102).join("../net/unix"), "0: 2 0 0 1 1 7 /tmp/nvidia-mps/control\n"),
        "mps",
        Some(101),
        WARNING,
        WARNING,
    ),
    (
        |world| add(world.proc_of(101).join("maps"), "7f6-7f7 --xp 0 00:00 0 [uprobes]\n"),
        "probes",
        Some(101),
        WARNING,
        BLOCKER,
    ),
    (
        |world| {
            let maps = "7f2-7f3 r-xp 0 08:01 2 /l/libnvsnap_gpushare.so (deleted)\n";
            std::fs::write(world.proc_of(102).join("maps"), maps).unwrap();
        },
        "deleted-shim",
        Some(102),
        WARNING,
        BLOCKER,
    ),
    (
        |world| add(world.proc_of(102).join("maps"), "7f8-7f9 r-xp 0 08:01 3 /m/libnvsnap_gpushare.so\n"),
        "two-shims",
        Some(102),
        BLOCKER,
        BLOCKER,
    ),
    (
        |world| world.inner().processes.get_mut(&102).unwrap().version = "0.0.9".into(),
        "version",
        Some(102),
        BLOCKER,
        BLOCKER,
    ),
    (
        |world| std::fs::write(world.proc_of(101).join("../meminfo"), "MemAvailable: 1000 kB\n").unwrap(),
        "host-memory",
        None,
        BLOCKER,
        BLOCKER,
    ),
    (|world| thread_of_102(world, 150), "traced", Some(102), BLOCKER, BLOCKER),
];

#[test]
fn each_is_told_with_its_process_its_object_and_what_to_do() {
    for (put, kind, pid, in_place, for_criu) in CASES {
        let world = world();
        put(&world);
        let pid = pid.and_then(Pid::new);
        let found = |criu: bool| {
            let begun = Instant::now();
            let outcome = check(&world.context(), &world.pids(), criu);
            assert!(begun.elapsed() < Duration::from_secs(1), "{kind} took {:?}", begun.elapsed());
            let is_it = |finding: &&Finding| finding.kind == kind && finding.pid == pid;
            let finding = outcome.findings.iter().find(is_it).cloned();
            finding.unwrap_or_else(|| panic!("{kind} is not told: {}", outcome.text()))
        };
        let told = found(false);
        assert!(!told.remedy.is_empty(), "{kind} has no remedy");
        assert!(
            told.object.is_some() || matches!(kind, "host-memory" | "deleted-shim" | "probes"),
            "{kind}: {told:?}"
        );
        assert!(pid.is_none_or(|pid| told.message.contains(&pid.to_string())), "{told}");
        assert_eq!(Some(told.severity), in_place, "{kind}");
        assert_eq!(Some(found(true).severity), for_criu, "{kind} for CRIU");

        // What only warns does not keep a suspend from succeeding, and what blocks does.
        let outcome = suspend(&world.context(), &world.pids(), Duration::from_secs(5));
        let code = if in_place == BLOCKER { 4 } else { 0 };
        assert_eq!(outcome.exit.code(), code, "{kind}: {}", outcome.text());
    }
}

#[test]
fn all_of_them_are_told_at_once() {
    let world = world();
    for (put, ..) in CASES {
        put(&world);
    }
    let outcome = check(&world.context(), &world.pids(), true);
    let kinds: std::collections::BTreeSet<&str> =
        outcome.findings.iter().map(|finding| finding.kind).collect();
    let expected: std::collections::BTreeSet<&str> = CASES.iter().map(|case| case.1).collect();
    assert_eq!(kinds, expected, "{}", outcome.text());
}

#[test]
fn a_world_with_nothing_in_it_has_nothing_to_tell() {
    let outcome = check(&world().context(), &world().pids(), true);
    assert_eq!(outcome.findings, []);
}

#[test]
fn whoever_asks_about_slices_uses_none() {
    let world = world();
    slices(&world);
    open(&world, 101, "/dev/nvidia-caps/nvidia-cap1");
    open(&world, 102, "/dev/nvidia-caps/nvidia-cap2");
    assert_eq!(check(&world.context(), &world.pids(), true).findings, []);
}

#[test]
fn a_tracer_is_no_matter_where_threads_are_left_running() {
    let world = world();
    thread_of_102(&world, 150);
    let mut context = world.context();
    context.freezes = false;
    assert_eq!(check(&context, &world.pids(), false).findings, []);
}
