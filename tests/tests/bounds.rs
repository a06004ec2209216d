//! What a save to a store and a load from one take of the process's host memory, threads and GPU memory.
#![allow(clippy::indexing_slicing, reason = "a test that cannot go on fails, and says where")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use integration::threads::Thread;
use integration::{Machine, Target, Tool};

const MIB: u64 = 1 << 20;

fn saving(machine: &Machine) -> Tool {
    let tool = machine.tool().option("--store").argument(machine.path("store"));
    tool.option("--ckpt-dir").argument(machine.path("ckpt"))
}

/// Memory of the process's own, threads that move bytes, and threads that drive devices beside the first.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    memory: u64,
    threads: usize,
    lanes: usize,
}

/// Memory of a process's own, and its threads.
fn look(pid: i32) -> Result<(u64, Vec<Thread>)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("RssAnon")?;
    let memory: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    // One that was joined may be there for a moment still.
    let threads = Thread::all(pid)?.into_iter().filter(|thread| !thread.is_ending);
    Ok((memory << 10, threads.collect()))
}

impl Use {
    /// The most at any moment at which somebody looked while `work` went on, memory beyond what there was before.
    fn most(pid: i32, work: impl FnOnce() -> Result<()>) -> Result<Self> {
        let ended = AtomicBool::new(false);
        let (before, _) = look(pid)?;
        let looks = std::thread::scope(|scope| {
            let watch = scope.spawn(|| -> Result<Vec<(u64, Vec<Thread>)>> {
                let mut looks = Vec::new();
                while !ended.load(Ordering::Relaxed) {
                    looks.push(look(pid)?);
                }
                Ok(looks)
            });
            let worked = work();
            ended.store(true, Ordering::Relaxed);
            let looks = watch.join().map_err(|_| anyhow::anyhow!("the watcher panicked"))?;
            worked.and(looks)
        })?;
        // A thread is begun with the name of the one that begins it, as the driver does where it is called: the last counts.
        let threads = looks.iter().flat_map(|(_, threads)| threads);
        let names: BTreeMap<i32, &str> = threads.map(|thread| (thread.tid, thread.name.as_str())).collect();
        let most = |name: &str| {
            let count = |(_, threads): &(u64, Vec<Thread>)| {
                threads.iter().filter(|thread| names.get(&thread.tid) == Some(&name)).count()
            };
            looks.iter().map(count).max().unwrap_or(0)
        };
        let memory = looks.iter().map(|(memory, _)| memory.saturating_sub(before)).max().unwrap_or(0);
        Ok(Self { memory, threads: most("nvsnap-copy"), lanes: most("nvsnap-lane") })
    }
}

/// A fault for each load of kernels that a process itself does not do when it begins on so many devices: the processor
/// hashes, and sees whole chunks.
fn no_kernels(devices: u32) -> Result<String> {
    let machine = Machine::stand_in()?;
    let worker = machine.worker("a").preload().start()?;
    (0..devices).try_for_each(|device| worker.ok(&format!("begin {device}")).map(drop))?;
    let calls = machine.calls(worker.pid())?;
    let first = calls.iter().filter(|call| call.name == "cuModuleLoadData").count() + 1;
    Ok(format!("cuModuleLoadData:{first}+:*=oom"))
}

