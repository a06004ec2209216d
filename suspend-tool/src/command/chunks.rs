//! `cache-prefetch`, `cache-gc`, `store-gc` and `store-verify`: what is done to stores and caches without any process.

use std::error::Error;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use chunkstore::{
    Collected, GcOptions, Kind, OpenError, Progress, Store, Tally, Threads, Verified, cache_gc,
    cache_prefetch, store_gc, store_verify,
};
use serde_json::{Value, json};

use super::outcome::with_event;
use super::{Exit, Outcome, reporter};
use crate::cli::{CacheGcArgs, PrefetchArgs, StoreGcArgs, StoreVerifyArgs};
use crate::faults::Faults;
use crate::report::{Event, Reporter, bytes, chain, counted, print_line, print_object};

/// Tells how far the work has come, a few times a second, until it ends.
struct Meter<'a> {
    reporter: &'a dyn Reporter,
    told: Mutex<Option<Instant>>,
}

impl Drop for Meter<'_> {
    fn drop(&mut self) {
        self.reporter.clear();
    }
}

impl<'a> Meter<'a> {
    fn new(reporter: &'a dyn Reporter) -> Self {
        Self { reporter, told: Mutex::new(None) }
    }

    fn show(&self, progress: Progress) {
        const EVERY: Duration = Duration::from_millis(200);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let last = progress.chunks == progress.all_chunks;
        if last || told.is_none_or(|told| told.elapsed() >= EVERY) {
            *told = Some(Instant::now());
            self.reporter.report(&Event::Chunks {
                bytes: progress.bytes,
                total: progress.all_bytes,
                rate: progress.rate(),
                left: progress.time_left(),
            });
        }
    }
}

pub(super) fn prefetch(args: &PrefetchArgs) -> Outcome {
    const VERB: &str = "cache-prefetch";
    let reporter = reporter(args.output.json);
    if let Ok(Some(faults)) = Faults::ordered() {
        faults.meet(VERB);
    }
    let done = || -> Result<_, Box<dyn Error>> {
        let store = Store::open(&args.store, Kind::Store)?;
        let cache = Store::create(&args.cache, Kind::Cache)?;
        let meter = Meter::new(&*reporter);
        let report = |progress| meter.show(progress);
        let executor = (&Threads as _, args.threads.or_usual());
        Ok(cache_prefetch(&store, &args.ckpt_dir, &cache, args.verify_existing, executor, &report)?)
    };
    let begun = Instant::now();
    match done() {
        Ok(done) => {
            let copied = done.bytes.saturating_sub(done.existing_bytes);
            let text = format!(
                "the cache has all of {} ({}); {} were copied in {:.1} s",
                chunks(done.chunks),
                bytes(done.bytes),
                bytes(copied),
                begun.elapsed().as_secs_f64()
            );
            let numbers = json!({
                "chunks": done.chunks,
                "bytes": done.bytes,
                "existing_chunks": done.existing_chunks,
                "existing_bytes": done.existing_bytes,
                "copied_bytes": copied,
            });
            Outcome::new(VERB, Exit::Done, text).counting(numbers)
        }
        Err(error) => Outcome::failed(VERB, &*error),
    }
}

pub(super) fn collect_cache(args: &CacheGcArgs) -> Outcome {
    const VERB: &str = "cache-gc";
    let done = || -> Result<_, Box<dyn Error>> {
        Ok(cache_gc(&Store::open(&args.cache, Kind::Cache)?, args.max_gib.0)?)
    };
    match done() {
        Ok(done) => {
            let text = format!(
                "removed {}; the cache has {} ({} in use)",
                told(done.removed),
                told(done.kept),
                bytes(done.in_use.bytes)
            );
            let numbers = json!({
                "removed": tally(done.removed),
                "kept": tally(done.kept),
                "in_use": tally(done.in_use),
                "temporaries": tally(done.temporaries),
            });
            Outcome::new(VERB, Exit::Done, text).counting(numbers)
        }
        Err(error) => Outcome::failed(VERB, &*error),
    }
}

