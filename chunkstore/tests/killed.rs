//! Real processes that are killed: at every call, or by lot while others work.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

mod common;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use chunkstore::{
    AlignedBuf, Chunk, GcOptions, Inline, Kind, PrefetchError, Put, ReadListError, Sources, Store, Verify,
    cache_gc, cache_prefetch, read_lists, store_gc, store_verify,
};
use common::children::{End, Lot, Role, Setting, role, step};
use common::{content, faulty, files_below, list_of, quick, wrong_files};

const LEN: usize = 20_000;
const DELETE: GcOptions = GcOptions { delete: true, allow_empty: true };

/// The program of all children.
#[test]
fn a_child_plays_its_role() {
    let Some((name, dir, seed, faults)) = role() else { return };
    let scene = Scene { dir, seed, faults };
    match name.as_str() {
        "save" => scene.save(1, &[1, 2, 0, 3]),
        "collect" => scene.collect(),
        "fill and empty a cache" => {
            scene.prefetch();
            scene.collect_cache(30_000);
        }
        "write 200 chunks" => scene.write_200_chunks(),
        "keep saving" => scene.keep(|lot| {
            let seeds: Vec<_> = (0..8).map(|_| lot.below(60)).collect();
            scene.save(u32::try_from(seed).unwrap(), &seeds);
        }),
        "keep loading" => scene.keep(|_| scene.load()),
        "keep collecting" => scene.keep(|_| scene.collect()),
        "keep fetching" => scene.keep(|_| scene.prefetch()),
        "keep emptying" => scene.keep(|lot| scene.collect_cache(lot.below(40) * LEN as u64)),
        other => panic!("{other} is no role"),
    }
}

/// A store, a cache and a checkpoint's directory, and a process that works with them.
struct Scene {
    dir: PathBuf,
    seed: u64,
    faults: String,
}

impl Scene {
    fn store(&self) -> Store {
        Store::create_on(faulty(&self.faults), &self.dir.join("store"), Kind::Store).unwrap()
    }

    fn cache(&self) -> Store {
        Store::create_on(faulty(&self.faults), &self.dir.join("cache"), Kind::Cache).unwrap()
    }

    fn ckpt(&self) -> PathBuf {
        self.dir.join("ckpt")
    }

    /// Does something again and again until it is time to go.
    fn keep(&self, mut what: impl FnMut(&mut Lot)) {
        let mut lot = Lot::new(self.seed);
        while !self.dir.join("enough").exists() {
            what(&mut lot);
            step();
        }
    }

    fn save(&self, pid: u32, seeds: &[u64]) {
        let store = self.store();
        let writer = store.writer(false).unwrap();
        let mut chunks = std::collections::BTreeSet::new();
        for seed in seeds {
            let bytes = if *seed == 0 { AlignedBuf::new(LEN).unwrap() } else { content(*seed, LEN) };
            chunks.extend(writer.put(&bytes[..LEN]).unwrap().chunk());
        }
        let chunks: Vec<_> = chunks.into_iter().collect();
        writer.commit(&self.ckpt(), pid, &list_of(&chunks)).unwrap();
    }

    fn collect(&self) {
        store_gc(&self.store(), &[self.ckpt()], DELETE).unwrap();
    }

    fn collect_cache(&self, max_bytes: u64) {
        cache_gc(&self.cache(), max_bytes).unwrap();
    }

    fn prefetch(&self) {
        let before = read_lists(&self.ckpt()).unwrap();
        match cache_prefetch(&self.store(), &self.ckpt(), &self.cache(), false, (&Inline, 1), &|_| ()) {
            Ok(_) | Err(PrefetchError::List(ReadListError::None { .. })) => {}
            // A checkpoint may be replaced while it is fetched; one that is not must be there.
            Err(error) => assert_ne!(read_lists(&self.ckpt()).unwrap(), before, "{error}"),
        }
    }

    /// Loads what was there before and after the lease was taken: that must be readable then.
    fn load(&self) {
        let before = read_lists(&self.ckpt()).unwrap();
        let all = |lists: &[chunkstore::Listed]| -> Vec<Chunk> {
            lists.iter().flat_map(|listed| listed.list.chunks()).copied().collect()
        };
        let mut sources = Sources::new(Some(self.cache()), Some(self.store()));
        assert!(sources.hold(&all(&before)).is_empty());
        let mut after = read_lists(&self.ckpt()).unwrap();
        after.retain(|listed| before.contains(listed));
        let chunks = all(&after);
        assert_eq!(sources.missing(&chunks), []);
        let mut into = AlignedBuf::new(LEN).unwrap();
        for chunk in &chunks {
            sources.fetch(chunk, &mut into, Verify::Here).unwrap();
        }
    }

    fn write_200_chunks(&self) {
        let mut lot = Lot::new(self.seed);
        let store = self.store();
        let writer = store.writer(false).unwrap();
        let mut order: Vec<u64> = (1..=200).collect();
        for place in (1..order.len()).rev() {
            order.swap(place, usize::try_from(lot.below(place as u64 + 1)).unwrap());
        }
        let mut chunks = Vec::new();
        for seed in order {
            let put = writer.put(&content(seed, LEN)[..LEN]).unwrap();
            assert_ne!(put, Put::Zero);
            chunks.extend(put.chunk());
            step();
        }
        // Equal pids of different pods have directories of their own.
        let ckpt = self.dir.join(format!("ckpt-{}", self.seed % 8));
        writer.commit(&ckpt, std::process::id(), &list_of(&chunks)).unwrap();
    }
}

