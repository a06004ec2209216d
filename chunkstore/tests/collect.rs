//! What collectors remove, spare and refuse.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use chunkstore::layer::{FileLayer, Volume};
use chunkstore::{
    AlignedBuf, Chunk, CollectError, GcOptions, Kind, Sources, Store, System, Verify, Writer, cache_gc,
    store_gc,
};
use common::walls::{Shared, Wall};
use common::{content, files_below, list_of, temporary, told};

const LEN: usize = 10_000;
const DELETE: GcOptions = GcOptions { delete: true, allow_empty: false };

fn put(writer: &Writer, seed: u64) -> Chunk {
    writer.put(&content(seed, LEN)[..LEN]).unwrap().chunk().unwrap()
}

fn save(store: &Store, ckpt: &Path, pid: u32, seeds: &[u64]) -> Vec<Chunk> {
    let writer = store.writer(false).unwrap();
    let chunks: Vec<_> = seeds.iter().map(|seed| put(&writer, *seed)).collect();
    writer.commit(ckpt, pid, &list_of(&chunks)).unwrap();
    chunks
}

fn set_age(path: &Path, age: Duration) {
    let file = std::fs::File::open(path).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

#[test]
fn what_no_list_names_is_told_and_then_removed() {
    let dir = temporary();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    let store = Store::create(&dir.path().join("store"), Kind::Store).unwrap();
    let kept = save(&store, &a, 1, &[1, 2]);
    save(&store, &b, 1, &[2, 3]);
    let gone = save(&store, &a, 2, &[4, 5]);
    std::fs::remove_file(a.join("gpu-2.chunks")).unwrap();
    let dirs = [a, b];

    let told = store_gc(&store, &dirs, GcOptions::default()).unwrap();
    assert_eq!((told.lists, told.named.files, told.removed.files), (2, 3, 0));
    let mut unneeded = told.unneeded.clone();
    unneeded.sort();
    let mut expected = gone.clone();
    expected.sort();
    assert_eq!(unneeded, expected);
    assert_eq!(told.unneeded_bytes(), 2 * LEN as u64);
    assert!(gone.iter().all(|chunk| store.contains(chunk).unwrap()));

    let done = store_gc(&store, &dirs, DELETE).unwrap();
    assert_eq!((done.removed.files, done.removed.bytes), (2, 2 * LEN as u64));
    assert!(gone.iter().all(|chunk| !store.contains(chunk).unwrap()));
    assert!(kept.iter().all(|chunk| store.contains(chunk).unwrap()));
    let again = store_gc(&store, &dirs, DELETE).unwrap();
    assert!(again.unneeded.is_empty() && again.missing.is_empty());
}

#[test]
fn a_directory_that_cannot_be_read_or_holds_no_list_stops_everything() {
    let dir = temporary();
    let (full, empty) = (dir.path().join("full"), dir.path().join("empty"));
    let store = Store::create(&dir.path().join("store"), Kind::Store).unwrap();
    save(&store, &full, 1, &[1]);
    let spare = put(&store.writer(false).unwrap(), 2);
    std::fs::create_dir(&empty).unwrap();
    let gc = |dirs: &[&PathBuf], options| {
        store_gc(&store, &dirs.iter().map(|dir| (*dir).clone()).collect::<Vec<_>>(), options)
    };
    assert!(matches!(gc(&[], DELETE), Err(CollectError::NoDirectory { .. })));
    let refused = [
        gc(&[&full, &empty], DELETE).unwrap_err(),
        gc(&[&full, &dir.path().join("nowhere")], DELETE).unwrap_err(),
        {
            std::fs::write(full.join("gpu-2.chunks"), b"NVSNAPCL and then nothing").unwrap();
            gc(&[&full], DELETE).unwrap_err()
        },
    ];
    for error in refused {
        assert!(matches!(error, CollectError::List(_)), "{}", told(&error));
        assert!(told(&error).contains(dir.path().to_str().unwrap()), "{}", told(&error));
    }
    assert!(store.contains(&spare).unwrap());
    std::fs::remove_file(full.join("gpu-2.chunks")).unwrap();
    gc(&[&full, &empty], GcOptions { allow_empty: true, ..DELETE }).unwrap();
    assert!(!store.contains(&spare).unwrap());
}

#[test]
fn a_store_is_not_collected_as_a_cache_nor_a_cache_as_a_store() {
    let dir = temporary();
    let store = Store::create(&dir.path().join("store"), Kind::Store).unwrap();
    let cache = Store::create(&dir.path().join("cache"), Kind::Cache).unwrap();
    assert!(matches!(cache_gc(&store, 0), Err(CollectError::OtherKind { .. })));
    assert!(matches!(store_gc(&cache, &[], DELETE), Err(CollectError::OtherKind { .. })));
}

#[test]
fn what_a_writer_has_stored_or_found_stays_until_it_is_gone() {
    let dir = temporary();
    let ckpt = dir.path().join("ckpt");
    let store = Store::create(&dir.path().join("store"), Kind::Store).unwrap();
    save(&store, &ckpt, 1, &[1]);
    let found = put(&store.writer(false).unwrap(), 2);
    let writer = store.writer(false).unwrap();
    assert!(writer.claim(&found).unwrap());
    let stored = put(&writer, 3);
    let dirs = [ckpt];
    let report = store_gc(&store, &dirs, DELETE).unwrap();
    assert_eq!((report.in_use.files, report.removed.files), (2, 0));
    assert!(store.contains(&found).unwrap() && store.contains(&stored).unwrap());
    drop(writer);
    assert_eq!(store_gc(&store, &dirs, DELETE).unwrap().removed.files, 2);
}

#[test]
fn temporaries_go_when_their_writer_is_gone_and_not_before() {
    let dir = temporary();
    let ckpt = dir.path().join("ckpt");
    let store = Store::create(&dir.path().join("store"), Kind::Store).unwrap();
    let chunk = save(&store, &ckpt, 1, &[1])[0];
    let writer = store.writer(false).unwrap();
    let lease = files_below(&store.root().join("leases"))[0].clone();
    let id = lease.file_name().unwrap().to_str().unwrap();
    let fan = store.path_of(&chunk.digest).parent().unwrap().to_owned();
    let own = fan.join(format!(".tmp-{id}-{id}"));
    let other = fan.join(format!(".tmp-{}-{id}", "0".repeat(32)));
    let list = ckpt.join(format!(".tmp-{id}-{id}"));
    let (old_list, old_lease) = (ckpt.join(format!(".tmp-{}-{id}", "1".repeat(32))), "2".repeat(32));
    let old_lease = store.root().join(format!("leases/.tmp-{old_lease}"));
    let stranger = fan.join("notes.txt");
    for path in [&own, &other, &list, &old_list, &old_lease, &stranger] {
        std::fs::write(path, "12345").unwrap();
    }
    for path in [&old_list, &old_lease] {
        set_age(path, Duration::from_secs(25 * 3600));
    }
    let dirs = [ckpt];
    let report = store_gc(&store, &dirs, DELETE).unwrap();
    assert_eq!((report.temporaries.files, report.temporaries.bytes), (2, 10));
    assert_eq!(report.strangers, std::slice::from_ref(&stranger));
    assert!(own.exists() && list.exists() && stranger.exists());
    assert!(!other.exists() && !old_list.exists() && !old_lease.exists());
    // As after a kill: the lease is there and nobody holds it.
    let copy = std::fs::read(&lease).unwrap();
    drop(writer);
    std::fs::write(&lease, copy).unwrap();
    store_gc(&store, &dirs, DELETE).unwrap();
    assert!(!own.exists() && !lease.exists() && stranger.exists());
}

#[test]
fn a_lease_nobody_can_read_stops_everything_while_it_is_held() {
    let dir = temporary();
    let ckpt = dir.path().join("ckpt");
    let store = Store::create(&dir.path().join("store"), Kind::Store).unwrap();
    save(&store, &ckpt, 1, &[1]);
    let writer = store.writer(false).unwrap();
    let lease = files_below(&store.root().join("leases"))[0].clone();
    let file = std::fs::OpenOptions::new().write(true).open(&lease).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &2_u32.to_le_bytes(), 8).unwrap();
    let error = store_gc(&store, std::slice::from_ref(&ckpt), DELETE).unwrap_err();
    assert!(matches!(&error, CollectError::Lease { path } if *path == lease), "{}", told(&error));
    drop(writer);
    store_gc(&store, &[ckpt], DELETE).unwrap();
}

