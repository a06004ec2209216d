//! Memory of `cuMemAlloc`, and CUDA IPC: with the library it is memory of another make, and nobody can tell.

use anyhow::{Result, ensure};

use crate::stage::{Actor, Stage};

const SIZES: [u64; 9] = [1, 128, 6912, 65536, 1 << 20, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, (64 << 20) + 3];

/// Attributes whose value is the same in every process: type, IPC, managed, ordinal, mapped, handle types, NICs, access,
/// size of the range, waiting copies, pool, decompression.
const PLAIN: [u32; 12] = [2, 8, 9, 10, 12, 13, 14, 15, 16, 6, 17, 21];

pub(super) fn every_size_is_as_native_memory(stage: &mut Stage) -> Result<()> {
    let a = stage.worker("a")?;
    for size in SIZES {
        a.ok(&format!("malloc x {size}"))?;
        a.says(&format!("extent x {}", size / 2), &format!("{} {size}", size / 2))?;
        a.refused(&format!("extent x {size}"), 500)?;
        a.refused("retain h x", 1)?;
        for attribute in PLAIN {
            a.ok(&format!("attribute {attribute} x 0"))?;
        }
        let all = PLAIN.map(|attribute| attribute.to_string()).join(" ");
        a.ok(&format!("attributes x {} {all}", size / 2))?;
        a.ok(&format!("attributes x {size} {all}"))?;
        a.says("aligned x 512", "true")?;
        // Where it is, and whose it is, by both ways of asking.
        for attribute in [1, 3, 7, 11, 20] {
            let one = a.target().ok(&format!("attribute {attribute} x 0"))?;
            let by_list = a.target().ok(&format!("attributes x 0 2 {attribute}"))?;
            ensure!(by_list == format!("2 {one}"), "attribute {attribute}: {one}, and {by_list} by the list");
        }
        a.ok("free x")?;
        a.refused("free x", 1)?;
        a.refused("attribute 2 x 0", 1)?;
    }
    a.refused("malloc x 0", 1)?;
    a.refused("malloc x 8192G", 2)?;
    for (width, height) in [(1, 1), (500, 7), (513, 3000), (0, 4), (4, 0)] {
        for element in [4, 16, 3] {
            let pitch = a.ask(&format!("malloc-pitch x {width} {height} {element}"))?;
            if pitch.starts_with("ok") {
                a.ok("extent x 0")?;
                a.all(&["aligned x 512", "free x"])?;
            }
        }
    }
    a.all(&["malloc x 4M"])?;
    a.refused("free x 4096", 1)?;
    a.ok("free x")?;
    stage.pardon()
}

pub(super) fn small_and_large_blocks_survive_cycles(stage: &mut Stage) -> Result<()> {
    let a = stage.worker("a")?;
    a.all(&["malloc large 12M", "malloc odd 5000000", "fill large 0 12M 1", "fill odd 0 4M 2"])?;
    for block in 0..12 {
        a.all(&[&format!("malloc s{block} 64K"), &format!("fill s{block} 0 64K {block}")])?;
    }
    for round in 0..3 {
        stage.cycle(&[&a])?;
        a.all(&["sum large 0 12M", "sum odd 0 4M", "add large 0 12M 3"])?;
        for block in 0..12 {
            a.ok(&format!("sum s{block} 0 64K"))?;
        }
        // What is freed and asked for again may lie elsewhere, but never on top of what is still there.
        a.all(&[
            &format!("free s{round}"),
            &format!("malloc s{round} 128K"),
            &format!("fill s{round} 0 128K 9"),
        ])?;
    }
    Ok(())
}

/// The address that a block was given is the address that it keeps, also in a graph or in memory of the program.
pub(super) fn identities_of_blocks_are_kept(stage: &mut Stage) -> Result<()> {
    let a = stage.worker("a")?;
    a.all(&["malloc x 1000", "malloc y 3000000"])?;
    let ask = |a: &Actor| -> Result<Vec<String>> {
        let mut answers = Vec::new();
        for block in ["x", "y"] {
            for attribute in [1, 3, 7, 11, 20] {
                answers.push(a.target().ok(&format!("attribute {attribute} {block} 0"))?);
            }
        }
        Ok(answers)
    };
    let before = ask(&a)?;
    for _ in 0..2 {
        stage.cycle(&[&a])?;
        ensure!(ask(&a)? == before, "an identity has changed: {before:?}, now {:?}", ask(&a)?);
    }
    Ok(())
}

