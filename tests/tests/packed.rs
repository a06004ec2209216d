//! Small allocations that share chunks: the device hashes them where they lie, so that only what has changed crosses
//! the bus.
#![allow(clippy::indexing_slicing, reason = "a test that cannot go on fails, and says where")]

mod depot;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use integration::{Machine, Outcome, Target};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use depot::{chunks, fates};

const MIB: u64 = 1 << 20;
const CHUNK: u64 = 64 * MIB;

/// A worker with small allocations, and where it is saved to.
struct Hoard {
    machine: Machine,
    worker: Target,
    sizes: Vec<u64>,
}

impl Hoard {
    /// With buffers of these sizes in MiB, each of bytes that look like chance.
    fn new(sizes: &[u64]) -> Result<Self> {
        let machine = Machine::stand_in()?;
        let worker = machine.worker("a").preload().start()?;
        worker.ok("begin 0")?;
        for (number, size) in sizes.iter().enumerate() {
            worker.ok(&format!("new {number} {size}M device:0"))?;
            worker.ok(&format!("noise {number} 0 {size}M {}", number + 1))?;
        }
        Ok(Self { machine, worker, sizes: sizes.to_vec() })
    }

    fn store(&self) -> PathBuf {
        self.machine.path("store")
    }

    fn suspend(&self) -> Result<Outcome> {
        let tool = self.machine.tool().option("--json").option("--store").argument(self.store());
        let tool = tool.option("--ckpt-dir").argument(self.machine.path("ckpt"));
        tool.verb("suspend", &[self.worker.pid()])?.done()
    }

    /// Suspends, and tells how many bytes the driver was asked to copy from the device for it.
    fn copied_by_suspend(&self) -> Result<u64> {
        let before = self.machine.calls(self.worker.pid())?.len();
        self.suspend()?;
        let mut copied = 0;
        for call in &self.machine.calls(self.worker.pid())?[before..] {
            if call.name.starts_with("cuMemcpyDtoH") {
                let len = call.arguments.split(", ").nth(2).with_context(|| format!("{call:?}"))?;
                copied += len.parse::<u64>().with_context(|| format!("{call:?}"))?;
            }
        }
        Ok(copied)
    }

    fn resume(&self) -> Result<()> {
        self.machine.resume(&[self.worker.pid()])?.done().map(drop)
    }

    /// The first and the last word of every buffer.
    fn look(&self) -> Result<Vec<String>> {
        let mut words = Vec::new();
        for (number, size) in self.sizes.iter().enumerate() {
            for at in [0, size * MIB - 4] {
                words.push(self.worker.ok(&format!("read {number} {at} 4"))?);
            }
        }
        Ok(words)
    }

    /// Insists that the name of every chunk is the digest of its bytes, as the processor computes it.
    fn is_sound(&self) -> Result<()> {
        let verify = self.machine.tool().option("--json").option("store-verify").argument(self.store());
        let summary = verify.run()?.done()?.events()?.pop().context("a summary")?;
        let good = summary["counts"]["good"]["files"].as_u64();
        ensure!(summary["counts"]["bad"] == 0 && good == Some(self.chunks()?), "{summary}");
        Ok(())
    }

    fn chunks(&self) -> Result<u64> {
        Ok(u64::try_from(chunks(&self.store())?.len())?)
    }
}

#[test]
fn a_second_checkpoint_of_small_allocations_that_have_not_changed_copies_nothing() -> Result<()> {
    // As NCCL makes them.
    let sizes: Vec<u64> = (0..100).map(|number| if number % 5 == 4 { 10 } else { 2 }).collect();
    let all = sizes.iter().sum::<u64>() * MIB;
    let hoard = Hoard::new(&sizes)?;
    let words = hoard.look()?;
    let first = hoard.copied_by_suspend()?;
    ensure!((all..all + CHUNK).contains(&first), "{first} bytes of {all} were copied");
    hoard.is_sound()?;
    hoard.resume()?;
    ensure!(hoard.look()? == words);
    let written = chunks(&hoard.store())?;

    let second = hoard.copied_by_suspend()?;
    ensure!(second == 0, "{second} bytes were copied of memory that the store has");
    ensure!(chunks(&hoard.store())?.keys().eq(written.keys()), "other chunks");
    hoard.resume()?;
    ensure!(hoard.look()? == words);

    // One byte: one chunk.
    hoard.worker.ok("write 50 70001 55")?;
    let third = hoard.copied_by_suspend()?;
    ensure!(third > 0 && third <= CHUNK, "{third} bytes were copied for one that was changed");
    hoard.is_sound()?;
    hoard.resume()?;
    ensure!(hoard.worker.ok("read 50 70001 1")? == "55" && hoard.look()? == words);
    Ok(())
}

#[test]
fn equal_chunks_are_copied_once() -> Result<()> {
    let hoard = Hoard::new(&[64, 64, 64])?;
    for number in 0..3 {
        hoard.worker.ok(&format!("noise {number} 0 64M 7"))?;
    }
    let words = hoard.look()?;
    let copied = hoard.copied_by_suspend()?;
    ensure!((CHUNK..CHUNK + 32 * MIB).contains(&copied), "{copied} bytes were copied");
    hoard.is_sound()?;
    hoard.resume()?;
    ensure!(hoard.look()? == words);
    Ok(())
}

#[test]
fn any_mix_of_sizes_is_hashed_as_the_processor_hashes_it() -> Result<()> {
    let case = |sizes: Vec<u64>| -> Result<()> {
        let hoard = Hoard::new(&sizes)?;
        let words = hoard.look()?;
        let [moved, ..] = fates(&hoard.suspend()?, "save")?;
        let all = sizes.iter().sum::<u64>() * MIB;
        ensure!((all..all + CHUNK).contains(&moved), "{moved} bytes of {all} were moved");
        hoard.is_sound()?;
        hoard.resume()?;
        let again = hoard.copied_by_suspend()?;
        ensure!(again == 0, "{again} bytes were copied again");
        hoard.resume()?;
        ensure!(hoard.look()? == words);
        Ok(())
    };
    let size = prop_oneof![4 => 1..8_u64, 1 => 8..40_u64].prop_map(|grains| 2 * grains);
    let config = Config { cases: 6, failure_persistence: None, max_shrink_iters: 20, ..Config::default() };
    let mixes = prop::collection::vec(size, 1..16);
    TestRunner::new(config)
        .run(&mixes, |sizes| case(sizes).map_err(|error| TestCaseError::fail(format!("{error:#}"))))
        .map_err(|error| anyhow::anyhow!("{error}"))
}