/// What must hold after a kill.
fn assert_sound(dir: &Path, context: &str) {
    for root in ["store", "cache"].map(|name| dir.join(name)).into_iter().filter(|root| root.exists()) {
        let hidden = |path: &Path| path.file_name().unwrap().to_str().unwrap().starts_with('.');
        let wrong: Vec<_> = wrong_files(&root).into_iter().filter(|path| !hidden(path)).collect();
        assert!(wrong.is_empty(), "{context}: {wrong:?}");
    }
    if dir.join("ckpt").exists() {
        let store = Store::open(&dir.join("store"), Kind::Store).unwrap();
        for chunk in read_lists(&dir.join("ckpt")).unwrap().iter().flat_map(|listed| listed.list.chunks()) {
            let got = store.get(chunk, &mut AlignedBuf::new(LEN).unwrap());
            got.unwrap_or_else(|error| panic!("{context}: {error}"));
        }
    }
}

/// Nothing is left by those that were killed.
fn assert_clean(dir: &Path, context: &str) {
    let scene = Scene { dir: dir.to_owned(), seed: 0, faults: String::new() };
    scene.save(9, &[1, 9]);
    scene.collect();
    scene.collect_cache(u64::MAX);
    assert_sound(dir, context);
    let found = store_verify(&scene.store(), (&Inline, 1), &|_| ()).unwrap();
    assert!(found.bad.is_empty() && found.strangers.is_empty(), "{context}: {found:?}");
    for root in [dir.join("store/chunks"), dir.join("cache/chunks")] {
        let left = if root.exists() { wrong_files(&root) } else { Vec::new() };
        assert!(left.is_empty(), "{context}: {left:?}");
    }
    let leases = files_below(&dir.join("store/leases"));
    assert!(leases.iter().all(|path| path.to_str().unwrap().contains("/.tmp-")), "{context}: {leases:?}");
}

fn kill_at_every_call(name: &str) {
    for nth in 1.. {
        let dir = quick();
        let scene = Scene { dir: dir.path().to_owned(), seed: 0, faults: String::new() };
        scene.save(1, &[1, 4]);
        scene.save(2, &[4, 5]);
        // Chunk 6 is named by no list any more.
        scene.save(3, &[6]);
        std::fs::remove_file(dir.path().join("ckpt/gpu-3.chunks")).unwrap();
        let faults = format!("*:{nth}:*=kill");
        let end =
            Role { name, dir: dir.path(), seed: 0, faults: &faults, setting: Setting::Plain }.start().end();
        let context = format!("{name}, killed at call {nth}");
        assert_sound(dir.path(), &context);
        assert_clean(dir.path(), &context);
        if end == End::Good {
            assert!(nth > 30, "{name} makes {nth} calls only");
            return;
        }
    }
}

#[test]
fn a_save_killed_at_every_call() {
    kill_at_every_call("save");
}

#[test]
fn a_collection_killed_at_every_call() {
    kill_at_every_call("collect");
}

#[test]
fn filling_and_emptying_a_cache_killed_at_every_call() {
    kill_at_every_call("fill and empty a cache");
}

#[test]
fn eight_writers_of_the_same_200_chunks_of_which_some_are_killed() {
    let dir = quick();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let dir = dir.path();
            scope.spawn(move || {
                let mut lot = Lot::new(number + 100);
                for round in 0..4 {
                    let seed = number + 8 * round;
                    let mut child =
                        Role { name: "write 200 chunks", dir, seed, faults: "", setting: Setting::EqualPids }
                            .start();
                    if round < 3 && child.wait_for_steps(lot.below(200)) {
                        child.kill();
                    } else {
                        assert_eq!(child.end(), End::Good);
                    }
                }
            });
        }
    });
    let store = Store::open(&dir.path().join("store"), Kind::Store).unwrap();
    let dirs: Vec<_> = (0..8).map(|number| dir.path().join(format!("ckpt-{number}"))).collect();
    let report = store_gc(&store, &dirs, DELETE).unwrap();
    assert_eq!((report.named.files, report.removed.files, report.missing.len()), (200, 0, 0));
    for ckpt in &dirs {
        let lists = read_lists(ckpt).unwrap();
        assert!(lists.iter().all(|listed| listed.list.chunks().len() == 200) && !lists.is_empty());
    }
    assert!(wrong_files(store.root()).is_empty());
    assert_eq!(files_below(&store.root().join("chunks")).len(), 200);
}

/// `CHUNKSTORE_STRESS_SECONDS` makes it longer.
#[test]
fn writers_readers_and_collectors_at_once() {
    let seconds =
        std::env::var("CHUNKSTORE_STRESS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let dir = quick();
    let scene = Scene { dir: dir.path().to_owned(), seed: 0, faults: String::new() };
    scene.save(0, &[1]);
    scene.cache();
    let until = Instant::now() + Duration::from_secs(seconds);
    let roles = ["keep saving", "keep loading", "keep collecting", "keep fetching", "keep emptying"];
    let cast = [0, 0, 0, 1, 1, 2, 2, 3, 4].map(|role| roles[role]);
    std::thread::scope(|scope| {
        for (number, name) in (1_u64..).zip(cast) {
            let dir = dir.path();
            scope.spawn(move || {
                let mut lot = Lot::new(number);
                while Instant::now() < until {
                    let mut child =
                        Role { name, dir, seed: number, faults: "", setting: Setting::Plain }.start();
                    let mut runs = true;
                    while runs && Instant::now() < until && lot.below(20) > 0 {
                        runs = child.wait_for_steps(1);
                    }
                    if runs && Instant::now() < until {
                        child.kill();
                    } else {
                        std::fs::write(dir.join("enough"), "").unwrap();
                        assert_eq!(child.end(), End::Good, "{name}");
                    }
                }
            });
        }
    });
    assert_sound(dir.path(), "after all of it");
    assert_clean(dir.path(), "after all of it");
}
