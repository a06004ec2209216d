//! What hashing, storing and reading cost, beside bare direct I/O on the same files.
//!
//! `cargo bench -p chunkstore` prints criterion's figures and then a table: how fast the store is compared with
//! plain `O_DIRECT` reads and writes by the same number of threads, taken in turns in one run. It works in
//! `/dev/shm`, or in `CHUNKSTORE_BENCH_DIR`.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a bench that panics has failed, as it should"
)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use chunkstore::{AlignedBuf, CHUNK_BYTES, Chunk, Digest, Executor, Kind, Store, Threads, Writer, is_zero};
use criterion::{BatchSize, Criterion, SamplingMode, Throughput};
use rustix::fs::{Mode, OFlags};

const LEN: usize = CHUNK_BYTES as usize;

fn bench_dir() -> tempfile::TempDir {
    let dir =
        std::env::var_os("CHUNKSTORE_BENCH_DIR").map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
    tempfile::tempdir_in(dir).unwrap()
}

fn full_chunk(seed: u64) -> AlignedBuf {
    let mut buffer = AlignedBuf::new(LEN).unwrap();
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut buffer);
    buffer
}

/// A digest that no chunk has yet: the store does not ask whether it is right.
fn fresh_digest() -> Digest {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    Digest::of(&NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes())
}

/// Direct, or through the page cache where the file system has no other way.
fn open(path: &Path, flags: OFlags) -> rustix::fd::OwnedFd {
    let mode = Mode::RUSR | Mode::WUSR;
    let direct = rustix::fs::open(path, flags | OFlags::DIRECT, mode);
    direct.or_else(|_| rustix::fs::open(path, flags.difference(OFlags::EXCL), mode)).unwrap()
}

fn bare_write(path: &Path, bytes: &[u8]) {
    let file = open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL);
    assert_eq!(rustix::io::pwrite(&file, bytes, 0).unwrap(), bytes.len());
    rustix::fs::fdatasync(&file).unwrap();
}

fn bare_read(path: &Path, into: &mut [u8]) {
    let file = open(path, OFlags::RDONLY);
    let len = into.len();
    assert_eq!(rustix::io::pread(&file, into, 0).unwrap(), len);
}

fn store_write(writer: &Writer, bytes: &[u8]) -> Chunk {
    writer.put_hashed(fresh_digest(), bytes).unwrap().chunk().unwrap()
}

fn criterion_figures(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a chunk of 64 MiB");
    group.throughput(Throughput::Bytes(CHUNK_BYTES.into())).sampling_mode(SamplingMode::Flat);
    group.sample_size(10).measurement_time(Duration::from_secs(3)).warm_up_time(Duration::from_millis(500));
    let (bytes, zeros) = (full_chunk(1), AlignedBuf::new(LEN).unwrap());
    group.bench_function("hash", |b| b.iter(|| Digest::of(&bytes)));
    group.bench_function("look whether it is zero", |b| b.iter(|| is_zero(&zeros)));

    let dir = bench_dir();
    let store = Store::create(dir.path(), Kind::Store).unwrap();
    let writer = store.writer(false).unwrap();
    let chunk = writer.put(&bytes).unwrap().chunk().unwrap();
    group.bench_function("find it in the store", |b| b.iter(|| assert!(writer.claim(&chunk).unwrap())));
    let remove = |chunk: Chunk| std::fs::remove_file(store.path_of(&chunk.digest)).unwrap();
    group.bench_function("put, hashed by the caller", |b| {
        b.iter_batched(|| (), |()| remove(store_write(&writer, &bytes)), BatchSize::PerIteration);
    });
    let mut into = AlignedBuf::new(LEN).unwrap();
    group.bench_function("get, verified by the caller", |b| {
        b.iter(|| store.get_unverified(&chunk, &mut into).unwrap());
    });
    group.bench_function("get", |b| b.iter(|| store.get(&chunk, &mut into).unwrap()));
    group.finish();
}

/// Has each thread do `work` once with a buffer of its own, and says how many bytes a second that was.
fn rate(buffers: &[std::sync::Mutex<AlignedBuf>], work: &(dyn Fn(usize, &mut AlignedBuf) + Sync)) -> f64 {
    let begun = Instant::now();
    Threads.run(buffers.len(), &|number| work(number, &mut buffers[number].lock().unwrap())).unwrap();
    let bytes: f64 = (0..buffers.len()).map(|_| f64::from(CHUNK_BYTES)).sum();
    bytes / begun.elapsed().as_secs_f64()
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn side_by_side() {
    println!("{:>8} {:>22} {:>22}", "threads", "write: store / bare", "read: store / bare");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for threads in [1, 2, 4, 8, 16].into_iter().filter(|threads| *threads <= 2 * cores as u64) {
        let buffers: Vec<_> = (0..threads).map(|seed| std::sync::Mutex::new(full_chunk(seed))).collect();
        let dir = bench_dir();
        let store = Store::create(&dir.path().join("store"), Kind::Store).unwrap();
        let writer = store.writer(false).unwrap();
        let bare = |number: usize| dir.path().join(format!("bare-{number}"));
        let chunks: Vec<_> = buffers.iter().map(|_| std::sync::Mutex::new(None)).collect();
        let mut figures: [Vec<f64>; 4] = Default::default();
        for _ in 0..9 {
            figures[0].push(rate(&buffers, &|number, buffer| {
                *chunks[number].lock().unwrap() = Some(store_write(&writer, buffer));
            }));
            figures[1].push(rate(&buffers, &|number, buffer| bare_write(&bare(number), buffer)));
            figures[2].push(rate(&buffers, &|number, buffer| {
                store.get_unverified(&chunks[number].lock().unwrap().unwrap(), buffer).unwrap();
            }));
            figures[3].push(rate(&buffers, &|number, buffer| bare_read(&bare(number), buffer)));
            for (number, chunk) in chunks.iter().enumerate() {
                std::fs::remove_file(bare(number)).unwrap();
                let chunk = chunk.lock().unwrap().take().unwrap();
                std::fs::remove_file(store.path_of(&chunk.digest)).unwrap();
            }
        }
        let [write, bare_write, read, bare_read] = figures.map(median);
        let cell = |ours: f64, bare: f64| {
            format!("{:.1} / {:.1} GB/s {:>3.0}%", ours / 1e9, bare / 1e9, 100.0 * ours / bare)
        };
        println!("{threads:>8} {:>22} {:>22}", cell(write, bare_write), cell(read, bare_read));
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    criterion_figures(&mut criterion);
    criterion.final_summary();
    // `cargo test` runs benches too, to see that they work; the table is for `cargo bench`.
    if std::env::args().any(|argument| argument == "--bench") {
        side_by_side();
    }
}
