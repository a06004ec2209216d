//! The verbs for stores and caches, and the directories that a suspend or a resume is given.
#![allow(clippy::indexing_slicing, reason = "a test that cannot go on fails, and says where")]

mod depot;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use integration::Outcome;
use serde_json::Value;

use depot::{Depot, chunks, flip, largest};

/// What the verb counted.
fn counts(outcome: &Outcome) -> Result<Value> {
    Ok(outcome.events()?.pop().context("a summary")?["counts"].clone())
}

/// A run of one of the verbs with `--json`.
fn verb(depot: &Depot, verb: &str, arguments: &[&Path]) -> Result<Outcome> {
    let tool = depot.machine.tool().option(verb).option("--json");
    arguments.iter().fold(tool, |tool, argument| tool.argument(argument)).run()
}

#[test]
fn a_cache_is_filled_once_and_put_right_and_emptied_to_its_size() -> Result<()> {
    let depot = Depot::new()?;
    depot.suspend()?.done()?;
    let (store, ckpt, cache) = (depot.store(), depot.ckpt_dir(), depot.cache());
    let stored = chunks(&store)?;
    let all: u64 = stored.values().map(|(len, ..)| len).sum();
    let prefetch = |more: &[&Path]| -> Result<Value> {
        let outcome =
            verb(&depot, "cache-prefetch", &[&[&*store, &*ckpt, &*cache], more].concat())?.done()?;
        let told = outcome.events()?.into_iter().rfind(|event| event["event"] == "chunks");
        let told = told.context("no progress is told")?;
        ensure!(told["bytes"] == all && told["total"] == all && told["rate"].is_u64(), "{told}");
        counts(&outcome)
    };
    let first = prefetch(&[])?;
    ensure!(first["copied_bytes"] == all && first["chunks"] == stored.len(), "{first}");
    // One that was cut short goes on: only what is missing is copied.
    let gone = largest(&cache)?;
    let len = fs::metadata(&gone)?.len();
    fs::remove_file(&gone)?;
    let second = prefetch(&[])?;
    ensure!(second["copied_bytes"] == len && second["existing_bytes"] == all - len, "{second}");
    let bad = largest(&cache)?;
    flip(&bad)?;
    ensure!(prefetch(&[])?["copied_bytes"] == 0, "without --verify-existing lengths are believed");
    prefetch(&["--verify-existing".as_ref()])?;
    verb(&depot, "store-verify", &[&cache])?.done()?;
    // A bad chunk in the store is not copied.
    let source = largest(&store)?;
    flip(&source)?;
    fs::remove_file(&bad)?;
    let refused = verb(&depot, "cache-prefetch", &[&store, &ckpt, &cache])?.exits(1)?;
    let name = source.file_name().context("a name")?.to_string_lossy();
    ensure!(refused.text().contains(&*name) && refused.text().contains("damaged"), "{}", refused.text());

    let before = chunks(&cache)?.values().map(|(len, ..)| len).sum::<u64>();
    let done = counts(&verb(&depot, "cache-gc", &[&cache, "0.07".as_ref()])?.done()?)?;
    let kept: u64 = chunks(&cache)?.values().map(|(len, ..)| len).sum();
    ensure!(kept <= (75 << 20) && kept > 0, "{kept} bytes are left");
    ensure!(done["kept"]["bytes"] == kept && done["removed"]["bytes"] == before - kept, "{done}");
    verb(&depot, "cache-gc", &[&store, "1".as_ref()])?.exits(1)?;
    Ok(())
}

