//! Copies and fills that name no stream, of memory with `SYNC_MEMOPS`: they wait, whatever stands in front of them.

use anyhow::Result;

use crate::stage::{Actor, Stage};

macro_rules! names {
    ($($class:ident $family:ident fn $name:ident($($arg:ident: $type:ty),*) $(on $($stream:ident).+)?;)*) => {
        const CALLS: &[(&str, &str)] = &[$((stringify!($family), stringify!($name))),*];
    };
}

cuda_sys::for_each_call!(names);

/// The functions.
fn functions() -> impl Iterator<Item = &'static str> {
    CALLS.iter().filter(|(family, _)| *family == "sync").map(|(_, name)| *name)
}

/// How a function is to be called: with the array of one dimension where it takes one; what is described also with the array of two on
/// either side.
fn ways(function: &str) -> &'static [&'static str] {
    if function.contains("DtoA") || function.contains("AtoD") {
        return &[" line"];
    }
    let described = function.starts_with("cuMemcpy2D") || function.starts_with("cuMemcpy3D");
    if described { &["", " plane to", " plane from"] } else { &[""] }
}

/// The default stream that a function runs on.
fn stream_of(function: &str) -> &'static str {
    if function.ends_with("_ptds") { "own" } else { "null" }
}

pub(super) fn memory_with_sync_memops_is_waited_for(stage: &mut Stage) -> Result<()> {
    let a = stage.worker("a")?;
    a.all(&["stream s", "malloc flag 4K", "malloc x 4M", "malloc small 64K", "malloc y 4M"])?;
    a.all(&["array line 4K 0", "array plane 64 2"])?;
    goes_on(&a, "x")?;
    // The attribute of others changes nothing.
    a.all(&["sync-memops small 1", "malloc other 64K", "sync-memops other 1"])?;
    goes_on(&a, "x")?;
    a.ok("sync-memops x 1")?;
    for round in 0..2 {
        for (to, from) in [("x", "y"), ("y", "x"), ("small", "y")] {
            a.all(&[&format!("memset {from} 0 4096 {round}"), "sync"])?;
            for function in functions() {
                for way in ways(function) {
                    waits(&a, function, &format!("{to} {from}{way}"), to)?;
                }
            }
            a.ok(&format!("read {to} 0 64"))?;
        }
        stage.cycle(&[&a])?;
        a.says("attribute 6 x 0", "1")?;
        a.says("attribute 6 y 0", "0")?;
        goes_on(&a, "y")?;
    }
    in_captures(&a)?;
    a.ok("sync-memops x 0")?;
    goes_on(&a, "x")
}

/// Waiting does no harm to a graph that another stream, or another thread, records.
fn in_captures(a: &Actor) -> Result<()> {
    a.all(&["stream t", "malloc count 8", "write count 0 0000000000000000", "on other context 0"])?;
    for (mode, thread) in [("global", ""), ("global", "on other "), ("thread", ""), ("relaxed", "")] {
        a.all(&[&format!("capture s {mode}"), "launch s increment count"])?;
        a.ok(&format!("{thread}without-stream cuMemsetD8_v2 x y"))?;
        a.all(&[
            "launch s increment count",
            "end-capture s g",
            "instantiate g g",
            "launch-graph g s",
            "sync s",
        ])?;
        // The thread is as strict as before.
        a.all(&["capture s global", "launch s increment count"])?;
        a.refused(&format!("{thread}sync t"), 900)?;
        a.refused("end-capture s g", 901)?;
    }
    a.says("read count 0 8", "0800000000000000")
}

/// A function returns when all that it stands behind is done. What touches no memory with the attribute may return sooner.
fn waits(a: &Actor, function: &str, ends: &str, to: &str) -> Result<()> {
    let stream = stream_of(function);
    a.ok(&format!("launch {stream} spin u64:10000000"))?;
    a.ok(&format!("without-stream {function} {ends}"))?;
    // The side without the attribute alone, or the host's.
    let (fills, arrays) = (function.contains("Memset") || function.contains("HtoD"), ends.contains("plane"));
    let aside = match to {
        "y" => fills || function.contains("AtoD") || arrays && ends.ends_with("from"),
        _ => function.contains("DtoA") || arrays && ends.ends_with("to"),
    };
    if aside {
        return a.ok(&format!("sync {stream}")).map(drop);
    }
    a.ok(&format!("query {stream}")).map(drop)
}

/// A fill, and a copy within the device, return while the kernel in front of them still runs.
fn goes_on(a: &Actor, to: &str) -> Result<()> {
    for function in ["cuMemsetD8_v2", "cuMemsetD8_v2_ptds", "cuMemcpyDtoD_v2", "cuMemcpyDtoD_v2_ptds"] {
        let stream = stream_of(function);
        a.all(&["memset flag 0 4K 0", "sync", &format!("launch {stream} wait_flag flag u32:1")])?;
        a.ok(&format!("without-stream {function} {to} flag"))?;
        a.refused(&format!("query {stream}"), 600)?;
        a.says("raw dlsym cuStreamWriteValue32_v2 stream:s flag 1 0", "0")?;
        a.ok("sync")?;
    }
    Ok(())
}
