//! `endure --gpu|--stand-in MIB CYCLES`: two processes share two buffers of this size through so many cycles.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use integration::{arguments, endure};

fn main() -> ExitCode {
    arguments::ended(run())
}

fn run() -> Result<()> {
    const USAGE: &str = "usage: endure --gpu|--stand-in MIB CYCLES";
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [driver, mib, cycles] = given.as_slice() else { bail!(USAGE) };
    endure(arguments::driver(driver).context(USAGE)?, mib.parse()?, cycles.parse()?)
}