#[test]
fn what_a_collector_left_aside_is_brought_back_or_removed_by_the_next() {
    let dir = temporary();
    let ckpt = dir.path().join("ckpt");
    let store = Store::create(&dir.path().join("store"), Kind::Store).unwrap();
    let needed = save(&store, &ckpt, 1, &[1])[0];
    let unneeded = put(&store.writer(false).unwrap(), 2);
    for chunk in [needed, unneeded] {
        let path = store.path_of(&chunk.digest);
        let aside = path.with_file_name(format!(".dead-{}-{}", "a".repeat(32), chunk.digest));
        std::fs::rename(path, aside).unwrap();
    }
    // Meanwhile it can be read.
    store.get(&needed, &mut AlignedBuf::new(LEN).unwrap()).unwrap();
    let report = store_gc(&store, &[ckpt], DELETE).unwrap();
    assert_eq!((report.brought_back.files, report.removed.files, report.missing.len()), (1, 1, 0));
    assert!(store.contains(&needed).unwrap());
    assert_eq!(files_below(&store.root().join("chunks")).len(), 1);
}

#[test]
fn missing_chunks_are_told() {
    let dir = temporary();
    let ckpt = dir.path().join("ckpt");
    let store = Store::create(&dir.path().join("store"), Kind::Store).unwrap();
    let chunk = save(&store, &ckpt, 1, &[1, 2])[1];
    std::fs::remove_file(store.path_of(&chunk.digest)).unwrap();
    assert_eq!(store_gc(&store, &[ckpt], GcOptions::default()).unwrap().missing, [chunk]);
}