/// What a save and a load of 640 MiB on so many devices add, of which so many may be moved at the same time. It is seen the
/// second time: the first cycle makes what later ones use again.
fn added(devices: u32, at_once: &str, faults: &str) -> Result<[Use; 2]> {
    let machine = Machine::stand_in()?;
    let start = machine.worker("a").preload().set("NVSNAP_GPUSHARE_STAGING", "128");
    let start = start.set("NVSNAP_GPUSHARE_LANES", at_once).set("FAKECUDA_FAULTS", faults);
    let worker = start.set("NVSNAP_GPUSHARE_STAGE", "0").set("NVSNAP_GPUSHARE_THREADS", "2").start()?;
    let all = |verb: &str, rest: &str| -> Result<Vec<String>> {
        let on = |device: u32| {
            worker.ok(&format!("context {device}"))?;
            worker.ok(&format!("{verb} x{device} {rest}").replace('D', &device.to_string()))
        };
        (0..devices).map(on).collect()
    };
    (0..devices).try_for_each(|device| worker.ok(&format!("begin {device}")).map(drop))?;
    let size = 640 / devices;
    let sum = || all("sum", &format!("0 {size}M"));
    all("new", &format!("{size}M device:D"))?;
    let pid = worker.pid();
    let mut added = [Use::default(); 2];
    for seed in 1..=2 {
        all("noise", &format!("0 {size}M {seed}D"))?;
        let sums = sum()?;
        added = [
            Use::most(pid, || saving(&machine).verb("suspend", &[pid])?.done().map(drop))?,
            Use::most(pid, || machine.resume(&[pid])?.done().map(drop))?,
        ];
        ensure!(sum()? == sums, "the bytes changed");
    }
    Ok(added)
}

/// Where the processor hashes.
fn takes_what_is_allowed(devices: u32, at_once: &str) -> Result<()> {
    let lanes = if at_once == "1" { 0 } else { usize::try_from(devices - 1)? };
    for (leg, most) in ["save", "load"].iter().zip(added(devices, at_once, &no_kernels(devices)?)?) {
        let more = most.memory;
        ensure!(more < 160 * MIB, "the {leg} took {more} bytes more than there were");
        ensure!(more > 64 * MIB, "nobody saw the buffers of the {leg}: {more} bytes");
        ensure!(most.threads == 2, "{} threads moved bytes in the {leg}", most.threads);
        // One that has just ended may still be seen beside the next.
        let driving = lanes..=2 * lanes;
        ensure!(driving.contains(&most.lanes), "{} more threads drove devices in the {leg}", most.lanes);
    }
    Ok(())
}

#[test]
fn host_memory_and_threads_of_a_save_and_a_load_are_those_that_were_allowed() -> Result<()> {
    takes_what_is_allowed(1, "64")
}

#[test]
fn several_devices_take_no_more_than_one_together() -> Result<()> {
    takes_what_is_allowed(2, "64")?;
    // One after the other.
    takes_what_is_allowed(2, "1")
}

#[test]
fn what_a_device_has_hashed_is_saved_through_two_slots_of_each_thread() -> Result<()> {
    for devices in [1, 2] {
        let [save, _] = added(devices, "64", "")?;
        ensure!(save.memory < 20 * MIB, "the save took {} bytes more than there were", save.memory);
        ensure!(save.memory > 4 * MIB, "nobody saw the slots: {} bytes", save.memory);
        ensure!(save.threads == 0, "{} threads hashed", save.threads);
        // The other one is that which carries out the verb. Of two lanes, one that has just ended may still be seen.
        let driving = 1..=usize::try_from(devices)?;
        ensure!(driving.contains(&save.lanes), "{} more threads streamed from {devices} devices", save.lanes);
    }
    Ok(())
}

/// A control group of the test's own with a process in it, gone with this value.
struct Group {
    folder: PathBuf,
    limit: &'static str,
    usage: &'static str,
}

