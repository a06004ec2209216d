//! Memory that several processes hold.

use anyhow::{Result, ensure};

use crate::stage::Stage;

/// Both directions, before and after each cycle.
pub(super) fn a_write_by_one_is_read_by_the_other(stage: &mut Stage) -> Result<()> {
    let (a, b) = (stage.worker("a")?, stage.worker("b")?);
    a.all(&["new left 4M device:0 fd", "export left left", "fill left 0 4M 1"])?;
    b.all(&["new right 2M device:0 fd", "export right right", "fill right 0 2M 2"])?;
    a.hand("left", &b)?;
    b.hand("right", &a)?;
    b.all(&["import left left", "show left 4M"])?;
    a.all(&["import right right", "show right 2M"])?;
    for round in 0..3 {
        for (worker, other) in [(&a, &b), (&b, &a)] {
            for buffer in ["left", "right"] {
                worker.ok(&format!("add {buffer} 0 2M {round}"))?;
                worker.ok(&format!("write {buffer} 1048576 0{round}020304"))?;
                let seen = other.ok(&format!("sum {buffer} 0 2M"))?;
                ensure!(
                    worker.ok(&format!("sum {buffer} 0 2M"))? == seen,
                    "{buffer} is not one memory any more"
                );
            }
        }
        stage.cycle(&[&a, &b])?;
    }
    Ok(())
}

/// A program may keep a descriptor for as long as it likes and import from it whenever it likes.
pub(super) fn a_descriptor_kept_since_before_still_imports(stage: &mut Stage) -> Result<()> {
    let (a, b, c) = (stage.worker("a")?, stage.worker("b")?, stage.worker("c")?);
    a.all(&["new x 4M device:0 fd", "fill x 0 4M 40", "export fd x"])?;
    a.hand("fd", &b)?;
    for _ in 0..2 {
        stage.cycle(&[&a, &b, &c])?;
        b.all(&["import x fd", "show x 4M", "sum x 0 4M", "add x 0 4M 1", "drop x"])?;
        a.ok("sum x 0 4M")?;
    }
    // Passed on by one who never imported it, and after its maker closed it.
    a.ok("close fd")?;
    b.hand("fd", &c)?;
    b.ok("close fd")?;
    c.all(&["import x fd", "close fd", "show x 4M", "sum x 0 4M"])?;
    stage.cycle(&[&a, &b, &c])?;
    c.ok("add x 0 4M 1")?;
    a.ok("sum x 0 4M").map(drop)
}

/// The maker lets go of handle and mapping; the descriptor holds the memory until it is closed, and not for much longer.
pub(super) fn a_descriptor_alone_holds_the_memory(stage: &mut Stage) -> Result<()> {
    let (a, b) = (stage.worker("a")?, stage.worker("b")?);
    a.all(&["new x 64M device:0 fd", "fill x 0 64M 6", "export fd x"])?;
    a.hand("fd", &b)?;
    a.all(&["close fd", "drop x"])?;
    let held = stage.machine().usage()?.device(0);
    stage.cycle(&[&a, &b])?;
    b.all(&["import x fd", "show x 64M", "sum x 0 64M"])?;
    stage.cycle(&[&a, &b])?;
    b.all(&["sum x 0 64M", "close fd", "drop x"])?;
    // On a GPU a context takes a few MiB more after each cycle.
    stage.machine().usage_until(|after| held.saturating_sub(after.device(0)) >= 48 << 20)?;
    Ok(())
}

/// A process imports what it exported: another handle, the same memory.
pub(super) fn an_import_of_ones_own(stage: &mut Stage) -> Result<()> {
    let a = stage.worker("a")?;
    a.all(&["new x 2M device:0 fd", "export fd x", "import y fd", "import z fd"])?;
    a.says("same x y", "false")?;
    a.says("same y z", "false")?;
    a.all(&["show y 2M", "fill x 0 2M 8", "sum y 0 2M", "props y"])?;
    a.all(&["retain again y", "same again y", "same again x", "release again"])?;
    for _ in 0..2 {
        stage.cycle(&[&a])?;
        a.all(&["add y 0 2M 1", "sum x 0 2M", "same x y", "same y z"])?;
    }
    a.all(&["drop x", "sum y 0 2M", "release z"])?;
    stage.cycle(&[&a])?;
    a.all(&["sum y 0 2M", "drop y", "close fd"])
}

/// One exporter, three importers of which one imports twice, and one lets go between cycles.
pub(super) fn several_importers_and_several_imports(stage: &mut Stage) -> Result<()> {
    let a = stage.worker("a")?;
    let others = [stage.worker("b")?, stage.worker("c")?, stage.worker("d")?];
    a.all(&["new x 2M device:0 fd", "fill x 0 2M 0", "export fd x"])?;
    for other in &others {
        a.hand("fd", other)?;
        other.all(&["import x fd", "show x 2M"])?;
    }
    let [b, c, d] = &others;
    b.all(&["import y fd", "show y 2M"])?;
    b.says("same x y", "false")?;
    stage.cycle(&[&a, b, c, d])?;
    for worker in [&a, b, c, d] {
        worker.ok("add x 0 2M 1")?;
    }
    b.ok("sum y 0 2M")?;
    c.all(&["drop x", "close fd"])?;
    stage.cycle(&[&a, b, c, d])?;
    for worker in [&a, b, d] {
        worker.all(&["add x 0 2M 1", "sum x 0 2M"])?;
    }
    b.all(&["drop x", "sum y 0 2M"])?;
    stage.cycle(&[&a, b, c, d])?;
    b.ok("add y 0 2M 1")?;
    d.ok("sum x 0 2M").map(drop)
}
