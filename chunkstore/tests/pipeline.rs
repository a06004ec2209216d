//! Reading ahead and writing behind.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use chunkstore::{
    AlignedBuf, Chunk, Digest, Executor, Kind, Put, ReadAhead, Sources, Store, Threads, Verify, WriteBehind,
    WriteError,
};
use common::{chunk_of, content, faulty_store, list_of, temporary, told};

const LEN: usize = 20_000;
const MANY: u64 = 40;

fn buffers(count: usize) -> Vec<AlignedBuf> {
    (0..count).map(|_| AlignedBuf::new(LEN).unwrap()).collect()
}

fn full_store(root: &Path) -> (Store, Vec<Chunk>) {
    let store = Store::create(root, Kind::Store).unwrap();
    let writer = store.writer(false).unwrap();
    let chunks = (0..MANY).map(|seed| writer.put(&content(seed, LEN)[..LEN]).unwrap().chunk().unwrap());
    let chunks = chunks.collect();
    (store, chunks)
}

/// Runs the other end on thread 0 and workers on the others.
fn with_workers(workers: usize, work: &(dyn Fn() + Sync), other_end: &(dyn Fn() + Sync)) {
    Threads.run(workers + 1, &|number| if number == 0 { other_end() } else { work() }).unwrap();
}

#[test]
fn chunks_come_in_order_or_all_of_them_in_some_order_however_few_buffers_there_are() {
    let dir = temporary();
    let (store, chunks) = full_store(dir.path());
    let sources = Sources::new(None, Some(store));
    for workers in [0, 1, 4] {
        for room in [1, 2, 7] {
            for in_order in [true, false] {
                let ahead = ReadAhead::new(&sources, &chunks, Verify::Here, in_order, buffers(room));
                with_workers(workers, &|| ahead.work(), &|| {
                    let mut seen = Vec::new();
                    let mut reader = ahead.reader();
                    while let Some(filled) = reader.next_chunk() {
                        assert!(filled.result.is_ok());
                        assert_eq!(Digest::of(&filled), chunks[filled.index].digest);
                        seen.push(filled.index);
                    }
                    if !in_order {
                        seen.sort_unstable();
                    }
                    assert!(seen.into_iter().eq(0..chunks.len()));
                });
                assert_eq!(ahead.into_buffers().len(), room);
            }
        }
    }
}

#[test]
fn buffers_may_be_given_back_by_another_thread() {
    let dir = temporary();
    let (store, chunks) = full_store(dir.path());
    let sources = Sources::new(None, Some(store));
    let ahead = ReadAhead::new(&sources, &chunks, Verify::ByCaller, true, buffers(3));
    std::thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::channel();
        scope.spawn(|| ahead.work());
        scope.spawn(|| receive.into_iter().for_each(drop));
        let mut reader = ahead.reader();
        while let Some(filled) = reader.next_chunk() {
            send.send(filled).unwrap();
        }
        drop(send);
    });
    assert_eq!(ahead.into_buffers().len(), 3);
}

#[test]
fn a_chunk_that_cannot_be_read_is_told_in_its_place_and_the_others_come() {
    let dir = temporary();
    let (store, chunks) = full_store(dir.path());
    std::fs::remove_file(store.path_of(&chunks[5].digest)).unwrap();
    let sources = Sources::new(None, Some(store));
    let ahead = ReadAhead::new(&sources, &chunks, Verify::Here, true, buffers(4));
    with_workers(2, &|| ahead.work(), &|| {
        let mut reader = ahead.reader();
        let mut bad = Vec::new();
        while let Some(filled) = reader.next_chunk() {
            bad.extend(filled.result.as_ref().err().map(|error| (filled.index, error.to_string())));
        }
        assert!(
            matches!(bad.as_slice(), [(5, text)] if text.contains(&chunks[5].digest.to_string())),
            "{bad:?}"
        );
    });
}

#[test]
fn workers_go_home_when_the_reader_does() {
    let dir = temporary();
    let (store, chunks) = full_store(dir.path());
    let sources = Sources::new(None, Some(store));
    let ahead = ReadAhead::new(&sources, &chunks, Verify::Here, true, buffers(2));
    with_workers(3, &|| ahead.work(), &|| {
        assert_eq!(ahead.reader().next_chunk().unwrap().index, 0);
    });
    assert_eq!(ahead.into_buffers().len(), 2);
}

