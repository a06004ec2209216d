//! Storing, reading, and what is refused.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use chunkstore::{
    AlignedBuf, CHUNK_BYTES, CommitError, GetError, Kind, OpenError, Put, PutError, Route, Sources, Store,
    Verify, read_list, read_lists,
};
use common::{chunk_of, content, files_below, list_of, temporary, told, wrong_files};

fn flip_a_bit(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn what_was_put_is_got_for_every_odd_length() {
    let dir = temporary();
    let store = Store::create(dir.path(), Kind::Store).unwrap();
    let writer = store.writer(false).unwrap();
    for len in [1, 2, 511, 4095, 4096, 4097, 8191, 100_000, 1 << 20, (1 << 20) + 4095, 3 << 20] {
        let bytes = content(len as u64, len);
        let chunk = chunk_of(&bytes[..len]);
        assert!(matches!(writer.put(&bytes[..len]).unwrap(), Put::Written(put, _) if put == chunk), "{len}");
        assert_eq!(writer.put(&bytes[..len]).unwrap(), Put::Existing(chunk));
        // With room up to the next page, and without.
        let mut roomy = AlignedBuf::new(len).unwrap();
        store.get(&chunk, &mut roomy).unwrap();
        assert!(roomy[..len] == bytes[..len]);
        let mut exact = AlignedBuf::new(len).unwrap();
        store.get(&chunk, &mut exact[..len]).unwrap();
        assert!(exact[..len] == bytes[..len]);
        let mut crooked = AlignedBuf::new(len + 1).unwrap();
        assert_eq!(store.get(&chunk, &mut crooked[1..]).unwrap(), Route::Buffered);
        assert!(crooked[1..=len] == bytes[..len]);
    }
    assert!(wrong_files(dir.path()).is_empty());
    assert_eq!(store.stats().written_chunks, 11);
    assert_eq!(store.stats().existing_chunks, 11);
    assert_eq!(store.stats().read_chunks, 33);
}

#[test]
fn a_whole_chunk_of_full_length_goes_direct_where_the_file_system_lets_it() {
    let dir = temporary();
    let store = Store::create(dir.path(), Kind::Store).unwrap();
    let bytes = content(1, CHUNK_BYTES as usize);
    let put = store.writer(false).unwrap().put(&bytes).unwrap();
    let mut back = AlignedBuf::new(CHUNK_BYTES as usize).unwrap();
    let read = store.get(&put.chunk().unwrap(), &mut back).unwrap();
    assert!(back[..] == bytes[..]);
    let probe = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECT;
    let direct =
        rustix::fs::open(store.root().join("nvsnap-chunks"), probe, rustix::fs::Mode::empty()).is_ok();
    let expected = if direct { Route::Direct } else { Route::Buffered };
    assert_eq!((put, read), (Put::Written(chunk_of(&bytes), expected), expected));
}

#[test]
fn zeros_are_not_stored() {
    let dir = temporary();
    let store = Store::create(dir.path(), Kind::Store).unwrap();
    let writer = store.writer(false).unwrap();
    assert_eq!(writer.put(&vec![0; 1 << 20]).unwrap(), Put::Zero);
    assert!(files_below(&dir.path().join("chunks")).is_empty());
    assert_eq!(store.stats().zero_bytes, 1 << 20);
}

#[test]
fn chunks_have_neither_no_bytes_nor_too_many() {
    let dir = temporary();
    let writer = Store::create(dir.path(), Kind::Store).unwrap().writer(false).unwrap();
    assert!(matches!(writer.put(&[]), Err(PutError::Length(0))));
    let long = AlignedBuf::new(CHUNK_BYTES as usize + 1).unwrap();
    assert!(matches!(writer.put(&long[..=CHUNK_BYTES as usize]), Err(PutError::Length(_))));
}

#[test]
fn only_the_owner_may_read_what_is_stored() {
    let dir = temporary();
    let (root, ckpt) = (dir.path().join("a/store"), dir.path().join("b/ckpt"));
    let store = Store::create(&root, Kind::Store).unwrap();
    let writer = store.writer(false).unwrap();
    let chunk = writer.put(b"a secret").unwrap().chunk().unwrap();
    writer.commit(&ckpt, 17, &list_of(&[chunk])).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let files = files_below(dir.path());
    assert_eq!(files.len(), 4, "{files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    for made in [&root, &ckpt, &root.join("chunks"), &root.join("leases"), &dir.path().join("a")] {
        assert_eq!(mode(made), 0o700, "{}", made.display());
    }
}

#[test]
fn a_list_is_read_as_it_was_committed_and_replaced_by_the_next() {
    let dir = temporary();
    let (root, ckpt) = (dir.path().join("store"), dir.path().join("ckpt"));
    let store = Store::create(&root, Kind::Store).unwrap();
    for seed in [1, 2] {
        let writer = store.writer(false).unwrap();
        let chunk = writer.put(&content(seed, 5000)[..5000]).unwrap().chunk().unwrap();
        writer.commit(&ckpt, 17, &list_of(&[chunk])).unwrap();
        assert_eq!(read_list(&ckpt, 17).unwrap(), list_of(&[chunk]));
    }
    assert_eq!(read_lists(&ckpt).unwrap().len(), 1);
    assert!(files_below(&root.join("leases")).is_empty());
}

#[test]
fn a_list_of_chunks_that_were_not_stored_is_refused() {
    let dir = temporary();
    let (root, ckpt) = (dir.path().join("store"), dir.path().join("ckpt"));
    let store = Store::create(&root, Kind::Store).unwrap();
    let here = store.writer(false).unwrap().put(b"here").unwrap().chunk().unwrap();
    let writer = store.writer(false).unwrap();
    let absent = chunk_of(b"absent");
    assert_eq!(writer.claim_all(&[here, absent]).unwrap(), [true, false]);
    writer.commit(&ckpt, 17, &list_of(&[here])).unwrap();
    let refused = writer.commit(&ckpt, 18, &list_of(&[here, absent]));
    assert!(matches!(refused, Err(CommitError::NotStored(chunk)) if chunk == absent));
    assert_eq!(read_lists(&ckpt).unwrap().len(), 1);
}

#[test]
fn a_wrong_byte_is_found_named_and_the_other_place_is_asked() {
    let dir = temporary();
    let bytes = content(3, 100_000);
    let bytes = &bytes[..100_000];
    let chunk = chunk_of(bytes);
    type Damage = (&'static str, fn(&Path));
    let damage: [Damage; 5] = [
        ("is damaged", flip_a_bit),
        ("has 99999 bytes", |path| {
            std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(99_999).unwrap();
        }),
        ("is damaged", |path| std::fs::write(path, &content(4, 100_000)[..100_000]).unwrap()),
        ("has 100001 bytes", |path| {
            let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
            std::io::Write::write_all(&mut file, b"!").unwrap();
        }),
        ("is missing", |path| std::fs::remove_file(path).unwrap()),
    ];
    for (number, (what, damage)) in damage.into_iter().enumerate() {
        let place = |name: &str, kind| {
            let store = Store::create(&dir.path().join(format!("{number}/{name}")), kind).unwrap();
            store.writer(false).unwrap().put(bytes).unwrap();
            store
        };
        let (cache, store) = (place("cache", Kind::Cache), place("store", Kind::Store));
        let sources = Sources::new(Some(cache.clone()), Some(store.clone()));
        let mut into = AlignedBuf::new(100_000).unwrap();
        assert_eq!(sources.fetch(&chunk, &mut into, Verify::Here).unwrap().place, 0);

        damage(&cache.path_of(&chunk.digest));
        into.fill(0);
        let fetched = sources.fetch(&chunk, &mut into, Verify::Here).unwrap();
        assert_eq!(fetched.place, 1);
        assert!(into[..100_000] == *bytes);
        let named = fetched.failed[0].to_string();
        assert!(named.contains(what) && named.contains(cache.root().to_str().unwrap()), "{named}");

        damage(&store.path_of(&chunk.digest));
        let error = sources.fetch(&chunk, &mut into, Verify::Here).unwrap_err();
        let named = error.to_string();
        assert_eq!(error.tries.len(), 2);
        assert!(named.contains(&chunk.digest.to_string()), "{named}");
        assert!(named.contains(store.path_of(&chunk.digest).to_str().unwrap()), "{named}");

        // Put right, it is read again.
        store.writer(true).unwrap().put(bytes).unwrap();
        assert_eq!(sources.fetch(&chunk, &mut into, Verify::Here).unwrap().place, 1);
    }
}

#[test]
fn a_caller_that_verifies_itself_gets_the_other_copy() {
    let dir = temporary();
    let bytes = content(3, 10_000);
    let place = |name: &str, kind| {
        let store = Store::create(&dir.path().join(name), kind).unwrap();
        store.writer(false).unwrap().put(&bytes[..10_000]).unwrap();
        store
    };
    let (cache, store) = (place("cache", Kind::Cache), place("store", Kind::Store));
    let chunk = chunk_of(&bytes[..10_000]);
    flip_a_bit(&cache.path_of(&chunk.digest));
    let sources = Sources::new(Some(cache), Some(store.clone()));
    let mut into = AlignedBuf::new(10_000).unwrap();
    let fetched = sources.fetch(&chunk, &mut into, Verify::ByCaller).unwrap();
    let found = chunk_of(&into[..10_000]).digest;
    assert_ne!(found, chunk.digest);
    let again = sources.fetch_after(fetched.place, found, &chunk, &mut into, Verify::ByCaller).unwrap();
    assert!(again.place == 1 && into[..10_000] == bytes[..10_000]);
    let error = sources.fetch_after(1, found, &chunk, &mut into, Verify::ByCaller).unwrap_err();
    assert!(error.to_string().contains(store.root().to_str().unwrap()));
}

#[test]
fn an_existing_chunk_is_put_right_when_its_length_is_wrong_or_when_it_is_verified() {
    let dir = temporary();
    let store = Store::create(dir.path(), Kind::Store).unwrap();
    let bytes = content(3, 10_000);
    let chunk = chunk_of(&bytes[..10_000]);
    let path = store.path_of(&chunk.digest);
    let put = |verify| store.writer(verify).unwrap().put(&bytes[..10_000]).unwrap();
    put(false);
    flip_a_bit(&path);
    assert_eq!(put(false), Put::Existing(chunk));
    assert!(matches!(put(true), Put::Written(..)));
    assert_eq!(put(true), Put::Existing(chunk));
    std::fs::write(&path, b"short").unwrap();
    assert!(matches!(put(false), Put::Written(..)));
    assert_eq!(store.stats().repaired_chunks, 2);
    assert!(wrong_files(dir.path()).is_empty());
}

#[test]
fn a_directory_that_is_no_store_is_refused_and_left_alone() {
    let dir = temporary();
    std::fs::write(dir.path().join("thesis.tex"), "years of work").unwrap();
    let error = Store::create(dir.path(), Kind::Store).unwrap_err();
    assert!(matches!(error, OpenError::NotAStore { .. }), "{error}");
    assert_eq!(files_below(dir.path()).len(), 1);
    assert!(matches!(Store::open(dir.path(), Kind::Store), Err(OpenError::NotAStore { .. })));
    let nowhere = Store::open(&dir.path().join("nowhere"), Kind::Store).unwrap_err();
    assert!(told(&nowhere).contains("No such file"), "{}", told(&nowhere));
}

#[test]
fn a_cache_is_no_store_and_a_newer_store_is_not_touched() {
    let dir = temporary();
    let (cache, newer) = (dir.path().join("cache"), dir.path().join("newer"));
    Store::create(&cache, Kind::Cache).unwrap();
    let error = Store::create(&cache, Kind::Store).unwrap_err();
    assert!(matches!(error, OpenError::OtherKind { found: Kind::Cache, .. }));
    Store::create(&newer, Kind::Store).unwrap();
    std::fs::write(newer.join("nvsnap-chunks"), "nvsnap-gpushare chunk store, version 2\n").unwrap();
    let error = Store::open(&newer, Kind::Store).unwrap_err().to_string();
    assert!(error.contains("version 2") && error.contains("version 1"), "{error}");
}

#[test]
fn making_a_store_that_was_cut_short_is_finished_by_the_next() {
    let dir = temporary();
    let left = format!(".tmp-{0}-{0}", "0123456789abcdef0123456789abcdef");
    std::fs::write(dir.path().join(left), "nvsnap-gp").unwrap();
    std::fs::create_dir(dir.path().join("lost+found")).unwrap();
    Store::create(dir.path(), Kind::Store).unwrap();
    Store::open(dir.path(), Kind::Store).unwrap();
}

#[test]
fn a_chunk_replaced_by_a_link_a_pipe_or_a_directory_is_an_error() {
    let dir = temporary();
    let store = Store::create(&dir.path().join("store"), Kind::Store).unwrap();
    let chunk = store.writer(false).unwrap().put(b"some bytes").unwrap().chunk().unwrap();
    let path = store.path_of(&chunk.digest);
    let elsewhere = dir.path().join("elsewhere");
    std::fs::rename(&path, &elsewhere).unwrap();
    let mut into = AlignedBuf::new(10).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
    assert!(matches!(store.get(&chunk, &mut into), Err(GetError::File(_))));
    assert!(!store.contains(&chunk).unwrap());
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(store.get(&chunk, &mut into).is_err());
    std::fs::remove_dir(&path).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert!(store.get(&chunk, &mut into).is_err());
}

#[test]
fn a_store_may_be_moved_and_opened_by_a_relative_path() {
    let dir = temporary();
    let (before, after) = (dir.path().join("before"), dir.path().join("after the move"));
    let ckpt = dir.path().join("ckpt");
    let writer = Store::create(&before, Kind::Store).unwrap().writer(false).unwrap();
    let chunk = writer.put(b"some bytes").unwrap().chunk().unwrap();
    writer.commit(&ckpt, 1, &list_of(&[chunk])).unwrap();
    drop(writer);
    std::fs::rename(&before, &after).unwrap();
    for file in files_below(dir.path()) {
        let bytes = std::fs::read(&file).unwrap();
        let path = dir.path().as_os_str().as_encoded_bytes();
        assert!(!bytes.windows(path.len()).any(|window| window == path), "{} names a path", file.display());
    }
    let store = Store::open(&after, Kind::Store).unwrap();
    let list = read_list(&ckpt, 1).unwrap();
    store.get(&list.chunks()[0], &mut AlignedBuf::new(10).unwrap()).unwrap();
    assert!(store.root().is_absolute());
}
