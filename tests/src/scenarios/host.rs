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
