//! Two processes that share two large buffers, through many cycles, with the time that each command took.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::machine::Driver;
use crate::stage::{Actor, Stage};

/// Plays it, and prints what the commands print. Every cycle both processes change both buffers, and both see the same
/// checksums.
pub fn endure(driver: Driver, mib: u64, cycles: usize) -> Result<()> {
    let mut stage = Stage::new(driver, true)?;
    if driver == Driver::StandIn {
        stage.machine_mut().set("FAKECUDA_MEMORY", (16_u64 << 30).to_string());
    }
    let (a, b) = (stage.worker("a")?, stage.worker("b")?);
    for (owner, other, name) in [(&a, &b, "left"), (&b, &a, "right")] {
        owner.all(&[&format!("new {name} {mib}M device:0 fd"), &format!("export {name} {name}")])?;
        owner.ok(&format!("fill {name} 0 {mib}M 1"))?;
        owner.hand(name, other)?;
        other.all(&[&format!("import {name} {name}"), &format!("show {name} {mib}M")])?;
    }
    for cycle in 1..=cycles {
        change(&[&a, &b], mib, cycle)?;
        let before = sums(&a, &b, mib)?;
        let pids = [a.pid(), b.pid()];
        for verb in ["suspend", "resume"] {
            let begin = Instant::now();
            let outcome = stage.machine().tool().verb(verb, &pids)?.done()?;
            println!("cycle {cycle}: {verb} took {:.2} s", begin.elapsed().as_secs_f64());
            print!("{}", outcome.text());
            if verb == "suspend" {
                println!("in use on device 0: {} MiB", stage.machine().usage()?.device(0) >> 20);
            }
        }
        ensure!(sums(&a, &b, mib)? == before, "cycle {cycle} changed bytes");
    }
    println!("{cycles} cycles with 2 x {mib} MiB shared: every checksum as before, in both processes.");
    Ok(())
}

fn change(workers: &[&Actor], mib: u64, value: usize) -> Result<()> {
    for worker in workers {
        for name in ["left", "right"] {
            worker.ok(&format!("add {name} 0 {mib}M {value}"))?;
        }
    }
    Ok(())
}

/// The checksums of both buffers, which both processes must agree on.
fn sums(a: &Actor, b: &Actor, mib: u64) -> Result<Vec<String>> {
    let mut sums = Vec::new();
    for name in ["left", "right"] {
        let line = format!("sum {name} 0 {mib}M");
        let (one, other) = (a.ok(&line)?, b.ok(&line)?);
        ensure!(one == other, "{name} is not one memory any more");
        sums.push(one);
    }
    Ok(sums)
}