pub(super) fn a_block_is_not_used_again_under_a_running_kernel(stage: &mut Stage) -> Result<()> {
    let a = stage.worker("a")?;
    a.ok("stream s")?;
    for size in ["64K", "4M"] {
        a.all(&[&format!("malloc x {size}"), "fill x 0 64K 0"])?;
        a.all(&["launch s spin u64:2000000000", "launch s fill x u64:16384 u32:7"])?;
        // The free waits for the kernel, and for the fill behind it.
        a.all(&[
            "free x",
            "query s",
            &format!("malloc y {size}"),
            "fill y 0 64K 1",
            "sync s",
            "sum y 0 64K",
        ])?;
    }
    Ok(())
}

/// The exporter frees, or is gone: who has it open goes on, alone or with others, over suspends too.
pub(super) fn opened_memory_outlives_its_exporter(stage: &mut Stage) -> Result<()> {
    for (round, how) in ["frees", "ends", "is killed"].into_iter().enumerate() {
        let worker = |name: &str| stage.worker(&format!("{name}{round}"));
        let (a, b, c) = (worker("a")?, worker("b")?, worker("c")?);
        a.all(&["malloc x 4M", "malloc small 4096", "fill x 0 4M 5", "fill small 0 4096 6"])?;
        for name in ["x", "small"] {
            let handle = a.target().ok(&format!("ipc-get {name} 0"))?;
            for opener in [&b, &c] {
                opener.target().ok(&format!("ipc-open {name} 4096 {handle}"))?;
            }
        }
        match how {
            "frees" => a.all(&["free x", "free small"])?,
            "ends" => drop(a.target().end()?),
            _ => a.target().kill()?,
        }
        for round in 0..3 {
            b.all(&[&format!("add x 0 4096 {round}"), "add small 0 4096 1"])?;
            for opener in [&b, &c] {
                opener.all(&["sum x 0 4096", "sum small 0 4096"])?;
                opener.says("extent x 1M", "1048576 4194304")?;
            }
            if stage.preload() {
                if how == "frees" { stage.cycle(&[&a, &b, &c])? } else { stage.cycle(&[&b, &c])? }
            }
        }
        for opener in [&b, &c] {
            opener.all(&["ipc-close small", "sum x 0 4096", "ipc-close x"])?;
            opener.refused("ipc-close x", 1)?;
        }
    }
    stage.pardon()
}

/// What was opened in a context goes with it, however often it was opened, and can be opened anew.
pub(super) fn opened_memory_ends_with_its_context(stage: &mut Stage) -> Result<()> {
    let (a, b) = (stage.worker("a")?, stage.worker("b")?);
    a.all(&["malloc x 4M", "fill x 0 4M 5"])?;
    let handle = a.target().ok("ipc-get x 0")?;
    let open = |name: &str| b.target().ok(&format!("ipc-open {name} 4M {handle}")).map(drop);
    for context in ["own", "another"] {
        b.ok(&format!("make-context {context} 0"))?;
        open("x")?;
        open("again")?;
        b.all(&["attribute 2 x 0", "read x 0 4", "context 0", &format!("destroy-context {context}")])?;
        b.ask("attribute 2 x 0")?;
        b.refused("ipc-close x", 1)?;
        stage.cycle(&[&a, &b])?;
    }
    open("x")?;
    b.all(&["sum x 0 4M", "add x 0 4M 1"])?;
    stage.cycle(&[&a, &b])?;
    a.ok("sum x 0 4M")?;
    b.all(&["sum x 0 4M", "ipc-close x"])?;
    a.ok("free x")?;
    stage.pardon()
}

