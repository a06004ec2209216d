//! `soak SECONDS [SEED]`: random loads, suspends and faults on the stand-in driver, from a seed that is printed.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use integration::{arguments, soak};

fn main() -> ExitCode {
    arguments::ended(run())
}

fn run() -> Result<()> {
    let mut given = std::env::args().skip(1);
    let seconds: u64 = given.next().context("usage: soak SECONDS [SEED]")?.parse()?;
    let seed = match given.next() {
        Some(seed) => seed.parse()?,
        None => fastrand::u64(..),
    };
    println!("soak {seconds} {seed}");
    let tally = soak(Duration::from_secs(seconds), seed)?;
    println!(
        "{} worlds, {} rounds of their loads; {} suspends with resume, {} pauses, {} commands interrupted, {} faults: \
         every round was seen once, with what belongs into it.",
        tally.worlds, tally.rounds, tally.cycles, tally.pauses, tally.interrupted, tally.faults
    );
    Ok(())
}
