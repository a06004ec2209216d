//! Chunks that are written piece by piece.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

mod common;

use chunkstore::{AlignedBuf, Begun, Kind, Put, PutError, Route, Store};
use common::{chunk_of, content, faulty, faulty_store, files_below, temporary, told, wrong_files};

const LEN: usize = 5 << 20;

/// Stores a chunk of this length in pieces, and reads it: how it was written.
fn written(store: &Store, len: usize, piece: usize) -> Route {
    let bytes = content(7, len);
    let chunk = chunk_of(&bytes[..len]);
    let writer = store.writer(false).unwrap();
    let Begun::New(mut coming) = writer.begin(chunk).unwrap() else { panic!("the store was empty") };
    for piece in bytes[..len].chunks(piece) {
        assert!(!store.contains(&chunk).unwrap(), "it has its name too early");
        coming.append(piece).unwrap();
    }
    let Put::Written(put, route) = coming.finish().unwrap() else { panic!("somebody was faster") };
    assert_eq!(put, chunk);
    let mut into = AlignedBuf::new(len).unwrap();
    store.get(&chunk, &mut into).unwrap();
    assert!(into[..len] == bytes[..len]);
    assert!(wrong_files(store.root()).is_empty());
    let stats = store.stats();
    assert_eq!((stats.written_chunks, stats.written_bytes), (1, len as u64));
    assert_eq!(stats.buffered_writes, u64::from(route == Route::Buffered));
    // And the list may name it.
    assert!(matches!(writer.begin(chunk).unwrap(), Begun::Existing(found) if found == chunk));
    writer.commit(&store.root().join("ckpt"), 1, &common::list_of(&[chunk])).unwrap();
    route
}

#[test]
fn pieces_of_any_length_are_the_whole_in_the_end() {
    for len in [1, 4096, LEN, LEN + 777] {
        for piece in [4096, 1 << 20, 2 << 20, LEN + 777] {
            let dir = temporary();
            let store = Store::create(dir.path(), Kind::Store).unwrap();
            assert_eq!(written(&store, len, piece), Route::Direct, "{len} bytes, {piece} at once");
        }
    }
    // Pieces that begin where direct I/O cannot.
    let dir = temporary();
    written(&Store::create(dir.path(), Kind::Store).unwrap(), 100_000, 777);
}

#[test]
fn refusals_and_short_calls_in_the_middle_change_nothing() {
    let refusals = ["open.direct:*:*=EINVAL", "write.direct:1:*=EINVAL", "write.direct:3:*=EOPNOTSUPP"];
    for plan in refusals {
        let dir = temporary();
        assert_eq!(written(&faulty_store(dir.path(), plan), LEN, 1 << 20), Route::Buffered, "{plan}");
    }
    for plan in ["write:*:*=short", "write:4:*=short;write:6:*=EINTR"] {
        let dir = temporary();
        written(&faulty_store(dir.path(), plan), LEN, 1 << 20);
    }
}

#[test]
fn what_does_not_come_to_its_end_leaves_nothing() {
    let dir = temporary();
    let store = Store::create(dir.path(), Kind::Store).unwrap();
    let writer = store.writer(false).unwrap();
    let bytes = content(7, LEN);
    let chunk = chunk_of(&bytes);
    let begin = || match writer.begin(chunk).unwrap() {
        Begun::New(coming) => coming,
        Begun::Existing(_) => panic!("it is there"),
    };
    let mut dropped = begin();
    dropped.append(&bytes[..1 << 20]).unwrap();
    drop(dropped);
    assert!(files_below(&dir.path().join("chunks")).is_empty());
    for len in [0, LEN - 1, LEN + 4096] {
        let mut wrong = begin();
        let more = [&bytes[..], &[0; 4096]].concat();
        wrong.append(&more[..len]).unwrap();
        assert!(matches!(wrong.finish(), Err(PutError::Length(found)) if found == len), "{len}");
        assert!(files_below(&dir.path().join("chunks")).is_empty());
    }
    assert_eq!(store.stats().written_chunks, 0);
}

#[test]
fn an_error_at_any_call_leaves_nothing_and_the_next_time_it_works() {
    for (error, text) in [("ENOSPC", "No space left"), ("EDQUOT", "quota"), ("EIO", "Input/output")] {
        for call in ["open", "write", "sync", "rename", "mkdir", "syncdir"] {
            let mut failed = 0;
            for nth in 1..20 {
                let dir = temporary();
                Store::create(dir.path(), Kind::Store).unwrap();
                let layer = faulty(&format!("{call}:{nth}:*={error}"));
                let Ok(store) = Store::open_on(layer, dir.path(), Kind::Store) else { continue };
                let Ok(writer) = store.writer(false) else { continue };
                let bytes = content(7, LEN);
                let put = |bytes: &[u8]| -> Result<(), PutError> {
                    let Begun::New(mut coming) = writer.begin(chunk_of(bytes))? else { return Ok(()) };
                    bytes.chunks(1 << 20).try_for_each(|piece| coming.append(piece))?;
                    coming.finish().map(drop)
                };
                if let Err(failure) = put(&bytes) {
                    failed += 1;
                    let told = told(&failure);
                    assert!(told.contains(text) && told.contains(dir.path().to_str().unwrap()), "{told}");
                    assert!(error == "EIO" || matches!(failure, PutError::Full { .. }), "{told}");
                }
                assert_eq!(wrong_files(dir.path()), [] as [std::path::PathBuf; 0], "{call} {nth}");
                put(&bytes).unwrap();
                assert!(store.contains(&chunk_of(&bytes)).unwrap());
            }
            assert!(failed > 0, "{call} never failed");
        }
    }
}
