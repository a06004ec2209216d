//! Memory that runs out: while a program allocates, and while it comes back.

use anyhow::{Context, Result};
use integration::Machine;

const MIB: u64 = 1 << 20;

fn small_machine() -> Result<Machine> {
    let mut machine = Machine::stand_in()?;
    machine.set("FAKECUDA_MEMORY", (256 * MIB).to_string());
    Ok(machine)
}

#[test]
fn every_allocation_that_may_fail_fails_as_it_would_without_and_succeeds_when_tried_again() -> Result<()> {
    const ALLOCATIONS: usize = 5;
    for failing in 1..=ALLOCATIONS {
        let mut machine = small_machine()?;
        machine.set("FAKECUDA_FAULTS", format!("cuMemCreate:{failing}:*=oom"));
        let workers = [machine.worker("without").start()?, machine.worker("with").preload().start()?];
        let mut answers = Vec::new();
        for worker in &workers {
            worker.ok("init")?;
            worker.ok("context 0")?;
            let mut said = Vec::new();
            for number in 0..ALLOCATIONS {
                for _ in 0..2 {
                    said.push(worker.ask(&format!("create h{number} 2M device:0 fd"))?);
                }
            }
            answers.push(said);
        }
        assert_eq!(answers.first(), answers.last(), "allocation {failing} fails");
        assert!(answers.concat().iter().any(|answer| answer.starts_with("error 2 ")), "nothing failed");
    }
    Ok(())
}

#[test]
fn a_program_that_fills_the_card_is_told_so_gives_some_back_and_goes_on() -> Result<()> {
    let machine = small_machine()?;
    for (name, preload) in [("without", false), ("with", true)] {
        let worker = machine.worker(name).preload_if(preload).start()?;
        worker.ok("begin 0")?;
        let used = machine.usage()?;
        for _ in 0..2 {
            let mut count = 0;
            let answer = loop {
                let answer = worker.ask(&format!("malloc m{count} 8M"))?;
                if !answer.starts_with("ok") {
                    break answer;
                }
                count += 1;
            };
            assert_eq!(answer, "error 2 CUDA_ERROR_OUT_OF_MEMORY", "{name}");
            assert!((30..=32).contains(&count), "{name}: {count} blocks of 8 MiB on a card of 256 MiB");
            // What one gives back another gets, and no more; small blocks too.
            worker.ok("free m0")?;
            worker.ok("malloc m0 8M")?;
            worker.refused("malloc more 8M", 2)?;
            worker.ok("free m0")?;
            worker.ok("malloc-many 2500 4096")?;
            worker.refused("malloc m0 8M", 2)?;
            worker.ok("free-many 2500")?;
            worker.ok("malloc m0 8M")?;
            for number in 0..count {
                worker.ok(&format!("free m{number}"))?;
            }
        }
        // A slab is kept for the next small block.
        let kept = machine.usage()?.device(0) - used.device(0);
        assert!(
            kept <= if preload { 2 * MIB } else { 0 },
            "{name} has not given everything back: {kept} bytes"
        );
        worker.end()?;
    }
    Ok(())
}

#[test]
fn a_card_too_full_to_come_back_on_is_refused_and_the_next_resume_completes() -> Result<()> {
    let machine = small_machine()?;
    let worker = machine.worker("a").preload().start()?;
    for line in ["begin 0", "new x 128M device:0 fd", "fill x 0 128M 12"] {
        worker.ok(line)?;
    }
    let sum = worker.ok("sum x 0 128M")?;
    machine.suspend(&[worker.pid()])?.done()?;
    let hog = machine.worker("hog").start()?;
    for line in ["begin 0", "new x 200M device:0"] {
        hog.ok(line)?;
    }
    let refused = machine.resume(&[worker.pid()])?;
    assert!(refused.code != 0 && refused.text().contains("memory"), "{}", refused.text());
    assert!(refused.text().contains("resume"), "it has to say what to do: {}", refused.text());
    hog.ok("drop x")?;
    machine.resume(&[worker.pid()])?.done()?;
    assert!(worker.ok("sum x 0 128M")? == sum, "the bytes changed");
    Ok(())
}

