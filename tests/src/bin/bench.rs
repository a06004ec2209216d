//! `bench --gpu|--stand-in MIB [FOLDER ON A DISK]`: what a suspend and a resume cost, beside the driver and the hardware.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use integration::arguments;
use integration::bench::{Plan, bench};

fn main() -> ExitCode {
    arguments::ended(run())
}

fn run() -> Result<()> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = given.iter().map(String::as_str).collect();
    const USAGE: &str = "usage: bench --gpu|--stand-in MIB [FOLDER ON A DISK]";
    let (driver, mib, disk) = match words.as_slice() {
        [driver, mib] => (driver, mib, None),
        [driver, mib, disk] => (driver, mib, Some(disk.into())),
        _ => bail!(USAGE),
    };
    bench(&Plan { driver: arguments::driver(driver).context(USAGE)?, mib: mib.parse()?, disk })
}
