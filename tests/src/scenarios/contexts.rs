//! The caller's context: nothing of ours may change it.

use anyhow::Result;

use crate::stage::Stage;

/// After every call, whether it succeeds or fails, the current context is what it was, also where there is none.
pub(super) fn the_current_context_is_as_it_was(stage: &mut Stage) -> Result<()> {
    let a = stage.worker("a")?;
    a.ok("current")?;
    for prefix in ["", "on bare "] {
        for line in [
            "create x 2M device:0 fd",
            "create y 3 device:0 fd",
            "reserve x 2M",
            "map x 0 2M x",
            "map x 0 2M x",
            "access x 0 2M device:0 rw",
            "access x 0 2M device:9 rw",
            "rights x 0 device:0",
            "retain h x",
            "props h",
            "export fd x",
            "import i fd",
            "release i",
            "release h",
            "unmap x",
            "release x",
            "release x",
            "unreserve x",
            "unreserve x",
        ] {
            a.ask(&format!("{prefix}{line}"))?;
            a.ok(&format!("{prefix}current"))?;
        }
        a.ok("close fd")?;
        stage.cycle(&[&a])?;
        a.ok(&format!("{prefix}current"))?;
    }
    stage.pardon()
}

/// A pool of loader threads that never made a context current.
pub(super) fn everything_works_from_a_thread_without_context(stage: &mut Stage) -> Result<()> {
    let (a, b) = (stage.worker("a")?, stage.worker("b")?);
    a.all(&["on bare new x 4M device:0 fd", "on bare export fd x", "fill x 0 4M 9"])?;
    a.hand("fd", &b)?;
    b.all(&["on bare import x fd", "on bare show x 4M", "sum x 0 4M"])?;
    a.refused("on bare read x 0 4", 201)?;
    stage.cycle(&[&a, &b])?;
    a.refused("on bare read x 0 4", 201)?;
    b.all(&["on bare retain h x", "on bare same h x", "on bare release h", "sum x 0 4M", "on bare drop x"])?;
    stage.cycle(&[&a, &b])?;
    a.all(&["sum x 0 4M", "on bare drop x", "on bare current"])
}

/// Contexts of one's own beside the primary ones, on two devices; each ends with what was made in it, and with nothing else.
pub(super) fn a_context_ends_with_the_memory_that_was_made_in_it(stage: &mut Stage) -> Result<()> {
    let a = stage.worker("a")?;
    a.all(&["begin 1", "malloc far 3M", "fill far 0 3M 4", "malloc far-small 4K"])?;
    a.all(&[
        "context 0",
        "malloc near 64K",
        "fill near 0 64K 1",
        "new kept 2M device:0",
        "fill kept 0 2M 9",
    ])?;
    for (context, device) in [("c", 0), ("d", 1), ("e", 0)] {
        a.ok(&format!("make-context {context} {device}"))?;
        a.all(&[&format!("malloc {context}-large 4M"), &format!("malloc {context}-small 512")])?;
        a.ok(&format!("memset {context}-large 0 4M 3"))?;
    }
    let there = |blocks: &[&str]| -> Result<()> {
        for block in blocks {
            a.ask(&format!("attribute 2 {block} 0"))?;
            a.ask(&format!("extent {block} 0"))?;
        }
        Ok(())
    };
    let all = ["near", "far", "far-small", "c-large", "c-small", "d-large", "d-small", "e-large", "e-small"];
    for gone in ["", "c", "d"] {
        if !gone.is_empty() {
            a.all(&["context 0", &format!("destroy-context {gone}")])?;
            a.refused(&format!("destroy-context {gone}"), 201)?;
        }
        there(&all)?;
        stage.cycle(&[&a])?;
        there(&all)?;
        a.all(&["use-context e", "read e-large 4194300 4", "malloc more 1M", "free more"])?;
        a.all(&["context 0", "sum near 0 64K", "sum kept 0 2M", "context 1", "sum far 0 3M"])?;
    }
    // The end of a primary context takes what was made in it; memory of handles outlives it.
    a.all(&["use-context e", "reset-device 1"])?;
    there(&all)?;
    stage.cycle(&[&a])?;
    there(&all)?;
    a.all(&["begin 1", "malloc far 1M", "fill far 0 1M 2", "context 0", "sum kept 0 2M"])?;
    stage.cycle(&[&a])?;
    a.all(&["context 1", "sum far 0 1M", "free far", "use-context e", "free e-large", "free e-small"])?;
    stage.pardon()
}