#[test]
fn a_cache_loses_what_was_not_used_for_longest() {
    let dir = temporary();
    let cache = Store::create(dir.path(), Kind::Cache).unwrap();
    let writer = cache.writer(false).unwrap();
    let chunks: Vec<_> = (1..=4).map(|seed| put(&writer, seed)).collect();
    drop(writer);
    for (chunk, hours) in chunks.iter().zip([1, 4, 3, 2]) {
        set_age(&cache.path_of(&chunk.digest), Duration::from_secs(hours * 3600));
    }
    // The oldest is read, which makes it the newest.
    cache.get(&chunks[1], &mut AlignedBuf::new(LEN).unwrap()).unwrap();
    let report = cache_gc(&cache, 2 * LEN as u64 + 5).unwrap();
    assert_eq!((report.removed.files, report.kept.files, report.kept.bytes), (2, 2, 2 * LEN as u64));
    let left: Vec<_> = chunks.iter().map(|chunk| cache.contains(chunk).unwrap()).collect();
    assert_eq!(left, [true, true, false, false]);
}

#[test]
fn a_cache_keeps_what_is_in_use_though_it_is_too_large() {
    let dir = temporary();
    let cache = Store::create(dir.path(), Kind::Cache).unwrap();
    let writer = cache.writer(false).unwrap();
    let chunks: Vec<_> = (1..=3).map(|seed| put(&writer, seed)).collect();
    drop(writer);
    let mut sources = Sources::new(Some(cache.clone()), None);
    assert!(sources.hold(&chunks[..2]).is_empty());
    let report = cache_gc(&cache, 0).unwrap();
    assert_eq!((report.removed.files, report.in_use.files, report.kept.files), (1, 2, 2));
    for chunk in &chunks[..2] {
        sources.fetch(chunk, &mut AlignedBuf::new(LEN).unwrap(), Verify::Here).unwrap();
    }
    drop(sources);
    assert_eq!(cache_gc(&cache, 0).unwrap().kept.files, 0);
}

