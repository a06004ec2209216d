//! A process that is killed, or a machine that loses power, at every single call.
//!
//! After it: no chunk's name with wrong bytes, no list without its chunks, the next save works, and a collection
//! leaves nothing behind.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chunkstore::checkpoint::read_lists_on;
use chunkstore::layer::{Access, FileLayer, Open};
use chunkstore::{
    AlignedBuf, Digest, FaultPlan, Faulty, GcOptions, Kind, Listed, Store, Threads, cache_gc, cache_prefetch,
    store_gc, store_verify,
};
use common::memory::Memory;
use common::{content, list_of};

const DELETE: GcOptions = GcOptions { delete: true, allow_empty: true };
/// How many outcomes of a power cut are looked at.
const CUTS: u64 = 8;

type Told<T = ()> = Result<T, Box<dyn std::error::Error>>;

fn open(layer: &Memory, path: &str, kind: Kind) -> Told<Store> {
    Ok(Store::create_on(Arc::new(layer.clone()), Path::new(path), kind)?)
}

/// Saves chunks with these seeds as process `pid`. Seed 0 is zeros.
fn save(store: &Store, pid: u32, seeds: &[u64]) -> Told {
    let writer = store.writer(false)?;
    let mut chunks = Vec::new();
    for seed in seeds {
        let bytes = if *seed == 0 { AlignedBuf::new(5000)? } else { content(*seed, 5000) };
        chunks.extend(writer.put(&bytes[..5000])?.chunk());
    }
    Ok(writer.commit(Path::new("/ckpt"), pid, &list_of(&chunks))?)
}

