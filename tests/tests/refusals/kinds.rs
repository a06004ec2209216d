//! Kinds that are told apart by more than the call that made them: counted exactly, with a remedy, until the last of them is gone.

use integration::InTheWay;

use super::*;

/// So many of a kind are in the way of a suspend, and nothing else is.
fn only(machine: &Machine, target: &Target, kind: &str, count: u32, remedy: &str) -> Result<()> {
    InTheWay { kind, count, object: "", message: &[], remedy: &[remedy] }.of(machine, target, ("good", "2M"))
}

#[test]
fn managed_memory_by_every_road() -> Result<()> {
    let machine = Machine::stand_in()?;
    let holder = worker(&machine, "holder", true)?;
    let holds = |count| only(&machine, &holder, "managed", count, "use cudaMalloc in place");
    holder.ok("stream s")?;
    holder.refused("managed x 0", 1)?;
    accepts(&machine, &[&holder])?;
    all(&holder, &["managed x 2M", "managed y 64K"])?;
    holds(2)?;
    all(&holder, &["make-context c 0", "managed z 64K", "context 0"])?;
    holds(3)?;
    holder.ok("destroy-context c")?;
    holds(2)?;
    all(&holder, &["free x", "free y"])?;
    accepts(&machine, &[&holder])?;
    // A pool of it counts itself, and what is allocated from it.
    all(&holder, &["pool managed p", "malloc-from p x 64K s", "sync s"])?;
    holds(2)?;
    holder.ok("end-pool p")?;
    holds(1)?;
    holder.ok("free x")?;
    accepts(&machine, &[&holder])?;
    // The driver's own does not.
    for which in ["default", "current"] {
        holder.ok(&format!("find-pool p managed {which}"))?;
        accepts(&machine, &[&holder])?;
        all(&holder, &["malloc-from p x 64K s", "malloc-from p y 64K s", "sync s"])?;
        holds(2)?;
        all(&holder, &["free x", "free y"])?;
        accepts(&machine, &[&holder])?;
    }
    Ok(())
}

/// A driver that is to carry memory out of a pool of the host comes to no end (docs/DRIVER-VERSIONS.md, `pools`).
#[test]
fn a_pool_of_the_host() -> Result<()> {
    let machine = Machine::stand_in()?;
    let holder = worker(&machine, "holder", true)?;
    let holds = |count| only(&machine, &holder, "host-pool", count, "use cudaMallocHost");
    holder.ok("stream s")?;
    for place in ["host", "numa"] {
        all(
            &holder,
            &[&format!("pool {place} p"), "malloc-from p x 64K s", "malloc-from p y 64K s", "sync s"],
        )?;
        holds(3)?;
        all(&holder, &["free x", "end-pool p"])?;
        holds(1)?;
        all(&holder, &["free-async y s", "sync s"])?;
        accepts(&machine, &[&holder])?;
        all(&holder, &[&format!("find-pool p {place} default"), "malloc-from p x 64K s", "sync s"])?;
        holds(1)?;
        holder.ok("free x")?;
        accepts(&machine, &[&holder])?;
    }
    // That of the device is the driver's to carry, by whatever name it is found.
    for which in ["default", "current"] {
        all(&holder, &[&format!("find-pool p device {which}"), "malloc-from p x 64K s", "sync s"])?;
        all(&holder, &["fill x 0 64K 3"])?;
        let sum = holder.ok("sum x 0 64K")?;
        accepts(&machine, &[&holder])?;
        assert_eq!(holder.ok("sum x 0 64K")?, sum);
        holder.ok("free x")?;
    }
    Ok(())
}

/// Where memory of `cuMemAlloc` stays the driver's, so do its handles. With memory of the library's own there is never one.
#[test]
fn handles_of_the_drivers_own_memory() -> Result<()> {
    let mut machine = Machine::stand_in()?;
    machine.set("FAKECUDA_WITHOUT", "vmm");
    let start = |name: &str| -> Result<Target> {
        let worker = machine.worker(name).preload().start()?;
        all(&worker, &["begin 0", "malloc good 2M", "fill good 0 2M 1"])?;
        Ok(worker)
    };
    let (exporter, opener) = (start("exporter")?, start("opener")?);
    let both = [&exporter, &opener];
    accepts(&machine, &both)?;
    all(&exporter, &["malloc x 2M", "malloc y 3M"])?;
    exporter.refused("ipc-get y 3M", 1)?;
    let exported = |count| only(&machine, &exporter, "ipc-exported", count, "--disable-custom-all-reduce");
    let opened = |count| only(&machine, &opener, "ipc-opened", count, "--disable-custom-all-reduce");
    let (x, y) = (exporter.ok("ipc-get x 0")?, exporter.ok("ipc-get y 0")?);
    // Once more, by an address inside.
    exporter.ok("ipc-get x 1M")?;
    exported(2)?;
    for (name, handle) in [("x", &x), ("again", &x), ("y", &y)] {
        opener.ok(&format!("ipc-open {name} 64K {handle}"))?;
    }
    opened(3)?;
    opener.ok("ipc-close again")?;
    opened(2)?;
    all(&opener, &["ipc-close x", "ipc-close y"])?;
    accepts(&machine, &[&opener])?;
    exporter.ok("free y")?;
    exported(1)?;
    exporter.ok("free x")?;
    accepts(&machine, &both)?;
    machine.take_violations()?;
    Ok(())
}

#[test]
fn the_driver_never_makes_a_legacy_handle_of_memory_of_ours() -> Result<()> {
    let machine = Machine::stand_in()?;
    let (exporter, opener) = (worker(&machine, "exporter", true)?, worker(&machine, "opener", true)?);
    all(&exporter, &["malloc x 4M", "malloc small 4K"])?;
    for name in ["x", "small"] {
        let handle = exporter.ok(&format!("ipc-get {name} 0"))?;
        opener.ok(&format!("ipc-open {name} 4K {handle}"))?;
    }
    accepts(&machine, &[&exporter, &opener])?;
    all(&opener, &["ipc-close x", "ipc-close small"])?;
    for worker in [&exporter, &opener] {
        let calls = machine.calls(worker.pid())?;
        let legacy: Vec<_> = calls.iter().filter(|call| call.name.starts_with("cuIpc")).collect();
        assert!(legacy.is_empty(), "{}: {legacy:?}", worker.name());
    }
    Ok(())
}
