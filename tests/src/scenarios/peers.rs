//! Two devices in one process: memory of `cuMemAlloc` and of IPC handles behaves as native memory does, with peer access and without.

use anyhow::Result;

use crate::stage::{Actor, Stage};

/// Copies from one device to the other in every shape, with either device current. Both buffers are looked at afterwards, each
/// from its own device.
fn copies(a: &Actor, near: &str, far: &str, round: usize) -> Result<()> {
    for current in ["0", "1"] {
        for (to, from) in [(near, far), (far, near)] {
            a.all(&["context 0", &format!("fill {near} 0 1M {round}"), "context 1"])?;
            a.all(&[&format!("fill {far} 0 1M {}", round + 50), &format!("context {current}")])?;
            a.ask(&format!("move {to} 0 {from} 4K 64K"))?;
            a.ask(&format!("copy-peer {to} 64K {from} 0 64K {} {}", place(to, near), place(from, near)))?;
            a.ask(&format!("copy-2d {to} 128K {from} 0 100 64 512"))?;
            a.ask(&format!("copy-3d {to} 256K {from} 0 100 8 4 512"))?;
            a.ok(&format!("stream s{current}"))?;
            a.ask(&format!("copy-async {to} 384K {from} 0 64K s{current}"))?;
            a.ok(&format!("sync s{current}"))?;
            a.ok(&format!("capture s{current} thread"))?;
            a.ask(&format!("copy-async {to} 512K {from} 0 64K s{current}"))?;
            a.all(&[&format!("end-capture s{current} g"), "instantiate x g"])?;
            a.ask(&format!("graph-copy n {to} 640K {from} 0 100 8 4 512"))?;
            a.ok("instantiate y n")?;
            for graph in ["x", "y"] {
                a.all(&[&format!("launch-graph {graph} s{current}"), &format!("sync s{current}")])?;
            }
            a.ask(&format!("read {to} 0 16"))?;
            a.ok("current")?;
            a.all(&["context 0", &format!("sum {near} 0 1M"), "context 1", &format!("sum {far} 0 1M")])?;
        }
    }
    Ok(())
}

fn place(buffer: &str, near: &str) -> &'static str {
    if buffer == near { "0" } else { "1" }
}

/// Before and after peer access is enabled, and after it is disabled; for memory that is older than the grant and for newer.
pub(super) fn copies_between_devices_need_no_peer_access(stage: &mut Stage) -> Result<()> {
    let a = stage.worker("a")?;
    a.all(&["malloc near 1M", "begin 1", "malloc far 1M"])?;
    copies(&a, "near", "far", 1)?;
    a.all(&["context 0", "peer on 1"])?;
    a.refused("peer on 1", 704)?;
    a.all(&["malloc near2 1M", "context 1", "peer on 0", "malloc far2 1M"])?;
    stage.cycle(&[&a])?;
    a.refused("peer on 0", 704)?;
    copies(&a, "near", "far", 2)?;
    copies(&a, "near2", "far2", 3)?;
    // A kernel of the other device: this needs the grant.
    a.all(&["context 1", "add near 0 1M 1", "context 0", "add far2 0 1M 1"])?;
    stage.cycle(&[&a])?;
    a.all(&["context 1", "sum near 0 1M", "peer off 0", "context 0", "sum far2 0 1M", "peer off 1"])?;
    a.refused("peer off 1", 705)?;
    copies(&a, "near", "far2", 4)?;
    stage.cycle(&[&a])?;
    a.ok("context 0")?;
    a.refused("peer off 1", 705)?;
    a.all(&["sum near 0 1M", "free near", "context 1", "sum far2 0 1M", "free far2"])?;
    // Freed from a thread whose device is another one (CASES 55).
    a.all(&["free near2", "context 0", "free far"])?;
    stage.pardon()
}

/// Memory opened on the other device of the opener.
pub(super) fn opened_memory_is_copied_between_devices(stage: &mut Stage) -> Result<()> {
    let (a, b) = (stage.worker("a")?, stage.worker("b")?);
    a.all(&["malloc x 1M", "fill x 0 1M 7"])?;
    let handle = a.target().ok("ipc-get x 0")?;
    b.target().ok(&format!("ipc-open x 1M {handle}"))?;
    b.all(&["begin 1", "malloc far 1M"])?;
    for round in 0..2 {
        copies(&b, "x", "far", round)?;
        b.all(&["context 1", "peer on 0", "add x 0 1M 1", "peer off 0"])?;
        a.ok("sum x 0 1M")?;
        // Natively an opener cannot be restored.
        if stage.preload() {
            stage.cycle(&[&a, &b])?;
        }
    }
    b.all(&["ipc-close x", "free far"])?;
    a.ok("free x").map(drop)
}
