//! `nvsnap-gpushare-demo`: shows in a minute what this project is for, on a GPU if there is one, else on the stand-in.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use integration::demo::{Layout, show, work};
use integration::{Driver, driver};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nThe demonstration failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--work", half, socket, shared, private] => {
            let layout = Layout { shared: shared.parse()?, private: private.parse()? };
            work(half.parse()?, socket.parse()?, layout)
        }
        ["--probe"] => probe(),
        ["--stand-in"] => show(Driver::StandIn, Layout { shared: 64 << 20, private: 32 << 20 }),
        ["--gpu"] => show(Driver::Real, Layout { shared: 4 << 30, private: 1 << 30 }),
        [] if a_gpu_is_here()? => show(Driver::Real, Layout { shared: 4 << 30, private: 1 << 30 }),
        [] => show(Driver::StandIn, Layout { shared: 64 << 20, private: 32 << 20 }),
        _ => bail!("usage: nvsnap-gpushare-demo [--gpu | --stand-in]"),
    }
}

/// Whether this machine's own driver has a device: found out in a process of its own, since a driver that is once
/// initialised stays in the process.
fn a_gpu_is_here() -> Result<bool> {
    let status = std::process::Command::new(std::env::current_exe()?)
        .arg("--probe")
        .stderr(std::process::Stdio::null())
        .status()
        .context("cannot run myself")?;
    Ok(status.success())
}

fn probe() -> Result<()> {
    // SAFETY: no demands.
    unsafe { driver::cuInit(0) }?;
    let mut count = 0;
    // SAFETY: a place for the number.
    unsafe { driver::cuDeviceGetCount(&raw mut count) }?;
    if count > 0 { Ok(()) } else { bail!("no device") }
}
