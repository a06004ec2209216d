//! What `cuMemAlloc` and `cuMemFree` cost with the library in front of the driver, beside what they cost without.

use anyhow::{Context, Result, ensure};

use crate::machine::{Driver, Machine};
use crate::target::Target;

/// Blocks of each size, the size, and how many times the native time a call may take.
const SIZES: [(usize, &str, f64); 5] =
    [(2000, "4K", 3.0), (1000, "64K", 3.0), (200, "1M", 3.0), (100, "2M", 1.3), (10, "64M", 1.3)];
/// Rounds, of which the fastest counts: others use the machine too.
const ROUNDS: usize = 5;

/// Measures, and prints a table. On a GPU a call that takes too long is an error; the stand-in's own calls cost next to nothing, so that
/// there the table is for comparison with another one of its kind.
pub fn allocations(driver: Driver) -> Result<()> {
    let mut machine = Machine::new(driver)?;
    machine.unset("FAKECUDA_LOG");
    let start = |name: &str, preload: bool| -> Result<Target> {
        let worker = machine.worker(name).preload_if(preload).start()?;
        worker.ok("begin 0")?;
        Ok(worker)
    };
    let (native, shimmed) = (start("without", false)?, start("with", true)?);
    println!(
        "{:>6}  {:>12} {:>12} {:>6}  {:>12} {:>12} {:>6}",
        "size", "alloc ns", "with", "", "free ns", "with", ""
    );
    let mut slow = Vec::new();
    for (count, size, limit) in SIZES {
        let (mut without, mut with) = ([u64::MAX; 2], [u64::MAX; 2]);
        // In turns, so that whatever else goes on hits both.
        for _ in 0..ROUNDS {
            fastest(&mut without, &native, count, size)?;
            fastest(&mut with, &shimmed, count, size)?;
        }
        let ratio = |call: usize| -> Result<f64> {
            let (native, shimmed) = (without.get(call).context("two")?, with.get(call).context("two")?);
            Ok(f64::from(u32::try_from(*shimmed)?) / f64::from(u32::try_from((*native).max(1))?))
        };
        let ([alloc, free], [alloc_with, free_with]) = (without, with);
        let (more_alloc, more_free) = (ratio(0)?, ratio(1)?);
        println!(
            "{size:>6}  {alloc:>12} {alloc_with:>12} {more_alloc:>6.2}  {free:>12} {free_with:>12} {more_free:>6.2}"
        );
        for (call, ratio) in [("cuMemAlloc", more_alloc), ("cuMemFree", more_free)] {
            if ratio > limit {
                slow.push(format!("{call} of {size}: {ratio:.2} times native, over {limit}"));
            }
        }
    }
    ensure!(driver == Driver::StandIn || slow.is_empty(), "{}", slow.join("; "));
    Ok(())
}

fn fastest(best: &mut [u64; 2], worker: &Target, count: usize, size: &str) -> Result<()> {
    let took =
        [worker.ok(&format!("malloc-many {count} {size}"))?, worker.ok(&format!("free-many {count}"))?];
    for (best, took) in best.iter_mut().zip(took) {
        *best = took.parse::<u64>()?.min(*best);
    }
    Ok(())
}