fn file_bytes(layer: &Memory, path: &Path) -> Vec<u8> {
    let file = layer.open(path, Open { access: Access::Read, direct: false }).unwrap();
    let mut bytes = vec![0; usize::try_from(file.stat().unwrap().len).unwrap()];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

fn names(layer: &Memory, dir: &str) -> Vec<PathBuf> {
    let names = layer.list_dir(Path::new(dir)).unwrap_or_default();
    names.into_iter().map(|name| Path::new(dir).join(name)).collect()
}

fn chunk_files(layer: &Memory, root: &str) -> Vec<PathBuf> {
    let fans = names(layer, &format!("{root}/chunks"));
    fans.iter().flat_map(|fan| names(layer, fan.to_str().unwrap())).collect()
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().unwrap().to_str().unwrap().starts_with('.')
}

fn lists(layer: &Memory) -> Vec<Listed> {
    let ckpt = Path::new("/ckpt");
    if layer.stat(ckpt).is_ok() { read_lists_on(layer, ckpt).unwrap() } else { Vec::new() }
}

/// What must hold on any disk that a crash left.
fn assert_sound(layer: &Memory, context: &str) {
    for root in ["/store", "/cache"] {
        for path in chunk_files(layer, root).iter().filter(|path| !is_hidden(path)) {
            let name = path.file_name().unwrap().to_str().unwrap();
            assert_eq!(
                Digest::of(&file_bytes(layer, path)).to_string(),
                name,
                "{context}: {}",
                path.display()
            );
        }
    }
    let lists = match layer.list_dir(Path::new("/ckpt")) {
        Ok(_) => {
            read_lists_on(layer, Path::new("/ckpt")).unwrap_or_else(|error| panic!("{context}: {error}"))
        }
        Err(_) => Vec::new(),
    };
    if !lists.is_empty() {
        let store = Store::open_on(Arc::new(layer.clone()), Path::new("/store"), Kind::Store);
        let store = store.unwrap_or_else(|error| panic!("{context}: {error}"));
        for chunk in lists.iter().flat_map(|listed| listed.list.chunks()) {
            let got = store.get(chunk, &mut AlignedBuf::new(5000).unwrap());
            got.unwrap_or_else(|error| panic!("{context}: a list names what is not there: {error}"));
        }
    }
}

/// What the next process can do on any disk that a crash left.
fn assert_usable(layer: &Memory, context: &str) {
    let work = || -> Told {
        let store = open(layer, "/store", Kind::Store)?;
        save(&store, 9, &[1, 9])?;
        store_gc(&store, &[PathBuf::from("/ckpt")], DELETE)?;
        let verified = store_verify(&store, (&Threads, 1), &|_| ())?;
        assert!(verified.bad.is_empty() && verified.strangers.is_empty(), "{context}: {verified:?}");
        let cache = open(layer, "/cache", Kind::Cache)?;
        cache_gc(&cache, u64::MAX)?;
        Ok(())
    };
    work().unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_sound(layer, context);
    let left = chunk_files(layer, "/store").into_iter().chain(chunk_files(layer, "/cache"));
    let left: Vec<_> = left.filter(|path| is_hidden(path)).chain(names(layer, "/store/leases")).collect();
    assert!(left.iter().all(|path| path.to_str().unwrap().contains("leases/.tmp-")), "{context}: {left:?}");
}

/// Runs `story` on what `before` leaves, stops it at every call, and looks at what is left.
fn stop_everywhere(before: &Memory, story: &dyn Fn(&Memory) -> Told) {
    let whole = before.after_kill();
    whole.stop_at(u64::MAX);
    story(&whole).unwrap();
    let calls = whole.calls();
    let log = whole.log();
    assert!(calls > 20, "{log:?}");
    for last in 1..=calls + 1 {
        let layer = before.after_kill();
        layer.stop_at(last);
        let result = story(&layer);
        assert!(result.is_ok() || last <= calls, "{result:?}");
        let context = format!("stopped at call {last} of {calls}, after {:?}", layer.log().last());
        layer.stop_at(u64::MAX);
        assert_sound(&layer.after_kill(), &context);
        assert_usable(&layer.after_kill(), &context);
        for seed in 0..CUTS {
            let context = format!("{context}, power cut {seed}");
            assert_sound(&layer.after_power_cut(seed), &context);
            if result.is_ok() {
                // What was said to be done is done for good.
                assert_eq!(lists(&layer.after_power_cut(seed)), lists(&layer), "{context}");
            }
            assert_usable(&layer.after_power_cut(seed), &context);
        }
    }
}

fn store_with_a_checkpoint() -> Memory {
    let layer = Memory::new();
    let store = open(&layer, "/store", Kind::Store).unwrap();
    save(&store, 1, &[1, 2, 0]).unwrap();
    drop(store);
    layer
}

#[test]
fn the_first_save_into_a_new_store() {
    stop_everywhere(&Memory::new(), &|layer| save(&open(layer, "/store", Kind::Store)?, 1, &[1, 0, 2]));
}

#[test]
fn a_save_that_finds_chunks_and_replaces_a_list() {
    stop_everywhere(&store_with_a_checkpoint(), &|layer| {
        let store = open(layer, "/store", Kind::Store)?;
        save(&store, 1, &[2, 3])?;
        save(&store, 2, &[3, 1])
    });
}

#[test]
fn a_save_that_finds_a_chunk_whose_writer_died_before_its_name_was_durable() {
    let layer = store_with_a_checkpoint();
    let forgetful = Faulty::new(layer.clone(), FaultPlan::parse("syncdir:*:*=EIO").unwrap());
    let store = Store::open_on(Arc::new(forgetful), Path::new("/store"), Kind::Store).unwrap();
    store.writer(false).unwrap().put(&content(7, 5000)[..5000]).unwrap_err();
    stop_everywhere(&layer, &|layer| save(&open(layer, "/store", Kind::Store)?, 2, &[7]));
}

#[test]
fn a_collection() {
    let layer = store_with_a_checkpoint();
    save(&open(&layer, "/store", Kind::Store).unwrap(), 1, &[2, 3]).unwrap();
    stop_everywhere(&layer, &|layer| {
        let report = store_gc(&open(layer, "/store", Kind::Store)?, &[PathBuf::from("/ckpt")], DELETE)?;
        assert_eq!((report.removed.files, report.named.files), (1, 2));
        Ok(())
    });
}

#[test]
fn filling_and_emptying_a_cache() {
    stop_everywhere(&store_with_a_checkpoint(), &|layer| {
        let (store, cache) = (open(layer, "/store", Kind::Store)?, open(layer, "/cache", Kind::Cache)?);
        cache_prefetch(&store, Path::new("/ckpt"), &cache, false, (&Threads, 1), &|_| ())?;
        let report = cache_gc(&cache, 5000)?;
        assert_eq!((report.removed.files, report.kept.files), (1, 1));
        Ok(())
    });
}

#[test]
fn putting_a_damaged_chunk_right() {
    let layer = store_with_a_checkpoint();
    let bytes = content(1, 5000);
    let path =
        format!("/store/chunks/{:02x}/{}", Digest::of(&bytes[..5000]).0[0], Digest::of(&bytes[..5000]));
    let damaged = Path::new(&path);
    layer.unlink(damaged).unwrap();
    layer.open(damaged, Open { access: Access::Create, direct: false }).unwrap().write_at(b"bad", 0).unwrap();
    let layer = layer.after_kill();
    // The damage is there before and may be there after: only that it gets no worse, and that the end is good.
    layer.stop_at(u64::MAX);
    save(&open(&layer, "/store", Kind::Store).unwrap(), 2, &[1]).unwrap();
    assert_sound(&layer, "put right");
    for seed in 0..CUTS {
        assert_sound(&layer.after_power_cut(seed), "put right, then a power cut");
    }
}
