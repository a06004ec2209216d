//! What `soak` rests on: which loads lock each other with nobody's help, and that a load sees what is lost or done twice.

use anyhow::{Result, ensure};
use integration::{Crowd, Kind, Machine, Target};

/// Two processes with the collectives a and b, each on a stream of this kind, cut at the place where one rank has launched its part
/// of b, the other its part of a, and each copies before it launches the other. Each part says that it is there, and waits for the
/// other process's.
fn copies_between_collectives(kind: &str) -> Result<Crowd> {
    let crowd = Crowd::bare(Machine::stand_in()?, 2)?;
    for (rank, launched, copies) in [(0, "b", "a"), (1, "a", "b")] {
        let worker = crowd.worker(rank)?;
        for line in ["stream a", "stream b"] {
            worker.ok(&format!("{line} {kind}"))?;
        }
        worker.ok("stream free")?;
        let [here, waits] = parts(rank, launched);
        worker.ok(&here)?;
        worker.ok(&waits)?;
        worker.ok("on copier context 0")?;
        let [here, waits] = parts(rank, copies);
        for line in [format!("read m{rank} 1024 4"), here, waits] {
            worker.ok(&format!("start copier {line}"))?;
        }
    }
    Ok(crowd)
}

/// A rank's part of a collective.
fn parts(rank: usize, collective: &str) -> [String; 2] {
    let flag = if collective == "a" { 0 } else { 4 };
    let (own, other) = (rank, 1 - rank);
    [
        format!("launch {collective} fill m{own}+{flag} u64:1 u32:1"),
        format!("launch {collective} wait_flag m{other}+{flag} u32:1"),
    ]
}

fn comes_to_its_end(worker: &Target) -> Result<()> {
    for _ in 0..3 {
        worker.ok("wait copier")?;
    }
    worker.ok("sync")?;
    Ok(())
}

#[test]
fn two_collectives_on_blocking_streams_lock_each_other_by_a_copy_on_the_default_stream() -> Result<()> {
    // The same on streams that do not block ends by itself.
    let crowd = copies_between_collectives("")?;
    for rank in [0, 1] {
        comes_to_its_end(crowd.worker(rank)?)?;
    }
    let crowd = copies_between_collectives("blocking")?;
    for rank in [0, 1] {
        let worker = crowd.worker(rank)?;
        // Each copy is in the default stream, behind a collective whose other part comes after the other copy.
        crowd
            .machine()
            .until("the copy waits", || Ok(worker.ask("query null")?.starts_with("error 600 ")))?;
        ensure!(worker.ok("busy copier")? == "yes", "the copy of rank {rank} has ended");
    }
    // Launched by anybody else, the missing part of one of them sets all free.
    let worker = crowd.worker(1)?;
    ensure!(worker.ok("busy copier")? == "yes", "it has ended by itself");
    worker.ok("launch free fill m1+4 u64:1 u32:1")?;
    for rank in [0, 1] {
        comes_to_its_end(crowd.worker(rank)?)?;
    }
    Ok(())
}

#[test]
fn any_two_loads_that_soak_combines_go_on_without_the_library() -> Result<()> {
    let mut chance = fastrand::Rng::new();
    for kind in Kind::ALL {
        for other in Kind::ALL.into_iter().filter(|other| kind.may_join(*other)) {
            let mut crowd = Crowd::bare(Machine::stand_in()?, 2)?;
            println!("{:?}", Kind::start_all(&[kind, other], &mut crowd, &mut chance)?);
            for _ in 0..20 {
                crowd.goes_on(&crowd.progress()?)?;
            }
            crowd.finish()?;
        }
    }
    Ok(())
}

/// As many launches in a row as any load makes in a round: among them is one whose result is looked at.
const ROUND: u32 = 5;

/// What each kind of load says when something happens to its launches.
fn every_load_notices(effect: &str) -> Result<()> {
    for kind in Kind::ALL {
        let mut machine = Machine::stand_in()?;
        let faults = (200..200 + ROUND).map(|launch| format!("cuLaunchKernel:{launch}:*={effect}"));
        machine.set("FAKECUDA_FAULTS", faults.collect::<Vec<_>>().join(";"));
        let mut crowd = Crowd::bare(machine, 2)?;
        Kind::start_all(&[kind], &mut crowd, &mut fastrand::Rng::with_seed(5))?;
        let noticed = loop {
            if let Err(error) = crowd.progress().and_then(|before| crowd.goes_on(&before)) {
                break error.to_string();
            }
        };
        println!("{kind:?}: {noticed}");
        ensure!(noticed.contains("usage round "), "{kind:?} with launches {effect}: {noticed}");
    }
    Ok(())
}

#[test]
fn every_load_notices_that_launches_are_lost() -> Result<()> {
    every_load_notices("lost")
}

#[test]
fn every_load_notices_that_launches_are_done_twice() -> Result<()> {
    every_load_notices("twice")
}