#[test]
fn what_no_checkpoint_needs_is_told_and_removed_when_asked() -> Result<()> {
    let depot = Depot::new()?;
    let (store, ckpt) = (depot.store(), depot.ckpt_dir());
    depot.suspend()?.done()?;
    let first = chunks(&store)?;
    depot.resume()?.done()?;
    depot.workers[0].ok("write large 5 99")?;
    depot.suspend()?.done()?;
    let both = chunks(&store)?;
    ensure!(both.len() > first.len(), "nothing new was written");

    let told = verb(&depot, "store-gc", &[&store, &ckpt])?.done()?;
    let unneeded: Vec<String> = told
        .events()?
        .iter()
        .filter(|event| event["event"] == "unneeded")
        .filter_map(|event| Some(event["path"].as_str()?.to_owned()))
        .collect();
    let total = counts(&told)?;
    ensure!(total["lists"] == 2 && total["unneeded"]["files"] == unneeded.len(), "{total}");
    ensure!(!unneeded.is_empty() && chunks(&store)? == both, "something was removed without --delete");
    let removed = verb(&depot, "store-gc", &[&store, &ckpt, "--delete".as_ref()])?.done()?;
    ensure!(counts(&removed)?["removed"]["files"] == unneeded.len(), "{}", removed.text());
    ensure!(unneeded.iter().all(|path| !Path::new(path).exists()), "some of it is still there");
    ensure!(chunks(&store)?.len() == both.len() - unneeded.len(), "more was removed");
    depot.resume()?.done()?;
    ensure!(depot.workers[0].ok("read large 4 3")? == "059900");

    // A directory without a list is a mistake, unless it is said that it is none.
    let empty = depot.machine.path("empty");
    fs::create_dir(&empty)?;
    verb(&depot, "store-gc", &[&store, &empty, "--delete".as_ref()])?.exits(1)?;
    ensure!(!chunks(&store)?.is_empty(), "all was removed");
    verb(&depot, "store-gc", &[&store, &empty, "--delete".as_ref(), "--allow-empty".as_ref()])?.done()?;
    ensure!(chunks(&store)?.is_empty(), "what no list needs is still there");
    Ok(())
}

#[test]
fn a_store_is_read_and_what_is_bad_is_named() -> Result<()> {
    let depot = Depot::new()?;
    depot.suspend()?.done()?;
    let store = depot.store();
    let good = counts(&verb(&depot, "store-verify", &[&store])?.done()?)?;
    ensure!(good["good"]["files"] == chunks(&store)?.len() && good["bad"] == 0, "{good}");
    let chunk = largest(&store)?;
    flip(&chunk)?;
    let bad = verb(&depot, "store-verify", &[&store])?.exits(1)?;
    let name = chunk.file_name().context("a name")?.to_string_lossy();
    ensure!(counts(&bad)?["bad"] == 1 && bad.text().contains(&*name), "{}", bad.text());
    // Saving the same once more puts it right, if asked to look.
    flip(&chunk)?;
    depot.resume()?.done()?;
    flip(&chunk)?;
    depot.look()?;
    depot.saving().option("--verify-existing").verb("suspend", &depot.pids())?.done()?;
    verb(&depot, "store-verify", &[&store])?.done()?;
    depot.resume()?.done()?;
    depot.is_as_it_was()
}

#[test]
fn directories_that_cannot_be_used_are_refused_before_anything_is_touched() -> Result<()> {
    let depot = Depot::new()?;
    let file = depot.machine.path("file");
    fs::write(&file, "no directory")?;
    let full = depot.machine.path("full of other things");
    fs::create_dir(&full)?;
    fs::write(full.join("stranger"), "")?;
    let inside = file.join("inside");
    let (store, ckpt, cache) = (depot.store(), depot.ckpt_dir(), depot.cache());
    verb(&depot, "store-verify", &[&store])?.exits(1)?;
    for (bad, tool) in [
        (&file, [&*file, &*ckpt, &*cache]),
        (&full, [&*full, &*ckpt, &*cache]),
        (&inside, [&*inside, &*ckpt, &*cache]),
        (&file, [&*store, &*file, &*cache]),
        (&inside, [&*store, &*inside, &*cache]),
        (&full, [&*store, &*ckpt, &*full]),
        (&store, [&*store, &*ckpt, &*store]),
    ] {
        let [store, ckpt, cache] = tool;
        let tool = depot.machine.tool().option("--store").argument(store);
        let tool = tool.option("--ckpt-dir").argument(ckpt).option("--cache").argument(cache);
        let refused = tool.verb("suspend", &depot.pids())?.exits(4)?;
        ensure!(refused.text().contains(&bad.display().to_string()), "{}", refused.text());
    }
    ensure!(!depot.list().exists());
    depot.is_as_it_was()?;
    // Nobody may write there: the system itself refuses, whoever asks.
    let refused = depot.machine.tool().option("--store").argument("/proc/store");
    refused.option("--ckpt-dir").argument(&ckpt).verb("suspend", &depot.pids())?.exits(4)?;
    depot.is_as_it_was()?;

    depot.suspend()?.done()?;
    for nothing in [&file, &full, &depot.machine.path("nowhere"), &ckpt] {
        let refused = depot.resume_from(Some(nothing), None)?.exits(4)?;
        ensure!(refused.text().contains(&nothing.display().to_string()), "{}", refused.text());
        depot.resume_from(None, Some(nothing))?.exits(4)?;
    }
    depot.are("released")?;
    depot.resume_from(Some(&store), None)?.done()?;
    depot.is_as_it_was()
}
