//! The kernels, by name. They are run on the CPU, in steps, each after a look whether its memory may be touched.
//!
//! Any image loads, and every module has all of them. They are the kernels that the programs under test bring as
//! code for a GPU, under the same names and with the same arguments.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cuda_sys::{CuError, CuResult};

use super::copy::kernel_of;
use super::hashing::{PIECE, TEXT};
use super::op::{Op, illegal};
use crate::context::Ctx;
use crate::driver::Driver;
use crate::memory::space::{Agent, Fault};

/// Words between two looks at the address space.
const STEP: usize = 1 << 18;
/// Arguments a kernel has at most.
pub(crate) const ARGUMENTS: usize = 6;

macro_rules! kernels {
    ($($(#[$doc:meta])* $kernel:ident $name:literal($($size:literal),*);)*) => {
        /// A kernel by its name.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Kernel {
            $($(#[$doc])* $kernel,)*
        }

        impl Kernel {
            /// Every kernel there is.
            pub(crate) const ALL: &[Self] = &[$(Self::$kernel),*];

            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$kernel => $name,)*
                }
            }

            /// Bytes of each argument.
            pub(crate) const fn arguments(self) -> &'static [usize] {
                match self {
                    $(Self::$kernel => &[$($size),*],)*
                }
            }
        }
    };
}

kernels! {
    /// `p[i] = v`: p, n, v.
    Fill "fill"(8, 8, 4);
    /// `p[i] += v`: p, n, v.
    Add "add"(8, 8, 4);
    /// `p[i] = what looks like chance`: p, n, seed.
    Noise "noise"(8, 8, 4);
    /// `dst[i] = src[i]`: dst, src, n.
    Copy "copy"(8, 8, 8);
    /// `*out += sum of p[i] * (i + 1)`: p, n, out.
    Checksum "checksum"(8, 8, 8);
    /// Completes once `*flag >= value`: flag, value.
    WaitFlag "wait_flag"(8, 4);
    /// Runs for this long: ns.
    Spin "spin"(8);
    /// `*counter += 1`: counter.
    Increment "increment"(8);
    /// Sums one buffer of each rank into all of them: bufs, flags, n, rank, ranks, epoch.
    AllReduce "allreduce"(8, 8, 8, 4, 4, 4);
    /// Hashes the leaves of many pieces: pieces, nodes, nonzero.
    HashLeaves "nvsnap_hash_leaves"(8, 8, 8);
    /// Folds what the leaves gave to digests: texts, nodes, digests.
    HashRoots "nvsnap_hash_roots"(8, 8, 8);
    /// Does nothing.
    Empty "empty"();
}

impl Kernel {
    /// A kernel that is done when it starts.
    pub(crate) fn does_nothing(self) -> bool {
        self == Self::Empty
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kernel| kernel.name() == name)
    }
}

/// A kernel with its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch {
    pub(crate) kernel: Kernel,
    pub(crate) arguments: [u64; ARGUMENTS],
    /// Blocks in each direction.
    pub(crate) grid: [u32; 3],
}

/// What a running kernel sees of the machine.
pub(super) struct Run {
    pub(super) driver: &'static Driver,
    context: &'static Ctx,
    pub(super) agent: Agent,
}

impl Launch {
    /// Ranges of memory that the arguments name. What a table of pointers leads to is not among them.
    pub(super) fn touches(&self, range: &mut dyn FnMut(usize, usize)) {
        let [a, b, c, _, e, _] = self.arguments.map(crate::args::size);
        let [columns, rows, _] = self.blocks();
        match self.kernel {
            Kernel::Fill | Kernel::Add | Kernel::Noise => range(a, b.saturating_mul(4)),
            Kernel::Copy => {
                range(a, c.saturating_mul(4));
                range(b, c.saturating_mul(4));
            }
            Kernel::Checksum => {
                range(a, b.saturating_mul(4));
                range(c, 8);
            }
            Kernel::WaitFlag => range(a, 4),
            Kernel::Increment => range(a, 8),
            Kernel::AllReduce => {
                range(a, e.saturating_mul(8));
                range(b, e.saturating_mul(8));
            }
            Kernel::HashLeaves => {
                range(a, rows.saturating_mul(PIECE));
                range(c, rows.saturating_mul(4));
            }
            Kernel::HashRoots => {
                range(a, columns.saturating_mul(TEXT));
                range(c, columns.saturating_mul(32));
            }
            Kernel::Spin | Kernel::Empty => {}
        }
    }