pub(super) fn collect_store(args: &StoreGcArgs) -> Outcome {
    const VERB: &str = "store-gc";
    let options = GcOptions { delete: args.delete, allow_empty: args.allow_empty };
    let done = || -> Result<_, Box<dyn Error>> {
        let store = Store::open(&args.store, Kind::Store)?;
        let collected = store_gc(&store, &args.ckpt_dirs, options)?;
        Ok((store, collected))
    };
    let (store, done) = match done() {
        Ok(done) => done,
        Err(error) => return Outcome::failed(VERB, &*error),
    };
    for chunk in &done.unneeded {
        let path = store.path_of(&chunk.digest);
        if args.output.json {
            print_object(&with_event("unneeded", json!({ "path": shown(&path), "bytes": chunk.len })));
        } else {
            print_line(&format!("not needed: {} ({})", path.display(), bytes(chunk.len.into())));
        }
    }
    let missing = done.missing.iter().map(|chunk| store.path_of(&chunk.digest));
    let missing: Vec<String> = missing.map(|path| shown(&path)).collect();
    let numbers = json!({
        "lists": done.lists,
        "named": tally(done.named),
        "in_use": tally(done.in_use),
        "recent": tally(done.recent),
        "unneeded": { "files": done.unneeded.len(), "bytes": done.unneeded_bytes() },
        "removed": tally(done.removed),
        "brought_back": tally(done.brought_back),
        "temporaries": tally(done.temporaries),
        "missing": missing,
        "strangers": done.strangers.iter().map(|path| shown(path)).collect::<Vec<_>>(),
    });
    Outcome::new(VERB, Exit::Done, collected(&done, args.delete)).counting(numbers)
}

fn collected(done: &Collected, delete: bool) -> String {
    let unneeded =
        format!("{} ({})", counted(done.unneeded.len(), "chunk", "chunks"), bytes(done.unneeded_bytes()));
    let lists = plural(done.lists, "list needs", "lists need");
    let mut text = format!("{lists} {}; ", told(done.named));
    if delete {
        text += &format!("removed {} of {unneeded} that no list names", told(done.removed));
    } else {
        text += &format!("no list names {unneeded}: `--delete` removes them");
    }
    for (tally, why) in [(done.in_use, "in use"), (done.recent, "used within the last hour")] {
        if tally.files > 0 {
            text += &format!("; {} were spared, being {why}", told(tally));
        }
    }
    if !done.missing.is_empty() {
        text += &format!("; of those that lists name {} missing", counted(done.missing.len(), "is", "are"));
    }
    text
}

pub(super) fn verify(args: &StoreVerifyArgs) -> Outcome {
    const VERB: &str = "store-verify";
    let reporter = reporter(args.output.json);
    let done = || -> Result<Verified, Box<dyn Error>> {
        let store = either(&args.store)?;
        let meter = Meter::new(&*reporter);
        let report = |progress| meter.show(progress);
        Ok(store_verify(&store, (&Threads, args.threads.or_usual()), &report)?)
    };
    let done = match done() {
        Ok(done) => done,
        Err(error) => return Outcome::failed(VERB, &*error),
    };
    for bad in &done.bad {
        if args.output.json {
            print_object(&with_event("bad", json!({ "error": chain(bad) })));
        } else {
            print_line(&format!("bad: {}", chain(bad)));
        }
    }
    let numbers = json!({
        "good": tally(done.good),
        "bad": done.bad.len(),
        "strangers": done.strangers.iter().map(|path| shown(path)).collect::<Vec<_>>(),
    });
    let (exit, verdict) = match done.bad.len() {
        0 => (Exit::Done, "none is bad".to_owned()),
        count => (Exit::Failed, format!("{} bad, and left in place", counted(count, "is", "are"))),
    };
    Outcome::new(VERB, exit, format!("good: {}; {verdict}", told(done.good))).counting(numbers)
}

/// A store or a cache, whichever it is.
fn either(path: &Path) -> Result<Store, OpenError> {
    match Store::open(path, Kind::Store) {
        Err(OpenError::OtherKind { .. }) => Store::open(path, Kind::Cache),
        opened => opened,
    }
}

fn told(tally: Tally) -> String {
    format!("{} ({})", chunks(tally.files), bytes(tally.bytes))
}

fn chunks(count: u64) -> String {
    plural(count, "chunk", "chunks")
}

fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn tally(tally: Tally) -> Value {
    json!({ "files": tally.files, "bytes": tally.bytes })
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
