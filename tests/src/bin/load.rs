//! `load --gpu|--stand-in SUSPENDS [SEED]`: two processes under full load, suspended and resumed so often at random moments.
//!
//! Each has kernels on blocking, non-blocking and per-thread streams, a graph, copies both ways, host functions, and now and then a
//! kernel of two seconds; and they share memory anew all the time. No launch may be lost or done twice, and every byte must be
//! right.
//!
//! No kernel waits for the other process: once resumed, the driver no longer interrupts the kernels of one for the other where both
//! use one GPU (580.159.04). On the stand-in, whose kernels run beside each other, the two do an all-reduce as well.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use integration::{Crowd, Driver, Machine, arguments};

fn main() -> ExitCode {
    arguments::ended(run())
}

fn run() -> Result<()> {
    const USAGE: &str = "usage: load --gpu|--stand-in SUSPENDS [SEED]";
    let mut given = std::env::args().skip(1);
    let driver = given.next().as_deref().and_then(arguments::driver).context(USAGE)?;
    let suspends: usize = given.next().context(USAGE)?.parse()?;
    let seed = given.next().map_or_else(|| Ok(fastrand::u64(1..1 << 32)), |seed| seed.parse())?;
    println!("seed {seed}");
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut crowd = Crowd::new(Machine::new(driver)?, 2)?;
    crowd.start("mix", &[0], 4, |_| "2000 3000".to_owned())?;
    crowd.start("mix", &[1], 4, |_| "2000 3500".to_owned())?;
    crowd.start("exchange", &[0, 1], 1, |rank| if rank == 0 { "give r1" } else { "take" }.to_owned())?;
    if driver == Driver::StandIn {
        crowd.start("allreduce", &[0, 1], 4, |_| "65536 plain m0 m1".to_owned())?;
    }
    let begin = Instant::now();
    let (mut suspending, mut resuming) = (Vec::new(), Vec::new());
    for _ in 0..suspends {
        crowd.goes_on(&crowd.progress()?)?;
        thread::sleep(Duration::from_millis(chance.u64(0..50)));
        let [suspend, resume] = crowd.cycle()?;
        suspending.push(suspend.as_secs_f64());
        resuming.push(resume.as_secs_f64());
    }
    crowd.goes_on(&crowd.progress()?)?;
    crowd.is_well()?;
    let rounds = crowd.finish()?;
    println!(
        "{suspends} suspends under load in {:.1} s; rounds of each load: {rounds:?}",
        begin.elapsed().as_secs_f64()
    );
    for (what, mut seconds) in [("suspend", suspending), ("resume", resuming)] {
        seconds.sort_by(f64::total_cmp);
        let at = |index: usize| seconds.get(index).copied().unwrap_or_default();
        let (median, last) = (seconds.len() / 2, seconds.len().saturating_sub(1));
        println!("{what}: min {:.2} s, median {:.2} s, max {:.2} s", at(0), at(median), at(last));
    }
    println!("no launch was lost or done twice, and every byte was right.");
    Ok(())
}