#[test]
fn where_several_machines_write_recent_chunks_and_foreign_leases_are_spared() {
    let dir = temporary();
    let (root, ckpt) = (dir.path().join("store"), dir.path().join("ckpt"));
    Store::create(&root, Kind::Store).unwrap();
    let layer: Arc<dyn FileLayer> = Arc::new(Wall::new(System, Shared));
    let Volume { local, .. } = layer.volume(&root).unwrap();
    assert!(!local);
    let store = Store::open_on(layer, &root, Kind::Store).unwrap();
    save(&store, &ckpt, 1, &[1]);
    let (recent, old) = (put(&store.writer(false).unwrap(), 2), put(&store.writer(false).unwrap(), 3));
    let two_hours = Duration::from_secs(2 * 3600);
    set_age(&store.path_of(&old.digest), two_hours);

    // A lease of another machine names the old one, and no lock of it is seen here.
    let writer = store.writer(false).unwrap();
    writer.claim(&old).unwrap();
    set_age(&store.path_of(&old.digest), two_hours);
    let lease = files_below(&root.join("leases"))[0].clone();
    let mut bytes = std::fs::read(&lease).unwrap();
    bytes[16..32].fill(0xee);
    drop(writer);
    std::fs::write(&lease, bytes).unwrap();
    let dirs = [ckpt];
    let report = store_gc(&store, &dirs, DELETE).unwrap();
    assert_eq!((report.in_use.files, report.recent.files, report.removed.files), (1, 1, 0));
    // A day later nobody believes in it.
    set_age(&lease, Duration::from_secs(25 * 3600));
    let report = store_gc(&store, &dirs, DELETE).unwrap();
    assert_eq!((report.in_use.files, report.recent.files, report.removed.files), (0, 1, 1));
    assert!(store.contains(&recent).unwrap() && !lease.exists());
}

#[test]
fn a_writer_whose_lease_was_taken_for_dead_does_not_commit() {
    let dir = temporary();
    let ckpt = dir.path().join("ckpt");
    let store = Store::create(&dir.path().join("store"), Kind::Store).unwrap();
    let writer = store.writer(false).unwrap();
    let chunk = put(&writer, 1);
    std::fs::remove_file(&files_below(&store.root().join("leases"))[0]).unwrap();
    let error = told(&writer.commit(&ckpt, 1, &list_of(&[chunk])).unwrap_err());
    assert!(error.contains("lease"), "{error}");
    assert!(files_below(&ckpt).is_empty());
}

#[test]
fn an_error_at_any_call_of_a_collection_loses_nothing() {
    for call in ["open", "stat", "rename", "unlink", "list", "lock", "read", "write", "mkdir"] {
        for nth in 1..40 {
            let dir = common::quick();
            let (root, ckpt) = (dir.path().join("store"), dir.path().join("ckpt"));
            let store = Store::create(&root, Kind::Store).unwrap();
            let kept = save(&store, &ckpt, 1, &[1, 2]);
            let writer = store.writer(false).unwrap();
            for seed in 3..8 {
                put(&writer, seed);
            }
            drop(writer);
            let plan = format!("{call}:{nth}:*=EIO");
            let faulty = Store::open_on(common::faulty(&plan), &root, Kind::Store);
            let result = faulty.map(|store| store_gc(&store, std::slice::from_ref(&ckpt), DELETE));
            for chunk in &kept {
                assert!(store.contains(chunk).unwrap(), "{plan}: {result:?}");
            }
            assert!(
                common::wrong_files(&root).is_empty() || call == "rename" || call == "unlink",
                "{plan}: {result:?}"
            );
            store_gc(&store, &[ckpt], DELETE).unwrap();
            assert_eq!(files_below(&root.join("chunks")).len(), 2, "{plan}: {result:?}");
        }
    }
}
