//! `allocations --gpu|--stand-in`: what `cuMemAlloc` and `cuMemFree` cost with the library and without.

use std::process::ExitCode;

use anyhow::{Result, bail};
use integration::{Driver, allocations};

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
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--gpu"] => allocations(Driver::Real),
        ["--stand-in"] => allocations(Driver::StandIn),
        _ => bail!("usage: allocations --gpu|--stand-in"),
    }
}