    fn blocks(&self) -> [usize; 3] {
        self.grid.map(|blocks| usize::try_from(blocks).unwrap_or(usize::MAX))
    }

    pub(super) fn run(&self, driver: &'static Driver, context: &'static Ctx) -> CuResult {
        let run = Run { driver, context, agent: kernel_of(context) };
        let result = self.compute(&run);
        driver.machine.changed();
        result.map_err(|fault| match fault {
            Stop::Fault(fault) => illegal(&Op::Kernel(*self), fault),
            Stop::Misaligned => CuError::MISALIGNED_ADDRESS,
            Stop::Ended => CuError::CONTEXT_IS_DESTROYED,
        })
    }

    fn compute(&self, run: &Run) -> Result<(), Stop> {
        let [a, b, c, ..] = self.arguments.map(crate::args::size);
        let [_, second, third, fourth, fifth, sixth] = self.arguments.map(narrow);
        let [columns, rows, _] = self.blocks();
        match self.kernel {
            Kernel::Empty => Ok(()),
            Kernel::Fill => run.words(a, b, true, |_, word| word.store(third, Ordering::Relaxed)),
            Kernel::Add => run.words(a, b, true, |_, word| {
                let value = word.load(Ordering::Relaxed);
                word.store(value.wrapping_add(third), Ordering::Relaxed);
            }),
            Kernel::Noise => {
                run.words(a, b, true, |at, word| word.store(noise(at, third), Ordering::Relaxed))
            }
            Kernel::Copy => run.copy(a, b, c),
            Kernel::Checksum => {
                let sum = run.checksum(a, b)?;
                run.double_word(c, |word| word.fetch_add(sum, Ordering::Relaxed)).map(|_| ())
            }
            Kernel::WaitFlag => run.wait_flag(a, second),
            Kernel::Spin => {
                let end = Instant::now() + Duration::from_nanos(self.arguments.first().copied().unwrap_or(0));
                run.until(|| Ok(Instant::now() >= end))
            }
            Kernel::Increment => run.double_word(a, |word| word.fetch_add(1, Ordering::SeqCst)).map(|_| ()),
            Kernel::AllReduce => run.all_reduce(a, b, c, fourth, fifth, sixth),
            Kernel::HashLeaves => run.hash_leaves(a, b, c, rows),
            Kernel::HashRoots => run.hash_roots(a, b, c, columns),
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "an argument of 32 bits stands in the low half")]
const fn narrow(value: u64) -> u32 {
    value as u32
}

/// The word at an index, as `noise` of `tests/kernels` computes it.
fn noise(index: u64, seed: u32) -> u32 {
    let (low, high) = (narrow(index), narrow(index >> 32));
    let mut x = low.wrapping_mul(0x9E37_79B1).wrapping_add(high.wrapping_mul(0x85EB_CA77)).wrapping_add(seed);
    x = (x ^ x >> 16).wrapping_mul(0x7FEB_352D);
    x = (x ^ x >> 15).wrapping_mul(0x846C_A68B);
    x ^ x >> 16
}

/// Why a kernel ends before its end.
#[derive(Debug)]
pub(super) enum Stop {
    Fault(Fault),
    Misaligned,
    /// Its context was destroyed while it waited.
    Ended,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Run {
    /// Calls `each` with the index and the word for `count` words of memory.
    pub(super) fn words(
        &self,
        at: usize,
        count: usize,
        write: bool,
        mut each: impl FnMut(u64, &AtomicU32),
    ) -> Result<(), Stop> {
        if !at.is_multiple_of(4) {
            return Err(Stop::Misaligned);
        }
        let mut index = 0_u64;
        for start in (0..count).step_by(STEP) {
            let size = STEP.min(count - start) * 4;
            let space = crate::read(&self.driver.memory.space);
            space.walk(at + start * 4, size, self.agent, write, |place, length| {
                // SAFETY: the piece has `length` bytes, is aligned to a word, and the space is locked. Others may write to it at the
                // same time, in this process and in others: hence atomics.
                let words = unsafe { std::slice::from_raw_parts(place.cast::<AtomicU32>(), length / 4) };
                for word in words {
                    each(index, word);
                    index += 1;
                }
            })?;
            if write {
                space.spread(at + start * 4, size, self.agent)?;
            }
        }
        Ok(())
    }

    fn double_word<T>(&self, at: usize, with: impl Fn(&AtomicU64) -> T) -> Result<T, Stop> {
        if !at.is_multiple_of(8) {
            return Err(Stop::Misaligned);
        }
        let mut result = None;
        crate::read(&self.driver.memory.space).write(at, 8, self.agent, |place, _| {
            // SAFETY: the piece has 8 bytes, is aligned, and the space is locked.
            result = Some(with(unsafe { &*place.cast::<AtomicU64>() }));
        })?;
        result.ok_or(Stop::Misaligned)
    }

    fn word(&self, at: usize) -> Result<u32, Stop> {
        let mut value = 0;
        self.words(at, 1, false, |_, word| value = word.load(Ordering::Acquire))?;
        Ok(value)
    }

    pub(super) fn pointers(&self, at: usize, count: usize) -> Result<Vec<usize>, Stop> {
        let mut halves = Vec::with_capacity(count * 2);
        self.words(at, count * 2, false, |_, word| halves.push(word.load(Ordering::Relaxed)))?;
        let join = |half: &[u32]| match half {
            [low, high] => crate::args::size(u64::from(*low) | u64::from(*high) << 32),
            _ => 0,
        };
        Ok(halves.chunks_exact(2).map(join).collect())
    }

    fn copy(&self, to: usize, from: usize, count: usize) -> Result<(), Stop> {
        let mut buffer = Vec::with_capacity(STEP.min(count));
        for start in (0..count).step_by(STEP) {
            let size = STEP.min(count - start);
            buffer.clear();
            self.words(from + start * 4, size, false, |_, word| buffer.push(word.load(Ordering::Relaxed)))?;
            let mut values = buffer.iter();
            self.words(to + start * 4, size, true, |_, word| {
                word.store(values.next().copied().unwrap_or(0), Ordering::Relaxed);
            })?;
        }
        Ok(())
    }

    fn checksum(&self, at: usize, count: usize) -> Result<u64, Stop> {
        let mut sum = 0_u64;
        self.words(at, count, false, |index, word| {
            sum = sum.wrapping_add(u64::from(word.load(Ordering::Relaxed)).wrapping_mul(index + 1));
        })?;
        Ok(sum)
    }

    /// Waits until `done`, which may fail; gives up when the context ends.
    fn until(&self, mut done: impl FnMut() -> Result<bool, Stop>) -> Result<(), Stop> {
        let life = self.context.life();
        let mut result = Ok(());
        self.driver.machine.wait_until(|| match done() {
            Ok(false) if self.context.life() == life => false,
            Ok(false) => {
                result = Err(Stop::Ended);
                true
            }
            Ok(true) => true,
            Err(stop) => {
                result = Err(stop);
                true
            }
        });
        result
    }

    fn wait_flag(&self, flag: usize, value: u32) -> Result<(), Stop> {
        self.until(|| Ok(self.word(flag)? >= value))
    }

    /// Everybody's input is there; each rank sums its slice into all buffers; everybody's slice is written.
    fn all_reduce(
        &self,
        buffers: usize,
        flags: usize,
        count: usize,
        rank: u32,
        ranks: u32,
        epoch: u32,
    ) -> Result<(), Stop> {
        let rank = usize::try_from(rank).unwrap_or(usize::MAX);
        let ranks = usize::try_from(ranks).unwrap_or(0);
        let buffers = self.pointers(buffers, ranks)?;
        let flags = self.pointers(flags, ranks)?;
        let own_flags = flags.get(rank).copied().ok_or(Stop::Misaligned)?;
        self.meet(own_flags, &flags, 0, epoch)?;
        let slice = count.div_ceil(ranks);
        let start = (slice * rank).min(count);
        let end = (slice * (rank + 1)).min(count);
        let mut sums = vec![0_u32; end - start];
        for buffer in &buffers {
            let mut sums = sums.iter_mut();
            self.words(buffer + start * 4, end - start, false, |_, word| {
                if let Some(sum) = sums.next() {
                    *sum = sum.wrapping_add(word.load(Ordering::Relaxed));
                }
            })?;
        }
        for buffer in &buffers {
            let mut sums = sums.iter();
            self.words(buffer + start * 4, end - start, true, |_, word| {
                word.store(sums.next().copied().unwrap_or(0), Ordering::Relaxed);
            })?;
        }
        self.meet(own_flags, &flags, 4, epoch)
    }

    /// Raises the own flag and waits for all others.
    fn meet(&self, own: usize, all: &[usize], offset: usize, epoch: u32) -> Result<(), Stop> {
        self.words(own + offset, 1, true, |_, word| word.store(epoch, Ordering::SeqCst))?;
        self.driver.machine.changed();
        all.iter().try_for_each(|flags| self.wait_flag(flags + offset, epoch))
    }
}
