//! Suspends to a chunk store, and resumes from it: contents, what is written, and what happens when chunks are not what
//! they should be.
#![allow(clippy::indexing_slicing, reason = "a test that cannot go on fails, and says where")]

mod depot;

use std::fs;

use anyhow::{Context, Result, ensure};
use integration::{Machine, Target};

use depot::{Depot, chunks, fates, filled, flip, largest};

const MIB: u64 = 1 << 20;
/// What the two workers have that is not zero, and what is, without what belongs to the library's own blocks.
const FILLED: u64 = 4 + 130 + 2 + 6 + 2 + 4;

#[test]
fn contents_survive_cycles_and_what_has_not_changed_is_not_written_again() -> Result<()> {
    let depot = Depot::new()?;
    let first = depot.suspend()?.done()?;
    let [moved, zero, deduplicated] = fates(&first, "save")?;
    ensure!((FILLED * MIB..(FILLED + 40) * MIB).contains(&moved), "{moved} bytes were written");
    ensure!(zero >= 66 * MIB && deduplicated == 0, "{zero} zero, {deduplicated} there already");
    depot.are("released")?;
    let written = chunks(&depot.store())?;
    ensure!(depot.list().exists(), "no list");
    depot.resume()?.done()?;
    depot.is_as_it_was()?;

    let list = fs::read(depot.list())?;
    depot.look()?;
    let second = depot.suspend()?.done()?;
    ensure!(fates(&second, "save")? == [0, zero, moved], "{:?}", fates(&second, "save")?);
    ensure!(chunks(&depot.store())?.keys().eq(written.keys()), "other chunks");
    ensure!(
        chunks(&depot.store())?.values().map(|of| of.1).eq(written.values().map(|of| of.1)),
        "a chunk was written again"
    );
    ensure!(fs::read(depot.list())? == list, "the same memory is another list");
    depot.resume()?.done()?;
    depot.is_as_it_was()?;

    // One byte: one chunk.
    depot.look()?;
    depot.workers[0].ok("write large 70000001 55")?;
    let third = depot.suspend()?.done()?;
    ensure!(fates(&third, "save")? == [64 * MIB, zero, moved - 64 * MIB], "{:?}", fates(&third, "save")?);
    depot.resume()?.done()?;
    ensure!(depot.workers[0].ok("read large 70000000 3")? == "015503");
    depot.workers[0].ok("write large 70000001 02")?;
    depot.is_as_it_was()
}

#[test]
fn no_byte_stays_in_the_process() -> Result<()> {
    let depot = Depot::new()?;
    let anonymous = |worker: &Target| -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", worker.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("RssAnon")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse()?)
    };
    let worker = &depot.workers[0];
    // The first cycle of any kind makes what later ones use again.
    depot.suspend()?.done()?;
    depot.resume()?.done()?;
    let before = anonymous(worker)?;
    depot.machine.suspend(&depot.pids())?.done()?;
    let in_place = anonymous(worker)?;
    ensure!(in_place > before + 130 * 1024, "in place there are only {in_place} KiB, before {before}");
    depot.resume()?.done()?;
    depot.suspend()?.done()?;
    let stored = anonymous(worker)?;
    ensure!(stored < before + 4096, "{stored} KiB are left in the process, before {before}");
    depot.resume()?.done()?;
    depot.is_as_it_was()
}

#[test]
fn twelve_cycles_leave_descriptors_threads_and_memory_as_four_did() -> Result<()> {
    let depot = Depot::new()?;
    let mut after_four = Vec::new();
    for cycle in 1..=12 {
        depot.suspend()?.done()?;
        depot.resume()?.done()?;
        if cycle == 4 {
            after_four = depot.workers.iter().map(Target::snapshot).collect::<Result<_>>()?;
        }
    }
    for (worker, before) in depot.workers.iter().zip(&mut after_four) {
        // Threads that work with files leave arenas of the C library behind, as many as ran at once: how they come to share
        // them is chance. What is in memory is compared all the same.
        before.mappings = worker.snapshot()?.mappings;
        worker.settles_to(before, 8192)?;
    }
    let leases = fs::read_dir(depot.store().join("leases"))?.count();
    ensure!(leases == 0, "{leases} leases are left");
    depot.is_as_it_was()
}

