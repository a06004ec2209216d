//! File systems that refuse, are full, read-only, slow to give, or gone.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

mod common;

use std::path::Path;
use std::sync::Arc;

use chunkstore::{
    AlignedBuf, CommitError, GcOptions, Kind, Put, PutError, Route, Sources, Store, System, Verify,
    read_lists, store_gc,
};
use common::walls::{Coarse, ReadOnly, Wall};
use common::{
    chunk_of, content, faulty, faulty_store, files_below, list_of, quick, temporary, told, wrong_files,
};

const LEN: usize = 1 << 20;

/// Stores and reads a chunk of 1 MiB, and says which way it went.
fn there_and_back(store: &Store, len: usize) -> (Route, Route) {
    let bytes = content(1, len);
    let Put::Written(chunk, write) = store.writer(false).unwrap().put(&bytes[..len]).unwrap() else {
        panic!("the store was empty")
    };
    let mut into = AlignedBuf::new(len).unwrap();
    let read = store.get(&chunk, &mut into).unwrap();
    assert!(into[..len] == bytes[..len]);
    assert!(wrong_files(store.root()).is_empty());
    assert_eq!(store.stats().buffered_writes, u64::from(write == Route::Buffered));
    assert_eq!(store.stats().buffered_reads, u64::from(read == Route::Buffered));
    (write, read)
}

#[test]
fn direct_io_that_is_refused_is_done_without() {
    use Route::{Buffered, Direct};
    let refused_to = [
        ("open.direct:*:*", (Buffered, Buffered)),
        ("write.direct:1:*", (Buffered, Direct)),
        ("write.direct:1:*=short;write.direct:2:*=short;write.direct:3:*", (Buffered, Direct)),
        ("read.direct:1:*", (Direct, Buffered)),
        ("read.direct:1:*=short;read.direct:2:*", (Direct, Buffered)),
    ];
    for (place, expected) in refused_to {
        for error in ["EINVAL", "EOPNOTSUPP", "ENOTSUP", "EPERM"] {
            let dir = temporary();
            let store = faulty_store(dir.path(), &format!("{place}={error}"));
            assert_eq!(there_and_back(&store, LEN), expected, "{place}={error}");
        }
    }
}

#[test]
fn errors_that_are_no_refusal_are_not_covered_up() {
    let dir = temporary();
    let store = faulty_store(dir.path(), "write.direct:1:*=EIO;read.direct:1:*=EIO");
    let writer = store.writer(false).unwrap();
    let error = writer.put(&content(1, LEN)).unwrap_err();
    assert!(told(&error).contains("Input/output error"), "{}", told(&error));
    let chunk = writer.put(&content(1, LEN)).unwrap().chunk().unwrap();
    assert!(store.get(&chunk, &mut AlignedBuf::new(LEN).unwrap()).is_err());
}

#[test]
fn short_and_interrupted_calls_go_on() {
    for plan in [
        "write:*:*=short;read:*:*=short",
        "write:1:*=EINTR;write:3:*=EINTR;read:1:*=EINTR;read:2:*=short;read:3:*=EINTR",
    ] {
        for len in [1, 4095, 4096, 10_000, LEN, LEN + 1] {
            let dir = temporary();
            there_and_back(&faulty_store(dir.path(), plan), len);
        }
    }
}

#[test]
fn file_systems_that_want_more_than_a_page_get_it() {
    for align in [4096, 8192, 65_536, 2 << 20] {
        for len in [5000, 65_536, 70_001, LEN, 3 << 20, (3 << 20) + 777] {
            let dir = temporary();
            Store::create(dir.path(), Kind::Store).unwrap();
            let layer = Wall::new(System, Coarse(align));
            let store = Store::open_on(Arc::new(layer), dir.path(), Kind::Store).unwrap();
            let (write, _) = there_and_back(&store, len);
            // Memory of less than a huge page starts at a page only.
            let fits = align == 4096 || len >= 2 << 20;
            assert!(write == Route::Direct || !fits, "{len} bytes, aligned to {align}");
        }
    }
}

