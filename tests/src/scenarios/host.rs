//! Memory that is on the host and belongs to the same family.

use anyhow::Result;

use crate::stage::Stage;

/// Shared and private memory of a NUMA node, with rights for the device and for the processor.
pub(super) fn memory_of_a_numa_node_is_carried(stage: &mut Stage) -> Result<()> {
    let (a, b) = (stage.worker("a")?, stage.worker("b")?);
    a.all(&["new x 4M numa:0 fd", "access x 0 4M numa:0 rw", "fill x 0 4M 70", "export fd x"])?;
    a.all(&["new y 2M numa:0", "fill y 0 2M 71", "props x", "props y"])?;
    a.hand("fd", &b)?;
    b.all(&["import x fd", "show x 4M", "sum x 0 4M", "props x"])?;
    for _ in 0..2 {
        stage.cycle(&[&a, &b])?;
        a.all(&["cpu-read x 0 4", "cpu-write x 0 2a000000", "rights x 0 numa:0", "rights x 0 device:0"])?;
        b.all(&["read x 0 4", "add x 0 4M 1"])?;
        a.all(&["cpu-read x 0 8", "sum x 0 4M", "sum y 0 2M", "props x"])?;
    }
    Ok(())
}

/// NCCL makes host memory before any context exists. Each kind of location is told apart, also one the driver does not know.
pub(super) fn host_memory_needs_no_context(stage: &mut Stage) -> Result<()> {
    let a = stage.bare("a")?;
    a.ok("init")?;
    for location in ["numa:0", "host", "device:0", "device:88", "type:99:0", "numa:77", "numa-current"] {
        a.ask(&format!("on fresh create {location} 2M {location}"))?;
        a.ask(&format!("on fresh granularity {location}"))?;
    }
    a.all(&["on fresh props numa:0", "on fresh props host", "on fresh props device:0"])?;
    a.all(&["begin 0", "show device:0 2M", "fill device:0 0 2M 5", "show numa:0 2M", "fill numa:0 0 2M 6"])?;
    stage.cycle(&[&a])?;
    a.all(&["sum device:0 0 2M", "sum numa:0 0 2M", "on fresh props numa:0", "on fresh release host"])
}

/// Flags are kept, the device's address of the memory stays what it was, and what was registered stays so.
pub(super) fn registered_memory_stays_registered(stage: &mut Stage) -> Result<()> {
    const PORTABLE_AND_MAPPED: u32 = 3;
    const READ_ONLY: u32 = 8;
    let a = stage.worker("a")?;
    a.all(&["pages whole 1M", "pages odd 64K", "pages fixed 64K", "malloc-host own 64K", "malloc x 1M"])?;
    a.all(&[&format!("register whole 0 1M {PORTABLE_AND_MAPPED}"), "register odd 100 5000 1"])?;
    a.all(&["cpu-write fixed 0 0badcafe", &format!("register fixed 0 64K {READ_ONLY}")])?;
    a.refused("register whole 4096 4096 0", 712)?;
    a.all(&["device-pointer dw whole 0 1M", "device-pointer df fixed 0 64K", "fill dw 0 1M 5"])?;
    a.all(&["cpu-write odd 100 01020304", "cpu-write own 0 05060708"])?;
    for round in 0..3 {
        stage.cycle(&[&a])?;
        a.says("device-pointer dw whole 0 1M", "0")?;
        a.says("device-pointer df fixed 0 64K", "0")?;
        for (memory, offset) in [("whole", 0), ("odd", 100), ("fixed", 0), ("own", 0)] {
            a.ok(&format!("host-flags {memory} {offset}"))?;
            a.ok(&format!("cpu-read {memory} {offset} 8"))?;
        }
        a.all(&[&format!("add dw 0 1M {round}"), "cpu-read whole 4096 8", "sum dw 0 1M", "sum df 0 64K"])?;
        a.ok("move x 0 dw 0 1M")?;
        a.ok("sum x 0 1M")?;
        a.refused("register whole 0 1M 0", 712)?;
    }
    a.all(&["unregister whole 0", "unregister odd 100", "unregister fixed 0", "free-host own"])?;
    a.refused("unregister whole 0", 713)?;
    a.ok("register whole 0 1M 0").map(drop)
}

/// One range of `/dev/shm`, registered by two processes: what the GPU writes for one the other reads.
pub(super) fn registered_memory_that_two_processes_share(stage: &mut Stage) -> Result<()> {
    let (a, b) = (stage.worker("a")?, stage.worker("b")?);
    let path = format!("/dev/shm/nvsnap-test-{}", a.pid());
    for worker in [&a, &b] {
        worker.target().ok(&format!("pages s 1M {path}"))?;
        worker.all(&["register s 0 1M 3", "device-pointer d s 0 1M"])?;
    }
    std::fs::remove_file(&path)?;
    for round in 0..3 {
        a.all(&[&format!("fill d 0 1M {}", 40 + round)])?;
        b.all(&["cpu-read s 4096 8", "sum d 0 1M", "add d 0 1M 1"])?;
        a.all(&["cpu-read s 4096 8", "sum d 0 1M"])?;
        stage.cycle(&[&a, &b])?;
        for worker in [&a, &b] {
            worker.says("device-pointer d s 0 1M", "0")?;
            worker.all(&["sum d 0 1M", "host-flags s 0"])?;
        }
    }
    Ok(())
}

/// Where the library registers anew, nothing is different.
pub(super) fn registered_memory_is_registered_anew(stage: &mut Stage) -> Result<()> {
    stage.machine_mut().set("NVSNAP_GPUSHARE_REREGISTER", "1");
    registered_memory_stays_registered(stage)
}

/// The same, of one range in two processes.
pub(super) fn shared_memory_is_registered_anew_by_two_processes(stage: &mut Stage) -> Result<()> {
    stage.machine_mut().set("NVSNAP_GPUSHARE_REREGISTER", "1");
    registered_memory_that_two_processes_share(stage)
}
