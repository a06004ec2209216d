//! Events that several processes use: the driver carries them.

use anyhow::Result;

use crate::stage::Stage;

/// One process records, another asks and waits; the handle was made before the first suspend and is opened again after it.
///
/// While the kernel of the one runs, the other has nothing for the GPU to do: once resumed, the driver no longer interrupts a kernel
/// for another process on its device (580.159.04), and this one ends only when it is told to.
pub(super) fn an_event_connects_two_processes_over_suspends(stage: &mut Stage) -> Result<()> {
    let (a, b) = (stage.worker("a")?, stage.worker("b")?);
    a.all(&["stream s", "malloc flag 4K", "shared-event e"])?;
    b.all(&["stream t", "malloc x 64K"])?;
    let handle = a.target().ok("event-handle e")?;
    b.target().ok(&format!("open-event e {handle}"))?;
    for round in 0..3 {
        b.all(&["memset x 0 64K 0", "sync"])?;
        a.all(&["memset flag 0 4K 0", "sync", "launch s wait_flag flag u32:1", "record e s"])?;
        // Not done, since the flag is not set.
        b.refused("event-query e", 600)?;
        b.all(&["wait-event t e", "launch t fill x u64:16384 u32:5"])?;
        b.refused("query t", 600)?;
        a.all(&["write flag 0 01000000", "sync s"])?;
        b.all(&["event-sync e", "event-query e", "sync t", "sum x 0 64K"])?;
        stage.cycle(&[&a, &b])?;
        b.ok("event-query e")?;
        b.target().ok(&format!("open-event again{round} {handle}"))?;
        b.ok(&format!("event-query again{round}"))?;
    }
    Ok(())
}
