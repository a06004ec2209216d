//! `full --gpu|--stand-in MIB`: a process fills its card, so many MiB of it with what looks like chance, and is suspended.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use integration::{arguments, full};

fn main() -> ExitCode {
    arguments::ended(run())
}

fn run() -> Result<()> {
    const USAGE: &str = "usage: full --gpu|--stand-in MIB";
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [driver, mib] = given.as_slice() else { bail!(USAGE) };
    full(arguments::driver(driver).context(USAGE)?, mib.parse()?)
}