#[test]
fn three_hundred_small_allocations_are_few_files() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = machine.worker("a").preload().start()?;
    worker.ok("begin 0")?;
    worker.ok("hoard 300 2M")?;
    for number in 0..300 {
        worker.ok(&format!("fill hoard-{number} 0 2M {}", number + 1))?;
    }
    let (store, ckpt) = (machine.path("store"), machine.path("ckpt"));
    let saving = machine.tool().option("--store").argument(&store).option("--ckpt-dir").argument(&ckpt);
    saving.verb("suspend", &[worker.pid()])?.done()?;
    let files = chunks(&store)?;
    ensure!((10..=12).contains(&files.len()), "{} files", files.len());
    machine.resume(&[worker.pid()])?.done()?;
    for number in [0, 31, 32, 150, 299] {
        let word = format!("{:08x}", (number + 1_u32).swap_bytes());
        ensure!(worker.ok(&format!("read hoard-{number} 2097148 4"))? == word, "allocation {number}");
        ensure!(worker.ok(&format!("read hoard-{number} 0 4"))? == word, "allocation {number}");
    }
    Ok(())
}

#[test]
fn a_store_that_was_moved_is_found_where_the_command_says() -> Result<()> {
    let depot = Depot::new()?;
    depot.suspend()?.done()?;
    let moved = depot.machine.path("somewhere else");
    fs::rename(depot.store(), &moved)?;
    let lost = depot.resume()?.exits(3)?;
    ensure!(lost.text().contains(&depot.store().display().to_string()), "{}", lost.text());
    depot.are("released")?;
    // A path that is relative to where the command is run.
    let found = depot.resume_from(Some("somewhere else".as_ref()), None)?.done()?;
    ensure!(found.text().contains("resumed"), "{}", found.text());
    depot.is_as_it_was()
}

#[test]
fn a_bad_chunk_is_named_and_a_good_one_in_its_place_makes_the_resume_work() -> Result<()> {
    let depot = Depot::new()?;
    depot.suspend()?.done()?;
    let chunk = largest(&depot.store())?;
    let good = fs::read(&chunk)?;
    let another: Vec<u8> = good.iter().map(|byte| byte ^ 1).collect();
    let damages: [(&str, &dyn Fn() -> Result<()>); 5] = [
        ("damaged", &|| flip(&chunk)),
        ("damaged", &|| Ok(fs::write(&chunk, &another)?)),
        ("has", &|| Ok(fs::write(&chunk, &good[..good.len() - 1])?)),
        ("missing", &|| Ok(fs::write(&chunk, [good.as_slice(), &[0]].concat())?)),
        ("missing", &|| Ok(fs::remove_file(&chunk)?)),
    ];
    for (number, (word, damage)) in damages.into_iter().enumerate() {
        damage()?;
        let refused = depot.resume()?.exits(3)?;
        let text = refused.text();
        let name = chunk.file_name().context("a name")?.to_string_lossy();
        ensure!(text.contains(&*name), "damage {number} is not named: {text}");
        ensure!(text.contains(word) || text.contains("missing"), "damage {number}: {text}");
        let status = depot.machine.status(depot.workers[0].pid())?;
        ensure!(status["phase"] == "released", "damage {number}: {status}");
        fs::write(&chunk, &good)?;
    }
    depot.resume()?.done()?;
    depot.is_as_it_was()?;
    depot.suspend()?.done()?;
    depot.resume()?.done()?;
    depot.is_as_it_was()
}