#[test]
fn a_bad_copy_that_the_caller_finds_is_fetched_elsewhere() {
    let dir = temporary();
    let (store, chunks) = full_store(&dir.path().join("store"));
    let cache = Store::create(&dir.path().join("cache"), Kind::Cache).unwrap();
    cache.writer(false).unwrap().put_hashed(chunks[0].digest, &content(99, LEN)[..LEN]).unwrap();
    let sources = Sources::new(Some(cache), Some(store));
    let ahead = ReadAhead::new(&sources, &chunks[..1], Verify::ByCaller, true, buffers(1));
    let mut reader = ahead.reader();
    let mut filled = reader.next_chunk().unwrap();
    let found = Digest::of(&filled);
    assert_ne!(found, chunks[0].digest);
    filled.fetch_elsewhere(found);
    assert_eq!(Digest::of(&filled), chunks[0].digest);
    assert_eq!(filled.result.as_ref().unwrap().place, 1);
}

#[test]
fn what_is_written_behind_is_there_at_the_end() {
    for workers in [0, 1, 4] {
        for room in [1, 3] {
            let dir = temporary();
            let store = Store::create(&dir.path().join("store"), Kind::Store).unwrap();
            let writer = store.writer(false).unwrap();
            let behind = WriteBehind::new(&writer, buffers(room));
            with_workers(workers, &|| behind.work(), &|| {
                let mut producer = behind.producer();
                for index in 0..MANY {
                    let mut buffer = producer.buffer().unwrap();
                    // Every tenth is zeros, and some come twice and with their digest.
                    let bytes = content(index % 30, LEN);
                    buffer[..LEN].copy_from_slice(&bytes[..LEN]);
                    if index % 10 == 0 {
                        buffer.fill(0);
                    }
                    let digest = (index % 3 == 1).then(|| Digest::of(&buffer[..LEN]));
                    let zero = index % 10 == 0;
                    producer.submit(usize::try_from(index).unwrap(), buffer, LEN, digest.filter(|_| !zero));
                }
                let put = producer.finish().unwrap();
                assert!(put.iter().map(|(index, _)| *index).eq(0..40));
                assert!(put.iter().all(|(index, put)| (*put == Put::Zero) == (index % 10 == 0)));
                let chunks: BTreeSet<_> = put.iter().filter_map(|(_, put)| put.chunk()).collect();
                assert_eq!(chunks.len(), 27);
                let chunks: Vec<_> = chunks.into_iter().collect();
                writer.commit(&dir.path().join("ckpt"), 1, &list_of(&chunks)).unwrap();
            });
            assert_eq!(behind.into_buffers().len(), room);
        }
    }
}

#[test]
fn a_failure_is_told_though_others_succeed_after_it_and_is_told_again() {
    for workers in [0, 3] {
        let dir = temporary();
        // Direct writes are those of chunks.
        let store = faulty_store(dir.path(), "write.direct:5:*=ENOSPC");
        let writer = store.writer(false).unwrap();
        let behind = WriteBehind::new(&writer, buffers(8));
        with_workers(workers, &|| behind.work(), &|| {
            let mut producer = behind.producer();
            let mut submit = |index: u64| {
                let mut buffer = producer.buffer()?;
                buffer[..LEN].copy_from_slice(&content(index, LEN)[..LEN]);
                producer.submit(usize::try_from(index).unwrap(), buffer, LEN, None);
                Ok::<_, WriteError>(())
            };
            let failed = (0..MANY).find_map(|index| submit(index).err());
            for error in
                failed.into_iter().chain([producer.buffer().unwrap_err(), producer.finish().unwrap_err()])
            {
                let told = told(&error);
                assert!(
                    told.contains("No space left") && told.contains(dir.path().to_str().unwrap()),
                    "{told}"
                );
            }
        });
        assert!(common::wrong_files(dir.path()).is_empty());
    }
}

/// Memory that fails when it is looked at.
struct Rotten;

impl AsRef<[u8]> for Rotten {
    fn as_ref(&self) -> &[u8] {
        panic!("the memory is rotten, as the test wants it")
    }
}

impl AsMut<[u8]> for Rotten {
    fn as_mut(&mut self) -> &mut [u8] {
        panic!("the memory is rotten, as the test wants it")
    }
}

#[test]
fn a_worker_that_panics_does_not_leave_the_other_end_waiting() {
    let dir = temporary();
    let (store, chunks) = full_store(dir.path());
    let writer = store.writer(false).unwrap();
    let behind = WriteBehind::new(&writer, [Rotten]);
    std::thread::scope(|scope| {
        let mut producer = behind.producer();
        let buffer = producer.buffer().unwrap();
        let worker = scope.spawn(|| behind.work());
        producer.submit(0, buffer, 1, None);
        assert!(worker.join().is_err());
        assert!(matches!(producer.finish(), Err(WriteError::Worker)));
    });
    let sources = Sources::new(None, Some(store.clone()));
    let ahead = ReadAhead::new(&sources, &chunks, Verify::Here, true, [Rotten]);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| ahead.work());
        assert!(worker.join().is_err());
        assert!(ahead.reader().next_chunk().is_none());
    });
    assert_eq!(chunk_of(&content(0, LEN)[..LEN]), chunks[0]);
}
