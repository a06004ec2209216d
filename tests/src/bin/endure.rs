//! `endure --gpu|--stand-in MIB CYCLES`: two processes share two buffers of this size through so many cycles.

use std::process::ExitCode;

use anyhow::{Result, bail};
use integration::{Driver, endure};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (driver, mib, cycles) = match words.as_slice() {
        ["--gpu", mib, cycles] => (Driver::Real, mib, cycles),
        ["--stand-in", mib, cycles] => (Driver::StandIn, mib, cycles),
        _ => bail!("usage: endure --gpu|--stand-in MIB CYCLES"),
    };
    endure(driver, mib.parse()?, cycles.parse()?)
}
