//! A page that the processes of a load and their harness share: how far each has come, when to end, and whose turn it is.
//!
//! It stands for what the ranks of a server tell each other by sockets or host memory. The harness reads it without asking
//! anybody, so that it sees at once whether a load goes on.

use std::fs::File;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use anyhow::{Context, Result, bail};
use rustix::mm::{MapFlags, ProtFlags, mmap};

/// Ranks that a board has room for.
const RANKS: usize = 16;
const SIZE: usize = 4096;
/// No round is the last one yet.
const OPEN_END: u64 = u64::MAX;

#[derive(Debug)]
#[repr(C)]
struct Page {
    halt: AtomicU32,
    last: AtomicU64,
    ranks: [Rank; RANKS],
}

#[derive(Debug)]
#[repr(C, align(64))]
struct Rank {
    launched: AtomicU64,
    checked: AtomicU64,
    token: AtomicU32,
}

/// The page, mapped.
#[derive(Debug)]
pub struct Board {
    page: NonNull<Page>,
}

// SAFETY: the page consists of atomics and stays mapped.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

impl Board {
    /// Makes the file of a board, and maps it.
    pub fn create(path: &Path) -> Result<Self> {
        File::create(path)?.set_len(u64::try_from(SIZE)?)?;
        let board = Self::open(path)?;
        board.page().last.store(OPEN_END, Ordering::SeqCst);
        Ok(board)
    }

    /// Maps a board that somebody has made.
    pub fn open(path: &Path) -> Result<Self> {
        const { assert!(size_of::<Page>() <= SIZE) };
        let file =
            File::options().read(true).write(true).open(path).with_context(|| path.display().to_string())?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let page = unsafe { mmap(std::ptr::null_mut(), SIZE, protection, MapFlags::SHARED, &file, 0) }?;
        Ok(Self { page: NonNull::new(page.cast()).context("mapped at zero")? })
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped for as long as the process lives, large enough, and valid whatever the bytes are.
        unsafe { self.page.as_ref() }
    }

    fn rank(&self, rank: usize) -> Result<&Rank> {
        self.page().ranks.get(rank).with_context(|| format!("a board has no rank {rank}"))
    }

    /// Asks the load to come to its end; rank 0 decides where that is.
    pub fn halt(&self) {
        self.page().halt.store(1, Ordering::SeqCst);
    }

    /// Whether the load was asked to end.
    pub fn is_halted(&self) -> bool {
        self.page().halt.load(Ordering::SeqCst) != 0
    }

    /// Makes `round` the last one, unless one is already.
    pub fn end_with(&self, round: u64) {
        let last = &self.page().last;
        let _ = last.compare_exchange(OPEN_END, round, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// The last round of all ranks.
    pub fn last(&self) -> u64 {
        self.page().last.load(Ordering::SeqCst)
    }

    /// Tells how many rounds a rank has begun.
    pub fn set_launched(&self, rank: usize, round: u64) -> Result<()> {
        self.rank(rank)?.launched.store(round, Ordering::SeqCst);
        Ok(())
    }

    /// How many rounds a rank has begun.
    pub fn launched(&self, rank: usize) -> Result<u64> {
        Ok(self.rank(rank)?.launched.load(Ordering::SeqCst))
    }

    /// Tells how many rounds a rank has seen to be right.
    pub fn set_checked(&self, rank: usize, round: u64) -> Result<()> {
        self.rank(rank)?.checked.store(round, Ordering::SeqCst);
        Ok(())
    }

    /// How many rounds a rank has seen to be right.
    pub fn checked(&self, rank: usize) -> Result<u64> {
        Ok(self.rank(rank)?.checked.load(Ordering::SeqCst))
    }

    /// A message of a rank to whoever waits for it: that it has come to this round.
    pub fn tell(&self, rank: usize, round: u64) -> Result<()> {
        let token = &self.rank(rank)?.token;
        token.store(u32::try_from(round)?, Ordering::SeqCst);
        rustix::thread::futex::wake(token, rustix::thread::futex::Flags::empty(), u32::MAX)?;
        Ok(())
    }

    /// Waits for the message of a rank that it has come to `round`.
    pub fn hear(&self, rank: usize, round: u64) -> Result<()> {
        let token = &self.rank(rank)?.token;
        loop {
            let seen = token.load(Ordering::SeqCst);
            if u64::from(seen) >= round {
                return Ok(());
            }
            match rustix::thread::futex::wait(token, rustix::thread::futex::Flags::empty(), seen, None) {
                Ok(()) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(error) => bail!("futex: {error}"),
            }
        }
    }
}
