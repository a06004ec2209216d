//! A consistent cut under load: whatever the processes do, and at whatever moment a suspend comes, it ends, nothing that was
//! launched is lost or done twice, and the load goes on.
//!
//! Moments are drawn from a seed that is printed; `NVSNAP_SEED` repeats a run. The tests together make 500 cuts; `NVSNAP_CUTS` and
//! `NVSNAP_SUSPENDS` ask for more pauses and full suspends of the long one.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use integration::{Crowd, Machine};

/// A number from the environment.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn chance() -> fastrand::Rng {
    let seed = setting("NVSNAP_SEED", fastrand::u64(1..1 << 32));
    println!("NVSNAP_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}

/// Lets the load run on to a random moment.
fn wait_a_little(chance: &mut fastrand::Rng) {
    thread::sleep(Duration::from_micros(chance.u64(0..15_000)));
}

/// Pauses and suspends at random moments; after each the load must go on.
fn cut(crowd: &Crowd, chance: &mut fastrand::Rng, pauses: u64, suspends: u64) -> Result<()> {
    let (mut paused, mut suspended) = (0, 0);
    while paused < pauses || suspended < suspends {
        wait_a_little(chance);
        let left = (pauses - paused) + (suspends - suspended);
        if chance.u64(0..left) < suspends - suspended {
            crowd.cycle()?;
            suspended += 1;
        } else {
            crowd.pause()?;
            paused += 1;
        }
        crowd.goes_on(&crowd.progress()?)?;
    }
    crowd.is_well()
}

fn ranges(ranks: &[usize]) -> String {
    ranks.iter().map(|rank| format!(" m{rank}")).collect()
}

/// Cuts through one load a few times.
fn show(mut crowd: Crowd, begin: impl FnOnce(&mut Crowd) -> Result<()>) -> Result<()> {
    begin(&mut crowd)?;
    crowd.goes_on(&crowd.progress()?)?;
    cut(&crowd, &mut chance(), 12, 3)?;
    let rounds = crowd.finish()?;
    println!("rounds: {rounds:?}");
    ensure!(rounds.iter().all(|rounds| *rounds > 15), "a load did next to nothing: {rounds:?}");
    Ok(())
}

fn ranks(count: usize) -> Result<Crowd> {
    Crowd::new(Machine::stand_in()?, count)
}

fn all_reduce(count: usize, words: &'static str, look: u64) -> impl FnOnce(&mut Crowd) -> Result<()> {
    move |crowd| {
        let all: Vec<usize> = (0..count).collect();
        crowd.start("allreduce", &all, look, |_| format!("{words}{}", ranges(&all)))
    }
}

#[test]
fn an_all_reduce_of_two_is_cut() -> Result<()> {
    show(ranks(2)?, all_reduce(2, "1024 plain", 8))
}

#[test]
fn an_all_reduce_of_four_is_cut() -> Result<()> {
    show(ranks(4)?, all_reduce(4, "1024 plain", 8))
}

#[test]
fn an_all_reduce_of_eight_is_cut() -> Result<()> {
    show(ranks(8)?, all_reduce(8, "512 plain", 4))
}

#[test]
fn a_synchronous_copy_behind_a_collective_is_cut() -> Result<()> {
    show(ranks(3)?, all_reduce(3, "1024 copy", 2))
}

#[test]
fn messages_of_the_processors_between_launches_are_cut() -> Result<()> {
    show(ranks(3)?, all_reduce(3, "256 talk", 4))
}

#[test]
fn a_launch_on_a_full_queue_is_cut() -> Result<()> {
    let mut machine = Machine::stand_in()?;
    machine.set("FAKECUDA_QUEUE", "6");
    show(Crowd::new(machine, 3)?, all_reduce(3, "256 plain", 32))
}

#[test]
fn two_independent_groups_are_cut() -> Result<()> {
    show(ranks(4)?, |crowd| {
        for group in [[0, 1], [2, 3]] {
            crowd.start("allreduce", &group, 8, |_| format!("1024 plain{}", ranges(&group)))?;
        }
        Ok(())
    })
}

/// Stepped for the one group, a process must not go on with the other: both have to rest at one moment.
#[test]
fn two_groups_in_the_same_processes_are_cut() -> Result<()> {
    let crowd = ranks(3)?;
    crowd.share("n")?;
    show(crowd, |crowd| {
        let all = [0, 1, 2];
        crowd.start("ring", &all, 4, |_| format!("512{}", ranges(&all)))?;
        crowd.start("allreduce", &all, 7, |_| format!("512 plain{}", ranges(&all).replace('m', "n")))
    })
}

#[test]
fn a_ring_of_senders_and_receivers_is_cut() -> Result<()> {
    show(ranks(4)?, |crowd| {
        let all = [0, 1, 2, 3];
        crowd.start("ring", &all, 4, |_| format!("1024{}", ranges(&all)))
    })
}

#[test]
fn signals_by_stream_memory_operations_alone_are_cut() -> Result<()> {
    show(ranks(3)?, |crowd| {
        let all = [0, 1, 2];
        crowd.start("signals", &all, 4, |_| ranges(&all))
    })
}

#[test]
fn a_kernel_that_waits_for_a_copy_or_a_stream_write_is_cut() -> Result<()> {
    show(ranks(2)?, |crowd| {
        crowd.start("feed", &[0], 8, |_| String::new())?;
        crowd.start("feed", &[1], 1, |_| String::new())
    })
}

#[test]
fn a_host_function_that_needs_a_lock_held_at_the_gate_is_cut() -> Result<()> {
    show(ranks(2)?, |crowd| {
        crowd.start("locked", &[0], 8, |_| String::new())?;
        crowd.start("locked", &[1], 2, |_| String::new())
    })
}

#[test]
fn an_import_in_flight_is_cut() -> Result<()> {
    show(ranks(2)?, |crowd| crowd.start("exchange", &[0, 1], 1, |rank| ["give r1", "take"][rank].to_owned()))
}

#[test]
fn streams_of_all_kinds_graphs_copies_and_host_functions_are_cut() -> Result<()> {
    show(ranks(2)?, |crowd| {
        crowd.start("mix", &[0], 4, |_| "60 24".to_owned())?;
        crowd.start("mix", &[1], 1, |_| "5 16".to_owned())
    })
}

/// Both devices of one process, with one thread that launches on both, or one for each.
fn one_process_with_two_devices(begin: impl FnOnce(&mut Crowd) -> Result<()>) -> Result<()> {
    let crowd = ranks(1)?;
    let worker = crowd.worker(0)?;
    for device in [0, 1] {
        for line in ["new dX 2M device:X fd", "access dX 0 2M device:0 rw device:1 rw", "begin X"] {
            worker.ok(&line.replace('X', &device.to_string()))?;
        }
        worker.ok(&format!("memset d{device} 0 2M 0"))?;
    }
    worker.ok("sync")?;
    show(crowd, begin)
}

#[test]
fn one_thread_that_drives_two_devices_is_cut() -> Result<()> {
    one_process_with_two_devices(|crowd| crowd.start("both-devices", &[0], 8, |_| "512 d0 d1".to_owned()))
}

#[test]
fn two_threads_with_a_device_each_are_cut() -> Result<()> {
    one_process_with_two_devices(|crowd| {
        crowd.start_across("allreduce", &[0, 0], 8, |rank| rank, |_| "512 plain d0 d1".to_owned())
    })
}

#[test]
fn many_cuts_at_random_moments_lose_and_double_nothing() -> Result<()> {
    let mut crowd = ranks(4)?;
    let all = [0, 1, 2, 3];
    crowd.start("allreduce", &all, 8, |_| format!("1024 plain{}", ranges(&all)))?;
    crowd.goes_on(&crowd.progress()?)?;
    let begin = Instant::now();
    cut(&crowd, &mut chance(), setting("NVSNAP_CUTS", 250), setting("NVSNAP_SUSPENDS", 25))?;
    println!("all cuts took {:.1} s; rounds: {:?}", begin.elapsed().as_secs_f64(), crowd.finish()?);
    Ok(())
}

#[test]
fn a_rank_that_never_drains_is_named_and_the_load_goes_on_at_once() -> Result<()> {
    let mut crowd = ranks(3)?;
    let all = [0, 1, 2];
    crowd.start("allreduce", &all, 8, |_| format!("256 plain{}", ranges(&all)))?;
    let stuck = crowd.worker(1)?;
    for line in ["new flag 2M device:0", "memset flag 0 64 0", "stream s", "launch s wait_flag flag u32:1"] {
        stuck.ok(line)?;
    }
    let mut fastest = Duration::MAX;
    for _ in 0..3 {
        let outcome =
            crowd.machine().tool().option("--timeout=1").verb("suspend", &crowd.pids())?.exits(1)?;
        fastest = fastest.min(crowd.goes_on(&crowd.progress()?)?);
        let text = outcome.text();
        let named = format!("process {}: GPU work that does not end on device 0, on ", stuck.pid());
        for part in ["did not come to rest within 1 s", &named, "all processes run as before"] {
            ensure!(text.contains(part), "no `{part}` in {text}");
        }
        // Its part in the collective may not have ended either.
        let streams = text.split(&named).nth(1).and_then(|rest| rest.split(';').next()).unwrap_or_default();
        let stream = format!("stream {} of device 0", stuck.ok("handle-of s")?);
        ensure!(streams.contains(&stream), "no `{stream}` in {text}");
    }
    println!("the load went on after {fastest:?}");
    ensure!(fastest < Duration::from_millis(100), "the load went on only after {fastest:?}");
    stuck.ok("write flag 0 01000000")?;
    crowd.cycle()?;
    crowd.finish()?;
    Ok(())
}
