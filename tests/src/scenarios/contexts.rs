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

/// The whole stack of a thread, with contexts of two devices in it, under calls that succeed and calls that fail, about memory of the current
/// device and of another; and over suspends.
pub(super) fn the_context_stack_is_as_it_was(stage: &mut Stage) -> Result<()> {
    // From the bottom to the top.
    const STACK: [&str; 4] = ["0", "own", "1", "0"];
    let (a, b) = (stage.worker("a")?, stage.worker("b")?);
    a.all(&[
        "begin 1",
        "malloc far 4M",
        "fill far 0 4M 1",
        "make-context own 1",
        "context 0",
        "malloc near 4M",
    ])?;
    a.all(&["malloc-host h 4K", "pages p 64K", "fill near 0 4M 2"])?;
    let handle = b.target().ok("malloc theirs 4M").and_then(|_| b.target().ok("ipc-get theirs 0"))?;
    for context in STACK {
        a.ok(&format!("on deep push-context {context}"))?;
    }
    let lines = [
        "malloc x 4M",
        "malloc small 100",
        "malloc nothing 0",
        "malloc much 8192G",
        "malloc-pitch pitched 100 10 4",
        "memset x 0 4M 3",
        "extent far 5",
        "attribute 2 far 0",
        "attribute 2 unreserved 0",
        "sync-memops far 1",
        "sync-memops far 0",
        "create y 2M device:1 fd",
        "create wrong 3 device:1 fd",
        "reserve y 2M",
        "map y 0 2M y",
        "map y 0 2M y",
        "access y 0 2M device:1 rw",
        "access y 0 2M device:9 rw",
        "retain r y",
        "release r",
        "export fd y",
        "import i fd",
        "release i",
        "close fd",
        "unmap y",
        "release y",
        "unreserve y",
        "move far 0 near 0 4K",
        "move near 0 far 0 4K",
        "copy-peer near 0 far 0 4K 0 1",
        "register p 0 64K 0",
        "register p 0 64K 0",
        "unregister p 0",
        "ipc-close near",
        "peer on own",
        "free x 4096",
        "free x",
        "free x",
        "free small",
        "free pitched",
    ];
    for _ in 0..2 {
        a.ok("reserve unreserved 2M")?;
        a.ok("unreserve unreserved")?;
        for line in lines {
            a.ask(&format!("on deep {line}"))?;
            a.says("on deep current", "0 primary")?;
        }
        // The handle is another one each time, and so is not for the record.
        a.target().ok(&format!("on deep ipc-open opened 4M {handle}"))?;
        a.all(&[
            "on deep current",
            "on deep extent opened 7",
            "on deep ipc-close opened",
            "on deep current",
        ])?;
        // Memory of the other device, and of a context below the top, is given back.
        a.all(&["context 1", "malloc other 4M", "use-context own", "malloc below 64K", "context 0"])?;
        a.all(&["on deep free other", "on deep current", "on deep free below", "on deep current"])?;
        stage.cycle(&[&a, &b])?;
        a.says("on deep current", "0 primary")?;
    }
    a.all(&["context 1", "sum far 0 4M", "context 0"])?;
    for context in STACK.iter().rev() {
        a.says(&format!("on deep pop-context {context}"), "true")?;
        a.ok("on deep current")?;
    }
    a.refused("on deep pop-context 0", 201)?;
    stage.pardon()
}

/// A primary context has users; memory that was made in it ends with the last of them, and not before.
pub(super) fn a_primary_context_ends_with_its_last_user(stage: &mut Stage) -> Result<()> {
    let a = stage.worker("a")?;
    a.all(&[
        "begin 1",
        "malloc far 4M",
        "malloc small 4K",
        "fill far 0 4M 1",
        "context 0",
        "malloc near 64K",
    ])?;
    a.all(&["context 1", "new kept 2M device:1", "fill kept 0 2M 3", "context 0", "fill near 0 64K 2"])?;
    // Obtained twice by now.
    a.all(&["release-device 1", "attribute 2 far 0", "extent small 5"])?;
    stage.cycle(&[&a])?;
    a.all(&["use-context 1", "sum far 0 4M", "use-context 0", "release-device 1"])?;
    for _ in 0..2 {
        a.refused("attribute 2 far 0", 1)?;
        a.refused("extent small 5", 500)?;
        a.refused("release-device 1", 201)?;
        a.all(&["attribute 2 kept 0", "sum near 0 64K"])?;
        stage.cycle(&[&a])?;
    }
    // A new one has none of it, but the memory of handles.
    a.all(&["begin 1", "sum kept 0 2M", "malloc far 4M", "fill far 0 4M 5"])?;
    stage.cycle(&[&a])?;
    a.all(&["sum far 0 4M", "free far", "drop kept"])?;
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
