//! Calls while a stream records: each gives what it gives without the library, and leaves the capture as it leaves it then.

use anyhow::Result;

use crate::stage::{Actor, Stage};

/// What is asked for while a capture is under way. What can be freed there was made before it; what was made is freed after it.
const CALLS: [&str; 12] = [
    "malloc made 64K",
    "malloc made 4M",
    "free small",
    "free large",
    "malloc-host made 4096",
    "new made 2M device:0 fd",
    "memory",
    "extent small 0",
    "query t",
    "sync t",
    "sync",
    "event e",
];

/// In every mode, from the thread that records and from another, each call is made in a capture of its own.
pub(super) fn calls_in_a_capture_answer_and_disturb_as_the_driver_does(stage: &mut Stage) -> Result<()> {
    let a = stage.worker("a")?;
    a.all(&["stream s", "stream t", "malloc count 8", "on other context 0"])?;
    for mode in ["global", "thread", "relaxed"] {
        for thread in ["", "on other "] {
            for call in CALLS {
                in_a_capture(&a, mode, thread, call)?;
            }
        }
    }
    stage.pardon()
}

fn in_a_capture(a: &Actor, mode: &str, thread: &str, call: &str) -> Result<()> {
    a.all(&["malloc small 64K", "malloc large 4M"])?;
    a.ok("write count 0 0000000000000000")?;
    a.all(&[&format!("capture s {mode}"), "launch s increment count"])?;
    // Free and total bytes are the machine's.
    let line = format!("{thread}{call}");
    let answer = if call == "memory" { a.target().ask(&line)? } else { a.ask(&line)? };
    let went = answer.starts_with("ok");
    // From another thread than the one that began it, where that is allowed.
    a.ask("on other launch s increment count")?;
    if a.ask("end-capture s g")?.starts_with("ok") {
        a.all(&["instantiate g g", "launch-graph g s", "sync s"])?;
        a.says("read count 0 8", "0200000000000000")?;
    }
    let (kind, name) = call.split_once(' ').unwrap_or((call, ""));
    match kind {
        "malloc" if went => a.all(&["free made", "free small", "free large"]),
        "malloc-host" if went => a.all(&["free-host made", "free small", "free large"]),
        "new" if went => a.all(&["drop made", "free small", "free large"]),
        "free" if went => a.all(&[if name == "small" { "free large" } else { "free small" }]),
        _ => a.all(&["free small", "free large"]),
    }
}

/// A suspend that comes while a stream records waits for the end of the capture; what was recorded before, and is launched
/// after, computes what it would have.
pub(super) fn a_graph_recorded_before_a_cycle_runs_after_it(stage: &mut Stage) -> Result<()> {
    let a = stage.worker("a")?;
    a.all(&["stream s", "malloc count 8", "write count 0 0000000000000000", "capture s relaxed"])?;
    a.all(&["launch s increment count", "launch s increment count", "end-capture s g", "instantiate x g"])?;
    // One that nobody has recorded.
    a.all(&["malloc copy 8", "write copy 0 0000000000000000", "graph-copy n copy 0 count 0 8 1 1 8"])?;
    a.ok("instantiate y n")?;
    for round in 1..=3 {
        stage.cycle(&[&a])?;
        a.all(&["launch-graph x s", "launch-graph y s", "sync s"])?;
        for buffer in ["count", "copy"] {
            a.says(&format!("read {buffer} 0 8"), &format!("0{}00000000000000", 2 * round))?;
        }
    }
    Ok(())
}