/// A store with one checkpoint, and the save of another that replaces it.
fn save(store: &Store, ckpt: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let writer = store.writer(true)?;
    let mut chunks = Vec::new();
    for seed in [1, 2, 3] {
        chunks.extend(writer.put(&content(seed, 9000)[..9000])?.chunk());
    }
    Ok(writer.commit(ckpt, 1, &list_of(&chunks))?)
}

#[test]
fn an_error_at_any_call_of_a_save_harms_nothing_and_leaves_nothing() {
    let calls =
        ["open", "write", "sync", "stat", "rename", "link", "mkdir", "syncdir", "lock", "buffered", "read"];
    for call in calls {
        for (error, text) in [("ENOSPC", "No space left"), ("EDQUOT", "quota"), ("EIO", "Input/output")] {
            for nth in 1..30 {
                let dir = quick();
                let (root, ckpt) = (dir.path().join("store"), dir.path().join("ckpt"));
                let first = Store::create(&root, Kind::Store).unwrap();
                let writer = first.writer(false).unwrap();
                let chunk = writer.put(&content(1, 9000)[..9000]).unwrap().chunk().unwrap();
                writer.commit(&ckpt, 1, &list_of(&[chunk])).unwrap();
                drop(writer);

                let plan = format!("{call}:{nth}:*={error}");
                let result = Store::open_on(faulty(&plan), &root, Kind::Store)
                    .map_err(Into::into)
                    .and_then(|store| save(&store, &ckpt));
                if let Err(failure) = &result {
                    let told = told(&**failure);
                    assert!(
                        told.contains(text) && told.contains(dir.path().to_str().unwrap()),
                        "{plan}: {told}"
                    );
                }
                assert_eq!(wrong_files(&root), Vec::<std::path::PathBuf>::new(), "{plan}: {result:?}");
                assert!(files_below(&root.join("leases")).is_empty(), "{plan}");
                let lists = read_lists(&ckpt).unwrap();
                assert_eq!(files_below(&ckpt).len(), 1, "{plan}");
                let expected = if result.is_ok() { 3..=3 } else { 1..=3 };
                assert!(expected.contains(&lists[0].list.chunks().len()), "{plan}");
                for chunk in lists[0].list.chunks() {
                    first.get(chunk, &mut AlignedBuf::new(9000).unwrap()).unwrap();
                }
                save(&first, &ckpt).unwrap();
            }
        }
    }
}

#[test]
fn a_full_disk_says_what_is_needed_and_where() {
    let dir = temporary();
    let (root, ckpt) = (dir.path().join("store"), dir.path().join("ckpt"));
    for error in ["ENOSPC", "EDQUOT"] {
        // The first write is that of the lease, the second its claim.
        let store = faulty_store(&root, &format!("write:3:*={error};write:6:*={error}"));
        let writer = store.writer(false).unwrap();
        let Err(full @ PutError::Full { need: 9000, .. }) = writer.put(&content(1, 9000)[..9000]) else {
            panic!("{error} is not said to be a full disk")
        };
        assert!(full.to_string().contains("9000 bytes"));
        assert!(told(&full).contains(root.to_str().unwrap()));
        let chunk = writer.put(&content(1, 9000)[..9000]).unwrap().chunk().unwrap();
        let refused = writer.commit(&ckpt, 1, &list_of(&[chunk])).unwrap_err();
        assert!(matches!(refused, CommitError::Full { .. }), "{}", told(&refused));
        assert!(files_below(&ckpt).is_empty());
        std::fs::remove_dir_all(&root).unwrap();
    }
}

