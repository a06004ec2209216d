//! A store, a cache and a checkpoint's directory, and what processes do with them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use chunkstore::{
    AlignedBuf, Chunk, GcOptions, Inline, Kind, Listed, PrefetchError, Put, ReadListError, Sources, Store,
    Verify, cache_gc, cache_prefetch, read_lists, store_gc, store_verify,
};

use super::children::{Lot, step};
use super::{chunk_of, content, faulty, files_below, list_of, wrong_files};

pub const LEN: usize = 20_000;
pub const DELETE: GcOptions = GcOptions { delete: true, allow_empty: true };
/// Seeds of contents are below this.
const SEEDS: u64 = 60;

/// A process at work. What it does again and again says how many chunks it did it with.
pub struct Scene {
    pub dir: PathBuf,
    pub seed: u64,
    pub faults: String,
}

impl Scene {
    pub fn store(&self) -> Store {
        Store::create_on(faulty(&self.faults), &self.dir.join("store"), Kind::Store).unwrap()
    }

    pub fn cache(&self) -> Store {
        Store::create_on(faulty(&self.faults), &self.dir.join("cache"), Kind::Cache).unwrap()
    }

    pub fn ckpt(&self) -> PathBuf {
        self.dir.join("ckpt")
    }

    /// Does something again and again until it is time to go.
    pub fn keep(&self, mut what: impl FnMut(&mut Lot) -> u64) {
        let mut lot = Lot::new(self.seed);
        while !self.dir.join("enough").exists() {
            step(what(&mut lot));
        }
    }

    /// Saves contents; those it wrote.
    pub fn save(&self, pid: u32, seeds: &[u64]) -> u64 {
        let store = self.store();
        let writer = store.writer(false).unwrap();
        let mut chunks = BTreeSet::new();
        for seed in seeds {
            let bytes = if *seed == 0 { AlignedBuf::new(LEN).unwrap() } else { content(*seed, LEN) };
            chunks.extend(writer.put(&bytes[..LEN]).unwrap().chunk());
        }
        let chunks: Vec<_> = chunks.into_iter().collect();
        writer.commit(&self.ckpt(), pid, &list_of(&chunks)).unwrap();
        store.stats().written_chunks
    }

    /// Saves eight contents by lot.
    pub fn save_some(&self, lot: &mut Lot) -> u64 {
        let seeds: Vec<_> = (0..8).map(|_| lot.below(SEEDS)).collect();
        self.save(u32::try_from(self.seed).unwrap(), &seeds)
    }

    /// Removes what no list names; how much that was.
    pub fn collect(&self) -> u64 {
        store_gc(&self.store(), &[self.ckpt()], DELETE).unwrap().removed.files
    }

    /// Removes what was not used for the longest time; how much that was.
    pub fn collect_cache(&self, max_bytes: u64) -> u64 {
        cache_gc(&self.cache(), max_bytes).unwrap().removed.files
    }

    /// Fills the cache; the chunks that were not there.
    pub fn prefetch(&self) -> u64 {
        let before = read_lists(&self.ckpt()).unwrap();
        match cache_prefetch(&self.store(), &self.ckpt(), &self.cache(), false, (&Inline, 1), &|_| ()) {
            Ok(fetched) => fetched.chunks - fetched.existing_chunks,
            Err(PrefetchError::List(ReadListError::None { .. })) => 0,
            // A checkpoint may be replaced while it is fetched; one that is not must be there.
            Err(error) => {
                assert_ne!(read_lists(&self.ckpt()).unwrap(), before, "{error}");
                0
            }
        }
    }

    /// Loads what was there before and after the lease was taken: that must be readable then, and be bytes that
    /// somebody saves.
    pub fn load(&self) -> u64 {
        let before = read_lists(&self.ckpt()).unwrap();
        let all = |lists: &[Listed]| -> Vec<Chunk> {
            lists.iter().flat_map(|listed| listed.list.chunks()).copied().collect()
        };
        let mut sources = Sources::new(Some(self.cache()), Some(self.store()));
        assert!(sources.hold(&all(&before)).is_empty());
        let mut after = read_lists(&self.ckpt()).unwrap();
        after.retain(|listed| before.contains(listed));
        let chunks = all(&after);
        assert_eq!(sources.missing(&chunks), []);
        let saved: BTreeSet<Chunk> = (1..SEEDS).map(|seed| chunk_of(&content(seed, LEN)[..LEN])).collect();
        let mut into = AlignedBuf::new(LEN).unwrap();
        for chunk in &chunks {
            sources.fetch(chunk, &mut into, Verify::Here).unwrap();
            assert!(saved.contains(&chunk_of(&into[..LEN])), "{chunk}: bytes that nobody has saved");
        }
        chunks.len() as u64
    }

    /// Reads all that the store and the cache have; the chunks that were good.
    pub fn verify(&self) -> u64 {
        let found =
            [self.store(), self.cache()].map(|place| store_verify(&place, (&Inline, 1), &|_| ()).unwrap());
        for found in &found {
            assert!(found.bad.is_empty() && found.strangers.is_empty(), "{found:?}");
        }
        found.iter().map(|found| found.good.files).sum()
    }

    pub fn write_200_chunks(&self) {
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
            step(1);
        }
        // Equal pids of different pods have directories of their own.
        let ckpt = self.dir.join(format!("ckpt-{}", self.seed % 8));
        writer.commit(&ckpt, std::process::id(), &list_of(&chunks)).unwrap();
    }
}

/// What must hold after a kill.
pub fn assert_sound(dir: &Path, context: &str) {
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
pub fn assert_clean(dir: &Path, context: &str) {
    let scene = Scene { dir: dir.to_owned(), seed: 0, faults: String::new() };
    scene.save(9, &[1, 9]);
    scene.collect();
    scene.collect_cache(u64::MAX);
    assert_sound(dir, context);
    scene.verify();
    for root in [dir.join("store/chunks"), dir.join("cache/chunks")] {
        let left = if root.exists() { wrong_files(&root) } else { Vec::new() };
        assert!(left.is_empty(), "{context}: {left:?}");
    }
    let leases = files_below(&dir.join("store/leases"));
    assert!(leases.iter().all(|path| path.to_str().unwrap().contains("/.tmp-")), "{context}: {leases:?}");
}
