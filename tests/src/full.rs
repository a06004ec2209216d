//! A process that leaves no byte of its card free, through suspends in place and to a store.
//!
//! Most of the memory is zero, like a cache that was reserved ahead, so that what is saved has room in the machine.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::machine::{Driver, Machine, TMPFS};
use crate::target::Target;
use crate::tool::Tool;

/// The card of the stand-in.
const STAND_IN: u64 = 2 << 30;
/// What is tried while there is room, in MiB: the last is the granularity of the driver.
const SIZES: [u64; 3] = [1024, 64, 2];

/// A piece of the card: its name and its MiB.
type Piece = (String, u64);

/// Plays it with so many MiB that look like chance, and prints what the commands print.
pub fn full(driver: Driver, chance: u64) -> Result<()> {
    let mut machine = Machine::new(driver)?;
    if driver == Driver::StandIn {
        machine.set("FAKECUDA_MEMORY", STAND_IN.to_string());
    }
    let folder = tempfile::Builder::new().prefix("nvsnap-full-").tempdir_in(TMPFS)?;
    let log = folder.path().join("log");
    let worker = machine.worker("full").preload().set("NVSNAP_GPUSHARE_LOG", text(&log)?).start()?;
    worker.ok("begin 0")?;
    let pieces = fill_up(&worker, chance)?;
    println!("{} pieces fill the card: {} MiB in use", pieces.len(), machine.usage()?.device(0) >> 20);
    let sums = || -> Result<Vec<String>> {
        pieces.iter().map(|(name, mib)| worker.ok(&format!("sum {name} 0 {mib}M"))).collect()
    };
    let before = sums()?;
    let [store, list] = ["store", "checkpoint"].map(|name| folder.path().join(name));
    for folder in [&store, &list] {
        std::fs::create_dir(folder)?;
    }
    let stored = ["--store".to_owned(), text(&store)?, "--ckpt-dir".to_owned(), text(&list)?];
    for (what, options) in
        [("in place", &[][..]), ("in place again", &[]), ("to a store", &stored), ("unchanged", &stored)]
    {
        command(&machine, what, "suspend", options, worker.pid())?;
        println!("in use meanwhile: {} MiB", machine.usage()?.device(0) >> 20);
        command(&machine, what, "resume", &[], worker.pid())?;
        ensure!(sums()? == before, "{what}: bytes changed");
        // As full as before: there is room for nothing that was not there.
        ensure!(!worker.ask("new more 2M device:0")?.starts_with("ok"), "{what}: there is room now");
    }
    // What the library could not do with so little memory, and did otherwise.
    print!("{}", std::fs::read_to_string(&log)?);
    println!("A card without a byte free went through four suspends: every checksum as before.");
    worker.end().map(|_| ())
}

/// Takes all that there is. The first pieces look like chance, the others are zero.
fn fill_up(worker: &Target, chance: u64) -> Result<Vec<Piece>> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut taken = 0;
    for mib in SIZES {
        loop {
            let name = format!("x{}", pieces.len());
            let answer = worker.ask(&format!("new {name} {mib}M device:0"))?;
            if !answer.starts_with("ok") {
                ensure!(answer == "error 2 CUDA_ERROR_OUT_OF_MEMORY", "not full, but {answer}");
                break;
            }
            let kernel = if taken < chance { "noise" } else { "fill" };
            let seed = if taken < chance { pieces.len() } else { 0 };
            worker.ok(&format!("{kernel} {name} 0 {mib}M {seed}"))?;
            taken += mib;
            pieces.push((name, mib));
        }
    }
    Ok(pieces)
}

fn text(path: &Path) -> Result<String> {
    path.to_str().map(str::to_owned).context("a name in UTF-8")
}

fn command(machine: &Machine, what: &str, verb: &str, options: &[String], pid: i32) -> Result<()> {
    let tool = options.iter().fold(machine.tool(), |tool: Tool, word| tool.option(word));
    let begin = Instant::now();
    let outcome = tool.verb(verb, &[pid])?.done()?;
    println!("{what}: {verb} took {:.2} s", begin.elapsed().as_secs_f64());
    print!("{}", outcome.text());
    Ok(())
}