#[test]
fn where_a_rename_cannot_keep_a_link_does_and_where_neither_can_it_is_done_all_the_same() {
    for plan in ["rename.keep:*:*=EINVAL", "rename.keep:*:*=EINVAL;link:*:*=EPERM", "rename.keep:*:*=ENOSYS"]
    {
        let dir = temporary();
        let store = faulty_store(dir.path(), plan);
        there_and_back(&store, 10_000);
        assert!(matches!(
            store.writer(false).unwrap().put(&content(1, 10_000)[..10_000]),
            Ok(Put::Existing(_))
        ));
    }
}

#[test]
fn the_winner_stays_when_two_write_the_same_chunk() {
    // Both look before either writes: the second one's look is made to find nothing. It looked at the marker before.
    for plan in ["", "rename.keep:*:*=EINVAL", "rename.keep:*:*=EINVAL;link:*:*=EPERM"] {
        let dir = temporary();
        let bytes = content(1, 10_000);
        let bytes = &bytes[..10_000];
        let other = Store::create(dir.path(), Kind::Store).unwrap();
        other.writer(false).unwrap().put(bytes).unwrap();
        let path = other.path_of(&chunk_of(bytes).digest);
        let inode = || std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&path).unwrap());
        let winner = inode();
        let store = faulty_store(dir.path(), &format!("stat:2:*=ENOENT;{plan}"));
        assert!(matches!(store.writer(false).unwrap().put(bytes), Ok(Put::Existing(_))), "{plan}");
        assert_eq!(inode(), winner);
        assert!(wrong_files(dir.path()).is_empty(), "{plan}");
    }
}

#[test]
fn a_directory_that_vanishes_is_an_error_that_names_it() {
    let dir = temporary();
    let (root, ckpt) = (dir.path().join("store"), dir.path().join("ckpt"));
    let store = Store::create(&root, Kind::Store).unwrap();
    let writer = store.writer(false).unwrap();
    let chunk = writer.put(&content(1, 9000)[..9000]).unwrap().chunk().unwrap();
    std::fs::remove_dir_all(&root).unwrap();
    for error in [
        told(&writer.put(&content(1, 9000)[..9000]).unwrap_err()),
        told(&writer.put(&content(2, 9000)[..9000]).unwrap_err()),
        told(&writer.commit(&ckpt, 1, &list_of(&[chunk])).unwrap_err()),
        told(&store.get(&chunk, &mut AlignedBuf::new(9000).unwrap()).unwrap_err()),
        told(&store.writer(false).unwrap_err()),
        told(&store.free_bytes().unwrap_err()),
    ] {
        assert!(error.contains(root.to_str().unwrap()), "{error}");
    }
    assert!(!ckpt.exists());
}

#[test]
fn a_read_only_store_can_be_loaded_from_and_written_to_not_at_all() {
    let dir = temporary();
    let (root, ckpt) = (dir.path().join("store"), dir.path().join("ckpt"));
    let writer = Store::create(&root, Kind::Store).unwrap().writer(false).unwrap();
    let chunk = writer.put(&content(1, 9000)[..9000]).unwrap().chunk().unwrap();
    writer.commit(&ckpt, 1, &list_of(&[chunk])).unwrap();
    // Another machine, say, is at work in it: its lease is there.
    let _at_work = writer;
    let store = Store::create_on(Arc::new(Wall::new(System, ReadOnly)), &root, Kind::Store).unwrap();
    let mut sources = Sources::new(None, Some(store.clone()));
    assert_eq!(sources.hold(&[chunk]).len(), 1);
    assert!(sources.missing(&[chunk]).is_empty());
    sources.fetch(&chunk, &mut AlignedBuf::new(9000).unwrap(), Verify::Here).unwrap();
    assert!(told(&store.writer(false).unwrap_err()).contains("Read-only"));
    let looked = store_gc(&store, std::slice::from_ref(&ckpt), GcOptions::default()).unwrap();
    assert_eq!(looked.named.files, 1);
    let delete = GcOptions { delete: true, ..GcOptions::default() };
    assert!(told(&store_gc(&store, &[ckpt], delete).unwrap_err()).contains("Read-only"));
}
