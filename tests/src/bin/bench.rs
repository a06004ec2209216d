//! `bench --gpu|--stand-in MIB [FOLDER ON A DISK]`: what a suspend and a resume cost, beside the driver and the hardware.

use std::process::ExitCode;

use anyhow::{Result, bail};
use integration::Driver;
use integration::bench::{Plan, bench};

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
    let (driver, mib, disk) = match words.as_slice() {
        ["--gpu", mib] => (Driver::Real, mib, None),
        ["--gpu", mib, disk] => (Driver::Real, mib, Some(disk.into())),
        ["--stand-in", mib] => (Driver::StandIn, mib, None),
        ["--stand-in", mib, disk] => (Driver::StandIn, mib, Some(disk.into())),
        _ => bail!("usage: bench --gpu|--stand-in MIB [FOLDER ON A DISK]"),
    };
    bench(&Plan { driver, mib: mib.parse()?, disk })
}
