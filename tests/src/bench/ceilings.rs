//! What the hardware gives when nothing of ours is in the way: the bus, memory, a folder.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::target::Target;

/// More threads than this move no more bytes: the library has no more either.
const MOST: usize = 16;
/// Bytes of a file: a chunk of the store.
const CHUNK: usize = 64 << 20;

/// As many threads as the library has: one per processor.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MOST)
}

/// Time for some bytes out of GPU memory, or out of a process, and back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) bytes: u64,
    pub(super) out: Duration,
    pub(super) back: Duration,
}

/// Page-locked copies of one process.
pub(super) fn bus(worker: &Target, bytes: u64) -> Result<Bound> {
    let answer = worker.ok(&format!("bus {bytes}"))?;
    let (out, back) = answer.split_once(' ').with_context(|| answer.clone())?;
    let nanoseconds = |text: &str| Ok::<_, anyhow::Error>(Duration::from_nanos(text.parse()?));
    Ok(Bound { bytes, out: nanoseconds(out)?, back: nanoseconds(back)? })
}

/// Memory: huge pages that are touched for the first time, and then read.
pub(super) fn memory(bytes: u64) -> Result<Bound> {
    let mut arena = Arena::new(usize::try_from(bytes)?)?;
    let each = arena.bytes().len().div_ceil(threads());
    let out = timed(arena.bytes().chunks_mut(each), |_, part| {
        part.fill(0x5a);
        Ok(())
    })?;
    let back = timed(arena.bytes().chunks(each), |_, part| {
        let sum = part.iter().step_by(64).fold(0_u64, |sum, byte| sum + u64::from(*byte));
        if sum == 0 { bail!("memory lost its bytes") } else { Ok(()) }
    })?;
    Ok(Bound { bytes, out, back })
}

/// Files of a chunk each below `folder`, written and read past the page cache where the file system lets us.
pub(super) fn folder(folder: &Path, bytes: u64) -> Result<Bound> {
    let threads = threads();
    let each = usize::try_from(bytes)?.div_ceil(CHUNK * threads);
    let own = tempfile::Builder::new().prefix("nvsnap-bench-").tempdir_in(folder)?;
    let path = |thread: usize, number: usize| own.path().join(format!("{thread}-{number}"));
    let mut arena = Arena::new(threads * CHUNK)?;
    let out = timed(arena.bytes().chunks_mut(CHUNK), |thread, bytes| {
        bytes.fill(u8::try_from(thread + 1)?);
        for number in 0..each {
            let mut file = open(path(thread, number), OpenOptions::new().write(true).create_new(true))?;
            file.write_all(bytes)?;
            file.sync_data()?;
        }
        Ok(())
    })?;
    let back = timed(arena.bytes().chunks_mut(CHUNK), |thread, bytes| {
        (0..each).try_for_each(|number| {
            Ok(open(path(thread, number), OpenOptions::new().read(true))?.read_exact(bytes)?)
        })
    })?;
    Ok(Bound { bytes: (each * threads * CHUNK) as u64, out, back })
}

fn open(path: PathBuf, options: &mut OpenOptions) -> Result<File> {
    let direct = options.clone().custom_flags(libc::O_DIRECT).open(&path);
    direct.or_else(|_| options.open(&path)).with_context(|| path.display().to_string())
}

/// Runs `work` on each part in a thread of its own, and says how long the whole took.
fn timed<T: Send>(
    parts: impl Iterator<Item = T>,
    work: impl Fn(usize, T) -> Result<()> + Sync,
) -> Result<Duration> {
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            parts.enumerate().map(|(number, part)| scope.spawn(move || work(number, part))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => bail!("a thread of the benchmark panicked"),
        })
    })?;
    Ok(begin.elapsed())
}

/// Memory of our own, in huge pages, page-aligned as direct input and output wants it.
struct Arena(*mut u8, usize);

impl Arena {
    fn new(len: usize) -> Result<Self> {
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, kind) }?;
        // A kernel without huge pages is slower, which is then what is measured.
        // SAFETY: the mapping just made.
        let _ = unsafe { madvise(base, len, Advice::LinuxHugepage) };
        Ok(Self(base.cast(), len))
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping that `new` made, ours alone.
        unsafe { std::slice::from_raw_parts_mut(self.0, self.1) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made.
        let _ = unsafe { munmap(self.0.cast(), self.1) };
    }
}
