//! Plays the scenarios from `dist/` alone, on a GPU or on the stand-in, with the library and without, and prints a
//! table. The habits of the bare driver come first: what is wrong there makes the rest worthless.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use integration::native::HABITS;
use integration::scenarios::{ALL, Scenario};
use integration::{Driver, Machine};

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let driver = match arguments.first().map(String::as_str) {
        Some("--gpu") => Driver::Real,
        Some("--stand-in") => Driver::StandIn,
        _ => bail!("usage: scenarios --gpu|--stand-in [NAME...]"),
    };
    let names = arguments.get(1..).unwrap_or_default();
    let chosen: Vec<&Scenario> = if names.is_empty() {
        ALL.iter().collect()
    } else {
        names.iter().map(|name| Scenario::named(name)).collect::<Result<_>>()?
    };
    let mut failures = if names.is_empty() { habits(driver) } else { Vec::new() };
    println!("{:62} {:>9} {:>9}  result", "scenario", "without", "with");
    let devices = devices(driver)?;
    for scenario in chosen {
        if scenario.devices > devices {
            let name = scenario.name.replace('_', " ");
            println!("{name:62} {:>21}  NOT PLAYED: needs {} devices", "", scenario.devices);
            continue;
        }
        let mut seconds = [0.0; 2];
        let result = compare(scenario, driver, &mut seconds);
        let word = if result.is_ok() { "equal" } else { "FAILED" };
        let [without, with] = seconds;
        println!("{:62} {without:>8.2}s {with:>8.2}s  {word}", scenario.name.replace('_', " "));
        if let Err(error) = result {
            failures.push(format!("{}: {error:#}", scenario.name));
        }
    }
    for failure in &failures {
        println!("\n{failure}");
    }
    Ok(failures.is_empty())
}

/// How many devices there are.
fn devices(driver: Driver) -> Result<usize> {
    let machine = Machine::new(driver)?;
    let worker = machine.worker("counter").start()?;
    worker.ok("init")?;
    Ok(worker.ok("devices")?.parse()?)
}

/// Shows the habits of the driver alone; what is not as expected comes back.
fn habits(driver: Driver) -> Vec<String> {
    let mut failures = Vec::new();
    println!("{:82}  result", "the driver alone");
    for habit in HABITS.iter().filter(|habit| habit.on_gpu || driver == Driver::StandIn) {
        let result = (habit.show)(driver);
        let word = if result.is_ok() { "as expected" } else { "FAILED" };
        println!("{:82}  {word}", habit.name.replace('_', " "));
        if let Err(error) = result {
            failures.push(format!("{}: {error:#}", habit.name));
        }
    }
    println!();
    failures
}

/// Plays both sides and compares what was said. On the stand-in a misuse of the driver is a panic, and so a failure of all.
fn compare(scenario: &Scenario, driver: Driver, seconds: &mut [f64; 2]) -> Result<()> {
    let mut records = Vec::new();
    for (preload, spent) in [false, true].into_iter().zip(seconds) {
        let begin = Instant::now();
        let record = scenario.play(driver, preload);
        *spent = begin.elapsed().as_secs_f64();
        records.push(record?);
    }
    let [without, with] = records.as_slice() else { bail!("two sides") };
    for (native, shimmed) in without.iter().zip(with) {
        ensure!(native == shimmed, "without the library: {native}\nwith it: {shimmed}");
    }
    ensure!(without.len() == with.len(), "one side said more");
    Ok(())
}
