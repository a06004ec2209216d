//! What a suspend and a resume must leave as it was.

use anyhow::{Result, ensure};

use crate::stage::Stage;

const CYCLES: usize = 3;

/// Two workers share one buffer; each has memory of its own. Contents, addresses, handles, descriptors, rights and sharing
/// outlast three cycles, and nothing is left behind by them.
pub(super) fn three_cycles_leave_everything_as_it_was(stage: &mut Stage) -> Result<()> {
    let (a, b) = (stage.worker("a")?, stage.worker("b")?);
    a.all(&["new shared 8M device:0 fd", "fill shared 0 8M 7", "new own 4M device:0", "fill own 0 4M 11"])?;
    a.ok("export fd shared")?;
    a.hand("fd", &b)?;
    b.all(&["import shared fd", "show shared 8M", "new own 2M device:0 fd", "fill own 0 2M 13"])?;
    a.all(&["create reader 2M device:0", "reserve reader 2M", "map reader 0 2M reader"])?;
    a.ok("access reader 0 2M device:0 r")?;

    let mut early = None;
    for round in 0..CYCLES {
        let used = stage.machine().usage()?;
        stage.cycle_with(&[&a, &b], || {
            // What the workers held is free; the driver keeps a little, and a context some more on a real GPU.
            let during = stage.machine().usage()?;
            ensure!(during.device(0) < used.device(0), "suspended: {during:?}, before: {used:?}");
            Ok(())
        })?;
        for worker in [&a, &b] {
            worker.ok("sum shared 0 8M")?;
            worker.ok("sum own 0 2M")?;
            worker.all(&["retain again shared", "same again shared", "release again", "props shared"])?;
        }
        a.says("rights reader 0 device:0", "1")?;
        a.refused("write reader 0 00", 1)?;
        a.ok("add shared 0 8M 1")?;
        b.ok("add shared 4M 4M 2")?;
        // The descriptor was cached before the first cycle, and still means the same memory.
        b.all(&["import late fd", "show late 8M", "sum late 0 8M", "drop late"])?;
        if round == 1 {
            early = Some((a.target().snapshot()?, b.target().snapshot()?));
        }
    }
    if let (Some((early_a, early_b)), true) = (early, stage.preload()) {
        // The first cycles make what later ones use again; after that nothing may be added.
        a.target().settles_to(&early_a, 8192)?;
        b.target().settles_to(&early_b, 8192)?;
    }
    stage.pardon()
}

/// Memory that nobody shares is carried all the same, whatever is in it, and also where nothing was ever written.
pub(super) fn private_memory_keeps_its_bytes(stage: &mut Stage) -> Result<()> {
    let a = stage.worker("a")?;
    a.all(&["new filled 6M device:0", "fill filled 0 6M 3", "add filled 2M 2M 9"])?;
    a.all(&["new zero 4M device:0", "memset zero 0 4M 0", "new tail 2M device:0", "memset tail 0 2M 0"])?;
    a.ok("write tail 2097148 0badcafe")?;
    for _ in 0..2 {
        stage.cycle(&[&a])?;
        a.all(&["sum filled 0 6M", "sum zero 0 4M"])?;
        a.says("read tail 2097144 8", "000000000badcafe")?;
    }
    a.all(&["drop filled", "drop zero", "drop tail"])
}

/// What was made exportable but never exported can be exported for the first time afterwards.
pub(super) fn memory_never_exported_before_can_be_shared_after_a_cycle(stage: &mut Stage) -> Result<()> {
    let (a, b) = (stage.worker("a")?, stage.worker("b")?);
    a.all(&["new x 4M device:0 fd", "fill x 0 4M 5"])?;
    stage.cycle(&[&a, &b])?;
    a.ok("export fd x")?;
    a.hand("fd", &b)?;
    b.all(&["import x fd", "show x 4M", "sum x 0 4M", "add x 0 4M 1"])?;
    a.ok("sum x 0 4M")?;
    stage.cycle(&[&a, &b])?;
    b.ok("add x 0 4M 1")?;
    a.ok("sum x 0 4M").map(drop)
}

/// The same for memory of `cuMemAlloc` and IPC handles: the driver's own could not be opened any more after it was restored.
pub(super) fn memory_never_handed_out_before_can_be_opened_after_a_cycle(stage: &mut Stage) -> Result<()> {
    let (a, b) = (stage.worker("a")?, stage.worker("b")?);
    a.all(&["malloc x 4M", "malloc small 4K", "fill x 0 4M 5", "fill small 0 4K 6"])?;
    stage.cycle(&[&a, &b])?;
    for name in ["x", "small"] {
        let handle = a.target().ok(&format!("ipc-get {name} 0"))?;
        b.target().ok(&format!("ipc-open {name} 4096 {handle}"))?;
        b.all(&[&format!("sum {name} 0 4096"), &format!("add {name} 0 4096 1")])?;
        a.ok(&format!("sum {name} 0 4096"))?;
    }
    stage.cycle(&[&a, &b])?;
    b.all(&["add x 0 4096 1", "add small 0 4096 1"])?;
    a.all(&["sum x 0 4M", "sum small 0 4K"])
}

/// A kernel runs on a stream of its own, with more queued behind it, when the suspend comes. Each launch counts once.
pub(super) fn work_that_runs_when_the_suspend_comes_is_not_lost(stage: &mut Stage) -> Result<()> {
    let a = stage.worker("a")?;
    a.all(&["new counter 2M device:0 fd", "memset counter 0 2M 0", "sync", "stream s"])?;
    for _ in 0..CYCLES {
        a.ok("launch s spin u64:200000000")?;
        for _ in 0..10 {
            a.ok("launch s increment counter")?;
        }
        stage.cycle(&[&a])?;
        a.all(&["sync s", "read counter 0 8"])?;
    }
    Ok(())
}

/// Memory that only the driver can name is the driver's to carry.
pub(super) fn arrays_keep_their_bytes(stage: &mut Stage) -> Result<()> {
    let a = stage.worker("a")?;
    a.all(&[
        "array line 4K 0",
        "array-write line 0000000000",
        "array plane 4K 512",
        "malloc x 64K",
        "memset x 0 64K 7",
    ])?;
    a.all(&["array-write line 0badcafe", "without-stream cuMemcpy2D_v2 x x plane to"])?;
    for _ in 0..2 {
        stage.cycle(&[&a])?;
        a.says("array-read line 5", "0badcafe00")?;
        a.all(&["memset x 0 64K 0", "without-stream cuMemcpy2D_v2 x x plane from", "sync"])?;
        a.says("read x 60 6", "070707070000")?;
        a.says("read x 512 4", "07070707")?;
    }
    a.all(&["destroy-array line", "destroy-array plane"])
}
