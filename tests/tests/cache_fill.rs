//! `suspend --cache`: a process of its own fills the cache, and nobody waits for it.
#![allow(clippy::indexing_slicing, reason = "a test that cannot go on fails, and says where")]

mod depot;

use std::fs;

use anyhow::{Context, Result, ensure};
use integration::Outcome;
use integration::threads::signal;

use depot::{Depot, chunks, filled, filler};

/// Longer than any test has patience: a command that waited for this would never come back.
const NEVER: &str = "cache-prefetch:1:*=delay(100000000)";

fn saving(depot: &Depot, faults: &str) -> Result<Outcome> {
    let tool = depot.saving().option("--cache").argument(depot.cache());
    tool.set("NVSNAP_GPU_SUSPEND_FAULTS", faults).verb("suspend", &depot.pids())?.done()
}

/// What the processes that fill caches have said.
fn log(outcome: &Outcome) -> Result<String> {
    let summary = outcome.events()?.pop().context("a summary")?;
    let path = summary["counts"]["cache_fill"]["log"].as_str().with_context(|| summary.to_string())?;
    Ok(fs::read_to_string(path)?)
}

#[test]
fn the_cache_has_everything_when_the_process_that_fills_it_is_gone() -> Result<()> {
    let depot = Depot::new()?;
    let outcome = saving(&depot, "")?;
    filled(&outcome)?;
    let names = |place| -> Result<Vec<(String, u64)>> {
        let chunks = chunks(place)?;
        let name = |path: &std::path::Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(chunks.iter().filter_map(|(path, (len, ..))| Some((name(path)?, *len))).collect())
    };
    let (stored, cached) = (names(&depot.store())?, names(&depot.cache())?);
    ensure!(stored == cached && !cached.is_empty(), "{cached:?} of {stored:?}");
    let said = log(&outcome)?;
    ensure!(said.contains("the cache has all") && said.contains(&filler(&outcome)?.to_string()), "{said}");
    // It needs the store no more.
    fs::remove_dir_all(depot.store())?;
    depot.resume_from(None, Some(&depot.cache()))?.done()?;
    depot.is_as_it_was()
}

#[test]
fn a_command_does_not_wait_for_the_cache_and_a_fill_that_was_killed_is_made_up_for() -> Result<()> {
    let depot = Depot::new()?;
    let outcome = saving(&depot, NEVER)?;
    depot.are("released")?;
    let pid = filler(&outcome)?;
    let command = fs::read_to_string(format!("/proc/{pid}/cmdline"))?;
    ensure!(command.contains("cache-prefetch"), "process {pid} is {command:?}");
    ensure!(outcome.text().contains(&format!("process {pid} fills the cache")), "{}", outcome.text());
    ensure!(chunks(&depot.cache())?.is_empty(), "the cache has something already");
    signal(pid, 9)?;
    filled(&outcome)?;
    // What is not in the cache comes from the store.
    depot.resume_from(None, Some(&depot.cache()))?.done()?;
    depot.is_as_it_was()?;
    let prefetch = depot.machine.tool().option("cache-prefetch").argument(depot.store());
    prefetch.argument(depot.ckpt_dir()).argument(depot.cache()).run()?.done()?;
    ensure!(chunks(&depot.cache())?.len() == chunks(&depot.store())?.len());
    Ok(())
}

/// The command keeps the signals that ask it to stop from itself, and reads them; what it leaves behind does not read them.
#[test]
fn a_fill_ends_when_it_is_asked_to() -> Result<()> {
    let depot = Depot::new()?;
    let outcome = saving(&depot, NEVER)?;
    let pid = filler(&outcome)?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).context("a mask")?;
    ensure!(blocked.trim().bytes().all(|digit| digit == b'0'), "it blocks {blocked}");
    signal(pid, libc::SIGTERM)?;
    filled(&outcome)?;
    depot.resume_from(None, Some(&depot.cache()))?.done()?;
    depot.is_as_it_was()
}

#[test]
fn a_workload_goes_on_while_its_cache_is_being_filled() -> Result<()> {
    let depot = Depot::new()?;
    let first = saving(&depot, NEVER)?;
    depot.resume_from(None, Some(&depot.cache()))?.done()?;
    depot.is_as_it_was()?;
    // And another suspend of the same memory, which fills it beside the first.
    depot.look()?;
    let second = saving(&depot, "")?;
    filled(&second)?;
    ensure!(chunks(&depot.cache())?.len() == chunks(&depot.store())?.len());
    signal(filler(&first)?, 9)?;
    filled(&first)?;
    depot.resume()?.done()?;
    depot.is_as_it_was()
}

#[test]
fn what_goes_wrong_with_the_cache_is_in_the_log_and_harms_nobody() -> Result<()> {
    let depot = Depot::new()?;
    // A list of somebody else that cannot be read: the fill does not know what is needed.
    fs::create_dir_all(depot.ckpt_dir())?;
    fs::write(depot.ckpt_dir().join("gpu-1.chunks"), "no list")?;
    let outcome = saving(&depot, "")?;
    filled(&outcome)?;
    let said = log(&outcome)?;
    ensure!(said.contains("gpu-1.chunks cannot be used"), "{said}");
    depot.resume_from(None, Some(&depot.cache()))?.done()?;
    depot.is_as_it_was()
}
