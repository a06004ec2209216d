//! Mappings: ranges, rights, and what the driver refuses.

use anyhow::Result;

use crate::stage::Stage;

/// Later grants add, NONE takes away, read-only stays read-only; a call may span mappings but not part of one.
pub(super) fn rights_are_kept_per_mapping(stage: &mut Stage) -> Result<()> {
    let a = stage.worker("a")?;
    a.all(&["reserve r 8M", "create x 2M device:0", "create y 2M device:0", "create z 2M device:0"])?;
    a.all(&["map r 0 2M x", "map r 2M 2M y", "map r 4M 2M z"])?;
    a.all(&["rights r 0 device:0", "access r 0 6M device:0 rw", "access r 2M 2M device:0 r"])?;
    a.ok("access r 4M 2M device:0 none")?;
    a.all(&["fill r 0 2M 17", "rights r 0 device:0", "rights r 2M device:0", "rights r 4M device:0"])?;
    for _ in 0..2 {
        stage.cycle(&[&a])?;
        a.says("rights r 0 device:0", "3")?;
        a.says("rights r 2M device:0", "1")?;
        a.says("rights r 4M device:0", "0")?;
        a.ok("sum r 0 2M")?;
        a.ok("read r 2M 4")?;
        a.refused("write r 2M 00", 1)?;
        a.refused("read r 4M 4", 1)?;
    }
    a.refused("access r 0 1M device:0 r", 1)?;
    a.refused("access r 0 8M device:0 r", 1)?;
    a.refused("access r 6M 2M device:0 rw", 1)?;
    a.refused("access r 0 2M device:0 2", 1)?;
    a.ask("access r 0 2M host rw")?;
    a.ask("access r 0 2M device:0 r device:77 rw")?;
    a.says("rights r 0 device:0", "3")?;
    // Rights belong to the mapping: they are gone with it.
    a.all(&["unmap r 0 2M", "map r 0 2M x"])?;
    a.says("rights r 0 device:0", "0")?;
    stage.cycle(&[&a])?;
    a.says("rights r 0 device:0", "0")?;
    a.all(&["unmap r 0 6M", "release x", "release y", "release z", "unreserve r"])?;
    stage.pardon()
}

/// Two addresses of one allocation show the same bytes.
pub(super) fn an_allocation_is_mapped_twice(stage: &mut Stage) -> Result<()> {
    let a = stage.worker("a")?;
    a.all(&["new x 2M device:0 fd", "reserve twin 2M", "map twin 0 2M x"])?;
    a.all(&["access twin 0 2M device:0 r", "fill x 0 2M 33", "sum twin 0 2M"])?;
    for _ in 0..2 {
        stage.cycle(&[&a])?;
        a.all(&["add x 0 2M 1", "sum twin 0 2M", "retain h twin", "same h x", "release h"])?;
        a.refused("write twin 0 00", 1)?;
    }
    a.all(&["unmap x", "release x", "sum twin 0 2M"])?;
    stage.cycle(&[&a])?;
    a.all(&["sum twin 0 2M", "unmap twin", "unreserve twin", "unreserve x"])?;
    stage.pardon()
}

/// Codes of the driver for ranges that are not there, not whole, or taken.
pub(super) fn wrong_ranges_are_refused(stage: &mut Stage) -> Result<()> {
    let a = stage.worker("a")?;
    a.all(&["create x 4M device:0", "reserve r 16M"])?;
    for (line, code) in [
        ("map r 0 2M x 2M", 801),
        ("map r 0 2M x", 801),
        ("map r 0 0 x", 1),
        ("map r 4096 4M x", 1),
        ("map r 4096 2M x", 801),
        ("unmap r 0 0", 1),
        ("rights r 0 device:0", 1),
        ("retain h r", 1),
        ("unreserve r 0 2M", 1),
        ("unreserve r 2M 2M", 1),
    ] {
        a.refused(line, code)?;
    }
    a.all(&["unmap r", "map r 4M 4M x", "access r 4M 4M device:0 rw", "fill r 4M 4M 3"])?;
    stage.cycle(&[&a])?;
    a.ask("map r 4M 4M x")?;
    a.refused("unmap r 4M 2M", 1)?;
    a.refused("unreserve r", 1)?;
    a.refused("rights r 4M device:77", 101)?;
    a.refused("read r 0 4", 1)?;
    a.ok("sum r 4M 4M")?;
    a.all(&["unmap r 0 16M", "unmap r 0 16M", "release x", "unreserve r"])?;
    a.refused("unreserve r", 1)?;
    a.refused("reserve s 0", 1)?;
    a.refused("reserve s 4096", 1)?;
    a.refused("reserve s 2M 3", 1)?;
    stage.pardon()
}