#[test]
fn a_bad_copy_in_the_cache_is_passed_over() -> Result<()> {
    let depot = Depot::new()?;
    let tool = depot.saving().option("--cache").argument(depot.cache());
    filled(&tool.verb("suspend", &depot.pids())?.done()?)?;
    let (stored, cached) = (chunks(&depot.store())?, chunks(&depot.cache())?);
    ensure!(
        stored.len() == cached.len() && !cached.is_empty(),
        "{} of {} in the cache",
        cached.len(),
        stored.len()
    );
    let bad = largest(&depot.cache())?;
    flip(&bad)?;
    depot.resume_from(None, Some(&depot.cache()))?.done()?;
    depot.is_as_it_was()?;
    let log = depot.workers[0].log();
    let name = bad.file_name().context("a name")?.to_string_lossy();
    ensure!(log.contains(&*name) && log.contains("damaged"), "the log does not name it: {log}");
    Ok(())
}

#[test]
fn with_everything_in_the_cache_the_store_may_be_gone() -> Result<()> {
    let depot = Depot::new()?;
    depot.suspend()?.done()?;
    let prefetch = depot.machine.tool().option("--json").option("cache-prefetch");
    let prefetch = prefetch.argument(depot.store()).argument(depot.ckpt_dir()).argument(depot.cache());
    let outcome = prefetch.run()?.done()?;
    let summary = outcome.events()?.pop().context("a summary")?;
    ensure!(summary["copied_bytes"] == summary["bytes"], "{summary}");
    for chunk in chunks(&depot.store())?.keys() {
        fs::remove_file(chunk)?;
    }
    depot.resume_from(Some(&depot.store()), Some(&depot.cache()))?.done()?;
    depot.is_as_it_was()
}

#[test]
fn single_phases_go_to_a_store_and_come_from_it_too() -> Result<()> {
    let depot = Depot::new()?;
    let pids = depot.pids();
    depot.machine.tool().verb("quiesce", &pids)?.done()?;
    depot.saving().verb("release", &pids)?.done()?;
    ensure!(!chunks(&depot.store())?.is_empty() && depot.list().exists(), "nothing was saved");
    depot.machine.tool().verb("checkpoint", &pids)?.done()?;
    depot.machine.tool().verb("restore", &pids)?.done()?;
    let moved = depot.machine.path("elsewhere");
    fs::rename(depot.store(), &moved)?;
    depot.machine.tool().option("--store").argument(&moved).verb("load", &pids)?.done()?;
    for verb in ["remap", "reopen"] {
        depot.machine.tool().verb(verb, &pids)?.done()?;
    }
    depot.is_as_it_was()
}

/// Suspended, with everything read ahead that may be, and then not one good chunk left in the store.
fn staged(ahead_mib: &str) -> Result<Depot> {
    let depot = Depot::with(Machine::stand_in()?, |start| start.set("NVSNAP_GPUSHARE_STAGE", ahead_mib))?;
    depot.suspend()?.done()?;
    depot.stage(None)?;
    for chunk in chunks(&depot.store())?.keys() {
        flip(chunk)?;
    }
    Ok(depot)
}

#[test]
fn what_was_staged_while_the_driver_had_the_process_is_loaded_without_the_store() -> Result<()> {
    let depot = staged("4096")?;
    let resumed = depot.machine.tool().option("--json").verb("resume", &depot.pids())?.done()?;
    let summary = resumed.events()?.pop().context("a summary")?;
    ensure!(summary["seconds"]["stage"].is_number(), "{summary}");
    depot.is_as_it_was()
}

#[test]
fn no_more_is_staged_than_is_allowed() -> Result<()> {
    let depot = staged("64")?;
    let refused = depot.resume()?.exits(3)?;
    ensure!(refused.text().contains("damaged"), "{}", refused.text());
    for chunk in chunks(&depot.store())?.keys() {
        flip(chunk)?;
    }
    depot.resume()?.done()?;
    depot.is_as_it_was()
}