#[test]
fn a_full_card_can_be_suspended() -> Result<()> {
    let machine = small_machine()?;
    let worker = machine.worker("a").preload().start()?;
    worker.ok("begin 0")?;
    let mut count = 0;
    while worker.ask(&format!("new x{count} 2M device:0"))?.starts_with("ok") {
        worker.ok(&format!("fill x{count} 0 2M {count}"))?;
        count += 1;
    }
    assert!(count > 50, "the card was full after {count}");
    let sum = worker.ok("sum x7 0 2M")?;
    for _ in 0..2 {
        machine.suspend(&[worker.pid()])?.done()?;
        machine.resume(&[worker.pid()])?.done()?;
        assert!(worker.ok("sum x7 0 2M")? == sum, "the bytes changed");
    }
    Ok(())
}

/// Two processes that fill a card together come back, though streams for moving bytes take memory too: whoever is first
/// leaves the other its own.
#[test]
fn a_full_card_that_two_processes_share_comes_back() -> Result<()> {
    let mut machine = small_machine()?;
    machine.set("FAKECUDA_STREAM_MEMORY", (2 * MIB).to_string());
    let workers = [machine.worker("a").preload().start()?, machine.worker("b").preload().start()?];
    let mut count = 0;
    for worker in &workers {
        worker.ok("begin 0")?;
    }
    while workers[count % 2].ask(&format!("new x{count} 2M device:0"))?.starts_with("ok") {
        workers[count % 2].ok(&format!("noise x{count} 0 2M {count}"))?;
        count += 1;
    }
    assert!(count > 100, "the card was full after {count}");
    let sums = || -> Result<Vec<String>> {
        (0..count).map(|number| workers[number % 2].ok(&format!("sum x{number} 0 2M"))).collect()
    };
    let before = sums()?;
    let pids = [workers[0].pid(), workers[1].pid()];
    for _ in 0..3 {
        machine.suspend(&pids)?.done()?;
        machine.resume(&pids)?.done()?;
        assert!(sums()? == before, "the bytes changed");
    }
    Ok(())
}

/// A resume that finds too little memory on its way is completed by the next: what has been made already is not asked for
/// again.
#[test]
fn a_resume_that_ran_out_of_memory_half_way_needs_only_the_rest() -> Result<()> {
    let mut machine = small_machine()?;
    machine.set("FAKECUDA_FAULTS", "cuMemCreate:81:*=oom");
    let worker = machine.worker("a").preload().start()?;
    worker.ok("begin 0")?;
    for number in 0..50 {
        worker.ok(&format!("new x{number} 4M device:0 fd"))?;
        worker.ok(&format!("noise x{number} 0 4M {number}"))?;
    }
    let sum = worker.ok("sum x7 0 4M")?;
    machine.suspend(&[worker.pid()])?.done()?;
    let failed = machine.resume(&[worker.pid()])?;
    assert_eq!(failed.code, 3, "{}", failed.text());
    assert!(failed.text().contains("CUDA_ERROR_OUT_OF_MEMORY"), "{}", failed.text());
    // Of 256 MiB it has 30 x 4, and needs 20 x 4 more.
    machine.resume(&[worker.pid()])?.done()?;
    assert!(worker.ok("sum x7 0 4M")? == sum, "the bytes changed");
    Ok(())
}

