//! Memory of `cuMemAlloc`, and CUDA IPC: with the library it is memory of another make, and nobody can tell.

use anyhow::{Result, ensure};

use crate::stage::{Actor, Stage};

const SIZES: [u64; 9] = [1, 128, 6912, 65536, 1 << 20, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, (64 << 20) + 3];

/// Attributes whose value is the same in every process: type, IPC, managed, ordinal, mapped, handle types, NICs, access,
/// size of the range.
const PLAIN: [u32; 9] = [2, 8, 9, 10, 12, 13, 14, 16, 6];

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
        a.ok("free x")?;
        a.refused("free x", 1)?;
        a.refused("attribute 2 x 0", 1)?;
    }
    a.refused("malloc x 0", 1)?;
    a.refused("malloc x 8192G", 2)?;
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
    a.all(&["stream s", "malloc x 64K", "fill x 0 64K 0"])?;
    a.all(&["launch s spin u64:300000000", "launch s fill x u64:16384 u32:7"])?;
    // The free waits for the kernel, and for the fill behind it.
    a.all(&["free x", "malloc y 64K", "fill y 0 64K 1", "sync s", "sum y 0 64K"]).map(drop)
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
