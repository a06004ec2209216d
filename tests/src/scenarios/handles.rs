//! Handles: what they count, and what they are worth when they are gone.

use anyhow::Result;

use crate::stage::Stage;

/// Creation and every retain count; the last release and the last mapping together free the memory.
pub(super) fn handles_are_counted_as_the_driver_counts(stage: &mut Stage) -> Result<()> {
    let a = stage.worker("a")?;
    a.all(&["new x 2M device:0 fd", "fill x 0 2M 1"])?;
    a.all(&["retain y x", "retain z x 1M", "same x y", "same x z"])?;
    stage.cycle(&[&a])?;
    a.all(&["same x y", "release x", "release x"])?;
    stage.cycle(&[&a])?;
    a.all(&["props x", "retain w x", "same w x", "release w", "release x"])?;
    // Every handle is gone, the mapping is not.
    a.refused("release x", 1)?;
    a.ok("sum x 0 2M")?;
    stage.cycle(&[&a])?;
    a.all(&["sum x 0 2M", "retain v x", "export fd v", "unmap x", "release v"])?;
    a.refused("release v", 1)?;
    a.refused("retain u x", 1)?;
    a.all(&["import i fd", "close fd", "show i 2M", "sum i 0 2M", "drop i"])?;
    stage.pardon()
}

/// A handle released while its memory is mapped leaves the memory where it is, and a retain finds it again.
pub(super) fn a_mapping_holds_the_memory(stage: &mut Stage) -> Result<()> {
    let a = stage.worker("a")?;
    a.all(&["new x 4M device:0", "fill x 0 4M 21", "release x"])?;
    stage.cycle(&[&a])?;
    a.all(&["sum x 0 4M", "retain y x", "same x y", "props y", "release y"])?;
    stage.cycle(&[&a])?;
    a.all(&["sum x 0 4M", "unmap x", "unreserve x"])
}

/// Codes of the driver, where it has one: programs fall back by them.
pub(super) fn wrong_handles_are_refused(stage: &mut Stage) -> Result<()> {
    let a = stage.worker("a")?;
    a.all(&["create x 2M device:0", "reserve r 4M"])?;
    a.refused("export fd x", 1)?;
    a.ok("release x")?;
    a.refused("release x", 1)?;
    for line in
        ["raw dlsym cuMemRelease 0", "raw dlsym cuMemMap r 2M 0 0 0", "raw dlsym cuMemCreate out 2M 0 0"]
    {
        a.ok(line)?;
    }
    a.refused("create y 0 device:0", 1)?;
    a.refused("create y 4097 device:0", 1)?;
    a.refused("create y 2M device:99", 101)?;
    a.refused("create y 2M device:-1", 101)?;
    a.refused("create y 2M type:99:0", 1)?;
    a.refused("create y 2M type:0:0", 1)?;
    a.refused("create y 2M device:0 2", 1)?;
    a.refused("create y 1024G device:0", 2)?;
    // A handle that is still good is not hurt by what was wrong before.
    a.all(&["create z 2M device:0 fd", "show z 2M", "fill z 0 2M 2"])?;
    stage.cycle(&[&a])?;
    a.all(&["sum z 0 2M", "drop z", "unreserve r"])?;
    stage.pardon()
}

/// A program sees the properties that it asked for, before and after.
pub(super) fn properties_are_those_asked_for(stage: &mut Stage) -> Result<()> {
    let (a, b) = (stage.worker("a")?, stage.worker("b")?);
    a.all(&["new plain 2M device:0", "new shared 2M device:0 fd", "export fd shared"])?;
    a.hand("fd", &b)?;
    b.all(&["import shared fd", "show shared 2M"])?;
    for _ in 0..2 {
        a.all(&["props plain", "props shared", "granularity device:0", "granularity device:0 fd"])?;
        // An import is not exportable, and says so.
        b.ok("props shared")?;
        b.refused("export again shared", 1)?;
        for attribute in [2, 8, 9, 10, 13, 14, 15, 16] {
            a.ok(&format!("attribute {attribute} shared 64"))?;
            b.ok(&format!("attribute {attribute} shared 64"))?;
        }
        a.says("extent shared 4096", "4096 2097152")?;
        a.ok("describe fd")?;
        stage.cycle(&[&a, &b])?;
    }
    Ok(())
}
