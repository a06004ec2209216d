//! `allocations --gpu|--stand-in`: what `cuMemAlloc` and `cuMemFree` cost with the library and without.

use std::process::ExitCode;

use anyhow::{Context, Result};
use integration::{allocations, arguments};

fn main() -> ExitCode {
    arguments::ended(run())
}

fn run() -> Result<()> {
    let driver = std::env::args().nth(1).as_deref().and_then(arguments::driver);
    allocations(driver.context("usage: allocations --gpu|--stand-in")?)
}
