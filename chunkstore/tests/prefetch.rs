//! Filling a cache, and reading a whole store.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

mod common;

use std::path::Path;
use std::sync::Mutex;

use chunkstore::{
    AlignedBuf, Chunk, GetError, Inline, Kind, Prefetched, Progress, ReadListError, Store, Threads,
    cache_prefetch, store_verify,
};
use chunkstore::{PrefetchError, Sources, Verify};
use common::{content, faulty, list_of, temporary, told, wrong_files};

const LEN: usize = 30_000;

struct Node {
    dir: tempfile::TempDir,
    store: Store,
    cache: Store,
    chunks: Vec<Chunk>,
}

impl Node {
    /// A store with a checkpoint of two processes, with 12 chunks and 2 in common, and an empty cache.
    fn new() -> Self {
        let dir = temporary();
        let store = Store::create(&dir.path().join("store"), Kind::Store).unwrap();
        let cache = Store::create(&dir.path().join("cache"), Kind::Cache).unwrap();
        let writer = store.writer(false).unwrap();
        let chunks: Vec<_> =
            (0..12).map(|seed| writer.put(&content(seed, LEN)[..LEN]).unwrap().chunk().unwrap()).collect();
        for (pid, part) in [(1, &chunks[..7]), (2, &chunks[5..])] {
            writer.commit(&dir.path().join("ckpt"), pid, &list_of(part)).unwrap();
        }
        drop(writer);
        Self { dir, store, cache, chunks }
    }

    fn prefetch(&self, verify: bool) -> Result<Prefetched, PrefetchError> {
        let ckpt = self.dir.path().join("ckpt");
        cache_prefetch(&self.store, &ckpt, &self.cache, verify, (&Threads, 3), &|_| ())
    }
}

fn flip_a_bit(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[100] ^= 4;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn all_chunks_of_all_lists_come_once_and_progress_is_told() {
    let node = Node::new();
    let ckpt = node.dir.path().join("ckpt");
    let told = Mutex::new(Vec::<Progress>::new());
    let report = |progress| told.lock().unwrap().push(progress);
    let done = cache_prefetch(&node.store, &ckpt, &node.cache, false, (&Threads, 4), &report).unwrap();
    let bytes = 12 * LEN as u64;
    assert_eq!(done, Prefetched { chunks: 12, bytes, existing_chunks: 0, existing_bytes: 0 });
    let told = told.into_inner().unwrap();
    assert!(told.iter().map(|progress| progress.chunks).eq(1..=12));
    let last = told[11];
    assert_eq!((last.bytes, last.all_bytes, last.moved, last.all_chunks), (bytes, bytes, bytes, 12));
    let cached = Sources::new(Some(node.cache.clone()), None);
    for chunk in &node.chunks {
        cached.fetch(chunk, &mut AlignedBuf::new(LEN).unwrap(), Verify::Here).unwrap();
    }
    assert!(wrong_files(node.cache.root()).is_empty());
}

#[test]
fn a_prefetch_that_was_cut_short_goes_on() {
    let node = Node::new();
    let ckpt = node.dir.path().join("ckpt");
    let full = Store::open_on(faulty("write.direct:6+:*=ENOSPC"), node.cache.root(), Kind::Cache).unwrap();
    let error = cache_prefetch(&node.store, &ckpt, &full, false, (&Inline, 1), &|_| ()).unwrap_err();
    assert!(told(&error).contains("No space left"), "{}", told(&error));
    let done = node.prefetch(false).unwrap();
    assert_eq!((done.chunks, done.existing_chunks), (12, 5));
    assert_eq!(node.prefetch(false).unwrap().existing_bytes, 12 * LEN as u64);
}

#[test]
fn a_bad_chunk_of_the_store_is_named_and_does_not_get_into_the_cache() {
    let node = Node::new();
    let bad = node.store.path_of(&node.chunks[3].digest);
    flip_a_bit(&bad);
    let error = node.prefetch(false).unwrap_err();
    assert!(told(&error).contains(bad.to_str().unwrap()), "{}", told(&error));
    assert!(!node.cache.contains(&node.chunks[3]).unwrap());
    assert!(wrong_files(node.cache.root()).is_empty());
}

#[test]
fn a_bad_chunk_of_the_cache_is_put_right_when_it_is_verified() {
    let node = Node::new();
    node.prefetch(false).unwrap();
    flip_a_bit(&node.cache.path_of(&node.chunks[3].digest));
    assert_eq!(node.prefetch(false).unwrap().existing_chunks, 12);
    assert_eq!(node.prefetch(true).unwrap().existing_chunks, 11);
    assert!(wrong_files(node.cache.root()).is_empty());
}

#[test]
fn without_a_list_there_is_nothing_to_fetch() {
    let node = Node::new();
    let empty = node.dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let result = cache_prefetch(&node.store, &empty, &node.cache, false, (&Inline, 1), &|_| ());
    assert!(matches!(result, Err(PrefetchError::List(ReadListError::None { .. }))));
}

#[test]
fn progress_tells_rate_and_time_left() {
    let second = std::time::Duration::from_secs(1);
    let progress =
        Progress { chunks: 1, all_chunks: 3, bytes: 300, all_bytes: 900, moved: 200, elapsed: 2 * second };
    assert_eq!((progress.rate(), progress.time_left()), (100, Some(6 * second)));
    let begun = Progress { moved: 0, ..progress };
    assert_eq!((begun.rate(), begun.time_left()), (0, None));
}

#[test]
fn a_store_with_bad_chunks_is_read_to_its_end_and_each_is_named() {
    let node = Node::new();
    let path = |number: usize| node.store.path_of(&node.chunks[number].digest);
    flip_a_bit(&path(1));
    std::fs::write(path(2), "short").unwrap();
    std::fs::rename(path(3), path(4)).unwrap();
    std::fs::write(path(5), "").unwrap();
    let stranger = path(6).with_file_name("README");
    std::fs::write(&stranger, "keep out").unwrap();
    let found = store_verify(&node.store, (&Threads, 3), &|_| ()).unwrap();
    let named: Vec<_> = found.bad.iter().map(ToString::to_string).collect();
    assert_eq!(found.good.files, 7);
    assert_eq!(found.bad.len(), 4, "{named:?}");
    for number in [1, 2, 4, 5] {
        assert!(named.iter().any(|text| text.contains(path(number).to_str().unwrap())), "{named:?}");
    }
    assert!(found.bad.iter().any(|error| matches!(error, GetError::Length { found: 0, .. })));
    assert_eq!(found.strangers, [stranger]);
}