pub(super) fn memory_opened_by_handle_is_shared(stage: &mut Stage) -> Result<()> {
    let (a, b) = (stage.worker("a")?, stage.worker("b")?);
    a.all(&["malloc x 4M", "malloc small 4096", "fill x 0 4M 5", "fill small 0 4096 6"])?;
    let whole = a.target().ok("ipc-get x 0")?;
    ensure!(a.target().ok("ipc-get x 1024")? == whole, "a handle stands for the allocation");
    let small = a.target().ok("ipc-get small 0")?;
    ensure!(
        a.target().ask(&format!("ipc-open own 4M {whole}"))?.starts_with("error 201"),
        "one's own handle"
    );
    for (name, handle) in [("x", &whole), ("again", &whole), ("small", &small)] {
        b.target().ok(&format!("ipc-open {name} 4096 {handle}"))?;
    }
    let address = b.target().ok("attribute 11 x 0")?;
    ensure!(b.target().ok("attribute 11 again 0")? == address, "the same handle gives the same address");
    b.says("extent x 0", "0 4194304")?;
    b.refused("free x", 1)?;
    b.refused("ipc-get x 0", 1)?;
    for round in 0..3 {
        b.all(&["sum x 0 4096", "sum small 0 4096", &format!("add x 0 4096 {round}"), "add small 0 4096 1"])?;
        a.all(&["sum x 0 4096", "sum small 0 4096", "add x 0 4096 1"])?;
        b.ok("sum x 0 4096")?;
        if stage.preload() {
            stage.cycle(&[&a, &b])?;
        }
        ensure!(b.target().ok("attribute 11 x 0")? == address, "opened memory has moved");
    }
    // A handle made before a suspend is opened after it.
    b.all(&["ipc-close x", "sum again 0 4096", "ipc-close again"])?;
    b.refused("ipc-close again", 1)?;
    b.target().ok(&format!("ipc-open x 4096 {whole}"))?;
    b.all(&["sum x 0 4096", "ipc-close x", "ipc-close small"])?;
    a.all(&["sum x 0 4M", "free x", "free small"])?;
    stage.pardon()
}

/// What vLLM does for its custom all-reduce: a handle of any address stands for the allocation, the offset in it is the address less where
/// the range begins, and the peer adds it to what it has opened. Copies to there are recorded in graphs.
pub(super) fn buffers_are_found_by_handle_and_offset(stage: &mut Stage) -> Result<()> {
    custom_all_reduce(stage, false)
}

/// The same with a device for each rank, which opens the other's memory with its own device current.
pub(super) fn buffers_on_two_devices_are_found_by_handle_and_offset(stage: &mut Stage) -> Result<()> {
    custom_all_reduce(stage, true)
}

fn custom_all_reduce(stage: &mut Stage, apart: bool) -> Result<()> {
    let ranks = [stage.worker("a")?, stage.worker("b")?];
    let [a, b] = &ranks;
    if apart {
        b.ok("begin 1")?;
    }
    let buffers = [("x", "4M", 1 << 20), ("small", "64K", 4096), ("odd", "5000", 512)];
    for rank in &ranks {
        rank.all(&["stream s", "malloc before 512", "malloc mine 4K", "memset mine 0 4K 9", "sync"])?;
        for (buffer, size, _) in buffers {
            rank.all(&[&format!("malloc {buffer} {size}"), &format!("memset {buffer} 0 5000 0"), "sync"])?;
        }
    }
    for (rank, peer) in [(a, b), (b, a)] {
        for (buffer, size, inner) in buffers {
            let place = rank.target().ok(&format!("extent {buffer} {inner}"))?;
            let offset = place.split(' ').next().unwrap_or_default().to_owned();
            ensure!(offset == inner.to_string(), "{buffer}: {place}");
            // Where the range begins, from an address in it.
            let begin = rank.target().ok(&format!("attribute 11 {buffer} {inner}"))?;
            ensure!(
                begin == rank.target().ok(&format!("attribute 3 {buffer} 0"))?,
                "{buffer} begins elsewhere"
            );
            let handle = rank.target().ok(&format!("ipc-get {buffer} {inner}"))?;
            peer.target().ok(&format!("ipc-open their-{buffer} {size} {handle}"))?;
        }
        for (number, (buffer, _, inner)) in buffers.iter().enumerate() {
            let record = format!("copy-async their-{buffer} {inner} mine 0 256 s");
            peer.all(&["capture s thread", &record, &format!("end-capture s g{number}")])?;
            peer.ok(&format!("instantiate x{buffer} g{number}"))?;
        }
    }
    for round in 1..4 {
        for (rank, peer) in [(a, b), (b, a)] {
            peer.all(&[&format!("memset mine 0 4K {round}"), "sync"])?;
            for (buffer, _, inner) in buffers {
                peer.all(&[&format!("launch-graph x{buffer} s"), "sync s"])?;
                let expected = format!("00{}", format!("{round:02x}").repeat(2));
                rank.says(&format!("read {buffer} {} 3", inner - 1), &expected)?;
                rank.says(&format!("read {buffer} {} 2", inner + 255), &format!("{round:02x}00"))?;
                // A kernel of the peer's device.
                peer.all(&[&format!("fill their-{buffer} {inner} 8 {round}"), "sync"])?;
                rank.says(&format!("read {buffer} {inner} 4"), &format!("{round:02x}000000"))?;
            }
        }
        if stage.preload() {
            stage.cycle(&[a, b])?;
        }
    }
    stage.pardon()
}
