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
