//! Writers, readers and collectors whose calls mix in every way that few changes between them allow.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chunkstore::checkpoint::read_lists_on;
use chunkstore::layer::FileLayer;
use chunkstore::{AlignedBuf, GcOptions, Kind, Sources, Store, Verify, cache_gc, store_gc};
use common::memory::Memory;
use common::turns::{Actor, Scheduled, calls_alone, run};
use common::{chunk_of, content, list_of};

const DELETE: GcOptions = GcOptions { delete: true, allow_empty: false };
const LEN: usize = 100;

fn open<L: FileLayer + Clone + 'static>(layer: &L, path: &str, kind: Kind) -> Store {
    Store::open_on(Arc::new(layer.clone()), Path::new(path), kind).unwrap()
}

/// A store with a list of chunk 1, and with chunks 2 and 3 that no list names; a cache with the same.
fn disk() -> Memory {
    let layer = Memory::new();
    let shared: Arc<dyn FileLayer> = Arc::new(layer.clone());
    for (path, kind) in [("/store", Kind::Store), ("/cache", Kind::Cache)] {
        let store = Store::create_on(Arc::clone(&shared), Path::new(path), kind).unwrap();
        let writer = store.writer(false).unwrap();
        let put = |seed| writer.put(&content(seed, LEN)[..LEN]).unwrap().chunk().unwrap();
        let listed = put(1);
        put(2);
        put(3);
        if kind == Kind::Store {
            writer.commit(Path::new("/ckpt"), 1, &list_of(&[listed])).unwrap();
        }
    }
    layer
}

/// A checkpoint of chunks 2, which is there and named by nobody, and 4.
fn save(layer: &Scheduled) {
    let writer = open(layer, "/store", Kind::Store).writer(false).unwrap();
    let chunk = chunk_of(&content(2, LEN)[..LEN]);
    if !writer.claim(&chunk).unwrap() {
        writer.put(&content(2, LEN)[..LEN]).unwrap();
    }
    let other = writer.put(&content(4, LEN)[..LEN]).unwrap().chunk().unwrap();
    writer.commit(Path::new("/ckpt"), 2, &list_of(&[chunk, other])).unwrap();
}

/// The same, without asking first.
fn save_by_putting(layer: &Scheduled) {
    let writer = open(layer, "/store", Kind::Store).writer(false).unwrap();
    let chunk = writer.put(&content(3, LEN)[..LEN]).unwrap().chunk().unwrap();
    writer.commit(Path::new("/ckpt"), 3, &list_of(&[chunk])).unwrap();
}

fn collect(layer: &Scheduled) {
    store_gc(&open(layer, "/store", Kind::Store), &[PathBuf::from("/ckpt")], DELETE).unwrap();
}

fn collect_cache(layer: &Scheduled) {
    cache_gc(&open(layer, "/cache", Kind::Cache), LEN as u64).unwrap();
}

/// A load of chunks 1, 2 and 3 from the cache. What it holds and finds it can read.
fn load(layer: &Scheduled) {
    let chunks = [1, 2, 3].map(|seed| chunk_of(&content(seed, LEN)[..LEN]));
    let mut sources = Sources::new(Some(open(layer, "/cache", Kind::Cache)), None);
    assert!(sources.hold(&chunks).is_empty());
    let missing = sources.missing(&chunks);
    for chunk in chunks.iter().filter(|chunk| !missing.contains(chunk)) {
        sources.fetch(chunk, &mut AlignedBuf::new(LEN).unwrap(), Verify::Here).unwrap();
    }
}

/// A load of a checkpoint that is complete.
fn load_listed(layer: &Scheduled) {
    let store = open(layer, "/store", Kind::Store);
    let sources = Sources::new(None, Some(store));
    for listed in read_lists_on(layer, Path::new("/ckpt")).unwrap() {
        for chunk in listed.list.chunks() {
            sources.fetch(chunk, &mut AlignedBuf::new(LEN).unwrap(), Verify::Here).unwrap();
        }
    }
}

fn assert_all_lists_load(disk: &Memory, lists: usize, context: &dyn std::fmt::Debug) {
    let store = open(disk, "/store", Kind::Store);
    let found = read_lists_on(disk, Path::new("/ckpt")).unwrap();
    assert_eq!(found.len(), lists, "{context:?}");
    for chunk in found.iter().flat_map(|listed| listed.list.chunks()) {
        let got = store.get(chunk, &mut AlignedBuf::new(LEN).unwrap());
        got.unwrap_or_else(|error| panic!("{context:?}: {error}"));
    }
    for root in ["/store/chunks", "/cache/chunks"].map(Path::new) {
        for fan in disk.list_dir(root).unwrap() {
            let names = disk.list_dir(&root.join(fan)).unwrap();
            let hidden = names.iter().find(|name| name.to_str().unwrap().starts_with('.'));
            assert_eq!(hidden, None, "{context:?}");
        }
    }
}

/// All schedules in which two actors change twice: one begins, is interrupted, and the other is too.
fn every_mix(actors: [Actor<'_>; 2], lists: usize) {
    let fresh = disk();
    let calls = actors.map(|actor| calls_alone(&fresh, actor));
    for (first, second) in [(0, 1), (1, 0)] {
        for before in 0..=calls[first] {
            for between in 1..=calls[second] {
                let schedule = [(first, before), (second, between), (first, u64::MAX)];
                let disk = fresh.after_kill();
                run(&disk, &schedule, &actors);
                assert_all_lists_load(&disk, lists, &schedule);
            }
        }
    }
}

/// Schedules with many changes between many actors, drawn by lot.
fn random_mixes(actors: &[Actor<'_>], rounds: u64, lists: usize) {
    let fresh = disk();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) % bound
    };
    for _ in 0..rounds {
        let all = actors.len() as u64;
        let turns = (0..12).map(|_| (usize::try_from(below(all)).unwrap(), 1 + below(14)));
        let schedule: Vec<_> = turns.collect();
        let disk = fresh.after_kill();
        run(&disk, &schedule, actors);
        assert_all_lists_load(&disk, lists, &schedule);
    }
}

#[test]
fn a_save_and_a_collection() {
    every_mix([&save, &collect], 2);
}

#[test]
fn a_save_by_putting_and_a_collection() {
    every_mix([&save_by_putting, &collect], 2);
}

#[test]
fn two_collections() {
    every_mix([&collect, &collect], 1);
}

#[test]
fn a_load_and_a_collection_of_the_cache() {
    every_mix([&load, &collect_cache], 1);
}

#[test]
fn a_save_two_collections_and_a_load() {
    random_mixes(&[&save, &collect, &collect, &load_listed], 1500, 2);
}

#[test]
fn two_collections_of_the_cache_and_two_loads() {
    random_mixes(&[&load, &collect_cache, &load, &collect_cache], 800, 1);
}
