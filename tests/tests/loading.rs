//! What is loaded from a store is checked where it lies, by the device; and by the processor where that cannot.
#![allow(clippy::indexing_slicing, reason = "a test that cannot go on fails, and says where")]

mod depot;

use anyhow::{Context, Result, ensure};
use integration::Machine;

use depot::{Depot, chunks, filled, flip, largest};

/// How often a process has called something.
fn count(depot: &Depot, name: &str) -> Result<usize> {
    let calls = depot.machine.calls(depot.workers[0].pid())?;
    Ok(calls.iter().filter(|call| call.name == name).count())
}

/// Suspended to a store and a cache, both of which have everything.
fn suspended(depot: &Depot) -> Result<()> {
    let tool = depot.saving().option("--cache").argument(depot.cache());
    filled(&tool.verb("suspend", &depot.pids())?.done()?)
}

/// A depot that reads nothing ahead: what is staged is checked when it is read.
fn unstaged(faults: &str) -> Result<Depot> {
    Depot::with(Machine::stand_in()?, |start| {
        start.set("NVSNAP_GPUSHARE_STAGE", "0").set("FAKECUDA_FAULTS", faults)
    })
}

#[test]
fn the_device_checks_what_it_gets_and_keeps_no_kernel() -> Result<()> {
    let depot = unstaged("")?;
    suspended(&depot)?;
    let names = ["cuLaunchKernel", "cuModuleLoadData", "cuModuleUnload"];
    let before = names.map(|name| count(&depot, name));
    depot.resume()?.done()?;
    let [mut launched, mut loaded, mut unloaded] = [0; 3];
    for ((name, before), made) in names.iter().zip(before).zip([&mut launched, &mut loaded, &mut unloaded]) {
        *made = count(&depot, name)? - before?;
    }
    ensure!(launched >= 2 && loaded > 0, "{launched} launches, {loaded} modules");
    ensure!(loaded == unloaded, "{loaded} modules were loaded and {unloaded} unloaded");
    depot.is_as_it_was()
}

#[test]
fn a_wrong_byte_that_the_device_has_found_is_replaced_from_another_place_or_named() -> Result<()> {
    let depot = unstaged("")?;
    suspended(&depot)?;
    let log = comes_back_past_a_bad_cache(&depot)?;
    for chunk in chunks(&depot.cache())?.keys().filter(|chunk| log.contains(&*chunk.to_string_lossy())) {
        ensure!(log.contains(&format!("{} is damaged", chunk.display())), "{log}");
    }
    is_named_where_there_is_no_good_copy(&depot)
}

#[test]
fn where_the_device_cannot_check_the_processor_does() -> Result<()> {
    // Which call of the first process is the first of its load, is told by a run without faults.
    let first = {
        let depot = unstaged("")?;
        suspended(&depot)?;
        let first = count(&depot, "cuModuleLoadData")? + 1;
        depot.resume()?.done()?;
        ensure!(count(&depot, "cuModuleLoadData")? >= first, "a load loads no kernels");
        first
    };
    let depot = unstaged(&format!("cuModuleLoadData:{first}+:1=oom"))?;
    suspended(&depot)?;
    let log = comes_back_past_a_bad_cache(&depot)?;
    ensure!(log.contains("does not check what it gets"), "{log}");
    is_named_where_there_is_no_good_copy(&depot)
}

/// Damages every chunk of the cache, of one part and of many, of both devices, and resumes: what the log of the first process says.
fn comes_back_past_a_bad_cache(depot: &Depot) -> Result<String> {
    for chunk in chunks(&depot.cache())?.keys() {
        flip(chunk)?;
    }
    depot.resume_from(None, Some(&depot.cache()))?.done()?;
    depot.is_as_it_was()?;
    let log = depot.workers[0].log();
    ensure!(log.matches("another copy is used").count() >= 5, "{log}");
    Ok(log)
}

/// Suspends anew, damages a chunk of the store, and resumes: it is named, and everything is there once it is good again.
fn is_named_where_there_is_no_good_copy(depot: &Depot) -> Result<()> {
    depot.look()?;
    depot.suspend()?.done()?;
    let bad = largest(&depot.store())?;
    flip(&bad)?;
    let refused = depot.resume()?.exits(3)?;
    ensure!(refused.text().contains(&format!("{} is damaged", bad.display())), "{}", refused.text());
    let status = depot.machine.status(depot.workers[0].pid())?;
    ensure!(status["phase"] == "released", "{status}");
    flip(&bad)?;
    depot.resume()?.done().context("the good chunk is back")?;
    depot.is_as_it_was()
}