impl Group {
    /// `None` where this user may not make one.
    fn of(pid: i32) -> Option<Self> {
        let kinds = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
            ("/sys/fs/cgroup", "memory.max", "memory.current"),
        ];
        kinds.into_iter().find_map(|(root, limit, usage)| {
            let group = Self { folder: Path::new(root).join(format!("nvsnap-test-{pid}")), limit, usage };
            fs::create_dir(&group.folder).ok()?;
            let is_one = group.folder.join(limit).exists();
            let moved = fs::write(group.folder.join("cgroup.procs"), pid.to_string());
            (is_one && moved.is_ok()).then_some(group)
        })
    }

    /// Leaves its processes so many bytes.
    fn leave(&self, bytes: u64) -> Result<()> {
        let used: u64 = fs::read_to_string(self.folder.join(self.usage))?.trim().parse()?;
        Ok(fs::write(self.folder.join(self.limit), (used + bytes).to_string())?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Those of its processes that still live go to the group above.
        let inside = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        for pid in inside.lines() {
            let _ = fs::write(self.folder.join("../cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

#[test]
fn half_of_what_a_control_group_leaves_is_the_most_that_buffers_take() -> Result<()> {
    let machine = Machine::stand_in()?;
    let start = machine.worker("a").preload().set("NVSNAP_GPUSHARE_STAGE", "0");
    let worker = start.set("FAKECUDA_FAULTS", no_kernels(1)?).start()?;
    let pid = worker.pid();
    let Some(group) = Group::of(pid) else {
        println!("not shown: this user may not make control groups");
        return Ok(());
    };
    for line in ["begin 0", "new x 640M device:0", "noise x 0 640M 3"] {
        worker.ok(line)?;
    }
    let sum = worker.ok("sum x 0 640M")?;
    // Three chunks and a bit.
    group.leave(400 * MIB)?;
    let most = Use::most(pid, || saving(&machine).verb("suspend", &[pid])?.done().map(drop))?;
    let more = most.memory;
    ensure!(more < 220 * MIB, "the save took {more} bytes more than there were");
    ensure!(more > 64 * MIB, "nobody saw the buffers of the save: {more} bytes");
    // The memory of the stand-in's devices is host memory, and is made again.
    group.leave(1 << 40)?;
    machine.resume(&[pid])?.done()?;
    ensure!(worker.ok("sum x 0 640M")? == sum, "the bytes changed");
    Ok(())
}

/// Memory that is reserved ahead and mostly zero needs no room on the host, and nobody knows how much is zero until the device has
/// looked.
#[test]
fn a_suspend_in_place_goes_on_where_only_what_is_not_zero_fits_and_undoes_all_where_that_does_not()
-> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = machine.worker("a").preload().start()?;
    let pid = worker.pid();
    let Some(group) = Group::of(pid) else {
        println!("not shown: this user may not make control groups");
        return Ok(());
    };
    for line in ["begin 0", "new x 640M device:0", "fill x 0 640M 0", "noise x 0 64M 3"] {
        worker.ok(line)?;
    }
    let sum = worker.ok("sum x 0 640M")?;
    for _ in 0..2 {
        group.leave(300 * MIB)?;
        let told = machine.tool().verb("check", &[pid])?.done()?.text();
        ensure!(told.contains("warning") && told.contains("what is zero takes no room"), "{told}");
        machine.suspend(&[pid])?.done()?;
        // The memory of the stand-in's devices is host memory, and is made again.
        group.leave(1 << 40)?;
        machine.resume(&[pid])?.done()?;
        ensure!(worker.ok("sum x 0 640M")? == sum, "the bytes changed");
    }
    worker.ok("noise x 0 640M 4")?;
    let sum = worker.ok("sum x 0 640M")?;
    group.leave(300 * MIB)?;
    let failed = machine.suspend(&[pid])?;
    ensure!(failed.code == 1 && failed.text().contains("host memory"), "{}", failed.text());
    ensure!(failed.text().contains("save to a store with --store"), "no way out: {}", failed.text());
    ensure!(worker.ok("sum x 0 640M")? == sum, "the bytes changed");
    worker.ok("noise x 0 2M 5")?;
    let sum = worker.ok("sum x 0 640M")?;
    group.leave(900 * MIB)?;
    machine.suspend(&[pid])?.done()?;
    group.leave(1 << 40)?;
    machine.resume(&[pid])?.done()?;
    ensure!(worker.ok("sum x 0 640M")? == sum, "the bytes changed");
    Ok(())
}

/// Fills a card up with buffers of 2 MiB, and says how many there are.
fn fill_up(worker: &Target) -> Result<u64> {
    worker.ok("begin 0")?;
    let mut count = 0;
    while worker.ask(&format!("new x{count} 2M device:0"))?.starts_with("ok") {
        worker.ok(&format!("noise x{count} 0 2M {count}"))?;
        count += 1;
    }
    Ok(count)
}

#[test]
fn a_full_card_goes_to_a_store_and_comes_back() -> Result<()> {
    let mut machine = Machine::stand_in()?;
    machine.set("FAKECUDA_MEMORY", (256 * MIB).to_string());
    let worker = machine.worker("a").preload().start()?;
    let count = fill_up(&worker)?;
    ensure!(count > 100, "the card was full after {count}");
    let words = || -> Result<Vec<String>> {
        (0..count).map(|number| worker.ok(&format!("read x{number} 2097148 4"))).collect()
    };
    let before = words()?;
    for _ in 0..2 {
        saving(&machine).verb("suspend", &[worker.pid()])?.done()?;
        let usage = machine.usage()?.device(0);
        ensure!(usage <= 4 * MIB, "{usage} bytes of the card are still taken");
        machine.resume(&[worker.pid()])?.done()?;
        ensure!(words()? == before, "the bytes changed");
    }
    // The device looked at the memory though there was none to spare: the second time nothing was copied.
    let calls = machine.calls(worker.pid())?;
    let copied = calls.iter().filter(|call| call.name.starts_with("cuMemcpyDtoHAsync")).count();
    let once = usize::try_from(count)?;
    ensure!((once..once + 64).contains(&copied), "{copied} copies of {count} buffers in two suspends");
    Ok(())
}

/// CASES 65: some heaps come in pieces of 512 MiB. They are shared like others, and saved by the chunk, of which most are zero.
#[test]
fn memory_in_pieces_of_512_mib_is_shared_and_saved_in_chunks() -> Result<()> {
    let mut machine = Machine::stand_in()?;
    machine.set("FAKECUDA_GRANULARITY", (512 * MIB).to_string());
    machine.set("FAKECUDA_MEMORY", (4096 * MIB).to_string());
    let workers = [machine.worker("a").preload().start()?, machine.worker("b").preload().start()?];
    let [a, b] = &workers;
    for worker in &workers {
        worker.ok("listen")?;
        worker.ok("begin 0")?;
    }
    a.refused("create small 64M device:0 fd", 1)?;
    for line in ["new x 512M device:0 fd", "export fd x", "send fd b"] {
        a.ok(line)?;
    }
    for line in ["receive fd", "import x fd", "show x 512M"] {
        b.ok(line)?;
    }
    let places = [0, 200 * MIB, 512 * MIB - 4];
    for place in places {
        a.ok(&format!("write x {place} {:08x}", place + 1))?;
    }
    let pids = [a.pid(), b.pid()];
    for round in 0..2 {
        saving(&machine).verb("suspend", &pids)?.done()?;
        if round == 0 {
            let chunks = chunks(&machine.path("store"))?;
            ensure!(chunks.len() == places.len(), "{chunks:?}");
            ensure!(chunks.iter().all(|(_, len)| *len == 64 * MIB), "{chunks:?}");
        }
        machine.resume(&pids)?.done()?;
        for worker in &workers {
            for place in places {
                let found = worker.ok(&format!("read x {place} 4"))?;
                ensure!(found == format!("{:08x}", place + 1), "at {place}: {found}");
            }
        }
        b.ok(&format!("write x {} 0badcafe", 300 * MIB))?;
        ensure!(a.ok(&format!("read x {} 4", 300 * MIB))? == "0badcafe", "not one memory any more");
    }
    Ok(())
}

/// The chunks of a store, with their lengths.
fn chunks(store: &Path) -> Result<Vec<(PathBuf, u64)>> {
    let mut found = Vec::new();
    for fan in fs::read_dir(store.join("chunks"))? {
        for chunk in fs::read_dir(fan?.path())? {
            let chunk = chunk?;
            found.push((chunk.path(), chunk.metadata()?.len()));
        }
    }
    Ok(found)
}