/// CASES 14: a block below the granularity must not cost a granule.
#[test]
fn many_small_blocks_take_as_much_memory_as_natively_and_give_it_all_back() -> Result<()> {
    const BLOCKS: usize = 20_000;
    let mut machine = Machine::stand_in()?;
    machine.set("FAKECUDA_MEMORY", (1024 * MIB).to_string());
    let mut taken = Vec::new();
    for (name, preload) in [("without", false), ("with", true)] {
        let worker = machine.worker(name).preload_if(preload).start()?;
        worker.ok("begin 0")?;
        let before = machine.usage()?.device(0);
        worker.ok(&format!("malloc-many {BLOCKS} 4096"))?;
        taken.push(machine.usage()?.device(0) - before);
        if preload {
            let made = machine.calls(worker.pid())?.iter().filter(|call| call.name == "cuMemCreate").count();
            assert!(made <= 64, "{made} allocations for {BLOCKS} blocks");
            // What the blocks hold is carried, wherever in a slab they lie.
            for block in [0, 1, 511, 512, BLOCKS - 1] {
                worker.ok(&format!("memset many-{block} 0 4096 {}", block % 251))?;
            }
            machine.suspend(&[worker.pid()])?.done()?;
            machine.resume(&[worker.pid()])?.done()?;
            for block in [0, 1, 511, 512, BLOCKS - 1] {
                let byte = format!("{:02x}", block % 251).repeat(2);
                assert_eq!(worker.ok(&format!("read many-{block} 4094 2"))?, byte, "block {block}");
            }
        }
        worker.ok(&format!("free-many {BLOCKS}"))?;
        // A slab is kept for the next small block.
        let left = machine.usage()?.device(0).saturating_sub(before);
        assert!(left <= 2 * MIB, "{name} keeps {left} bytes");
        worker.end()?;
    }
    let [native, shimmed] = taken.as_slice() else { anyhow::bail!("two runs") };
    assert!(*shimmed * 10 <= *native * 11, "{native} bytes without the library, {shimmed} with it");
    Ok(())
}

/// CASES 62: programs have run out of addresses because of generous reservations.
#[test]
fn fifty_thousand_blocks_take_no_more_addresses_than_memory() -> Result<()> {
    const BLOCKS: u64 = 50_000;
    let machine = Machine::stand_in()?;
    let worker = machine.worker("a").preload().start()?;
    worker.ok("begin 0")?;
    let before = machine.calls(worker.pid())?.len();
    worker.ok(&format!("malloc-many {BLOCKS} 4096"))?;
    worker.ok(&format!("free-many {BLOCKS}"))?;
    let calls = machine.calls(worker.pid())?.split_off(before);
    let bytes = |name: &str, argument: usize| -> Result<u64> {
        let calls = calls.iter().filter(|call| call.name == name);
        calls
            .map(|call| Ok(call.arguments.split(", ").nth(argument).context("a size")?.parse::<u64>()?))
            .sum()
    };
    let (reserved, freed) = (bytes("cuMemAddressReserve", 1)?, bytes("cuMemAddressFree", 1)?);
    // The first go into a slab that is there already.
    assert!(reserved + 2 * MIB >= BLOCKS * 4096, "{reserved} bytes of addresses");
    assert!(10 * reserved <= 11 * BLOCKS * 4096, "{reserved} bytes of addresses");
    // All but one slab, which stays for the next small block.
    assert!(reserved - freed <= 2 * MIB, "{reserved} bytes of addresses, of which {freed} were given back");
    Ok(())
}

/// CASES 62: whoever frees addresses for the time of a suspend may not get them back.
#[test]
fn addresses_are_kept_while_the_memory_is_away() -> Result<()> {
    let machine = small_machine()?;
    let worker = machine.worker("a").preload().start()?;
    for line in ["begin 0", "malloc x 8M", "malloc small 4K", "new y 4M device:0 fd", "fill x 0 8M 3"] {
        worker.ok(line)?;
    }
    let (sum, place) = (worker.ok("sum x 0 8M")?, worker.ok("attribute 3 x 0")?);
    let maps = || std::fs::read_to_string(format!("/proc/{}/maps", worker.pid()));
    let before = machine.calls(worker.pid())?.len();
    for _ in 0..2 {
        machine.suspend(&[worker.pid()])?.done()?;
        let address: u64 = place.parse()?;
        let holds = |line: &str| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let ends = range.and_then(|(from, to)| {
                Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?))
            });
            ends.is_some_and(|(from, to)| from <= address && address + 8 * MIB <= to)
        };
        assert!(maps()?.lines().any(holds), "nobody keeps {address:#x}:\n{}", maps()?);
        machine.resume(&[worker.pid()])?.done()?;
        assert_eq!((worker.ok("sum x 0 8M")?, worker.ok("attribute 3 x 0")?), (sum.clone(), place.clone()));
    }
    let calls = machine.calls(worker.pid())?.split_off(before);
    let addresses = calls.iter().filter(|call| call.name.starts_with("cuMemAddress"));
    assert_eq!(addresses.count(), 0, "addresses were given back, or asked for anew");
    Ok(())
}
