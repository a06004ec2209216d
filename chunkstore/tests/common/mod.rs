//! What the tests share.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(unreachable_pub, reason = "a module of a test program")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

pub mod children;
pub mod memory;
pub mod scene;
pub mod turns;
pub mod walls;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chunkstore::layer::FileLayer;
use chunkstore::{AlignedBuf, Chunk, Digest, Extent, FaultPlan, Faulty, Kind, List, Object, Store, System};

/// A directory that goes when the test ends.
pub fn temporary() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("chunks with ünïcode ").tempdir().unwrap()
}

/// A directory in memory, where there is one: for tests that sync a thousand times.
pub fn quick() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        return temporary();
    }
    tempfile::Builder::new().prefix("chunks ").tempdir_in(shm).unwrap()
}

/// The real file system with these faults.
pub fn faulty(plan: &str) -> Arc<dyn FileLayer> {
    Arc::new(Faulty::new(System, FaultPlan::parse(plan).unwrap()))
}

/// A new store on the real file system with these faults.
pub fn faulty_store(root: &Path, plan: &str) -> Store {
    Store::create(root, Kind::Store).unwrap();
    Store::open_on(faulty(plan), root, Kind::Store).unwrap()
}

/// Bytes that differ for each seed and are the same every time.
pub fn content(seed: u64, len: usize) -> AlignedBuf {
    let mut buffer = AlignedBuf::new(len).unwrap();
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut buffer[..len]);
    buffer
}

pub fn chunk_of(bytes: &[u8]) -> Chunk {
    Chunk { digest: Digest::of(bytes), len: bytes.len().try_into().unwrap() }
}

/// A list with one object that is made of these chunks.
pub fn list_of(chunks: &[Chunk]) -> List {
    let extents = (0..).zip(chunks).map(|(index, chunk)| Extent::Chunk { index, offset: 0, len: chunk.len });
    let size = chunks.iter().map(|chunk| u64::from(chunk.len)).sum();
    List::new(chunks.to_vec(), vec![Object { id: [1; 16], size, extents: extents.collect() }]).unwrap()
}

/// All regular files below a directory.
pub fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(files_below(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

/// Files that are neither marker nor lease nor a chunk with the bytes that its name says.
pub fn wrong_files(root: &Path) -> Vec<PathBuf> {
    let right = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name == "nvsnap-chunks"
            || path.parent().unwrap().ends_with("leases")
            || name == Digest::of(&std::fs::read(path).unwrap()).to_string()
    };
    files_below(root).into_iter().filter(|path| !right(path)).collect()
}

/// The error with all its causes in one line, as a program prints it.
pub fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
