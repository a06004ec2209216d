//! A million cycles leave nothing behind, and many live objects do not slow one down.

use std::time::{Duration, Instant};

use shim_core::world::{Release, World};

use crate::{BASE, Fds, SIZE, create, map};

/// One life of an allocation, as the hooks record it.
fn cycle(world: &World<Fds>, number: u64, address: u64) {
    let handle = create(world, number);
    map(world, handle, address, SIZE, 0);
    assert!(matches!(world.release(handle), Ok(Release::Counted)));
    for leaving in world.end(world.take(address, SIZE)) {
        world.finish(leaving);
    }
}

/// The shortest of several measurements: what the machine does beside us only ever adds.
fn shortest(rounds: u64, mut round: impl FnMut(u64)) -> Duration {
    (0..rounds)
        .map(|at| {
            let start = Instant::now();
            round(at);
            start.elapsed()
        })
        .min()
        .unwrap_or_default()
}

fn resident_pages() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number")
}

#[test]
fn a_million_cycles_are_flat_in_memory_and_time() {
    const ROUND: u64 = 50_000;
    let world = World::<Fds>::new();
    let mut round = |at: u64| (0..ROUND).for_each(|n| cycle(&world, at * ROUND + n, BASE));
    let early = shortest(5, &mut round);
    let pages = resident_pages();
    (5..15).for_each(&mut round);
    let late = shortest(5, |at| round(at + 15));
    let grown = resident_pages().saturating_sub(pages);
    assert!(world.objects().is_empty() && world.views().is_empty());
    assert!(grown < 256, "{grown} pages more than after the first quarter");
    assert!(late < early * 2, "a cycle took {early:?} at first and {late:?} at last");
}

#[test]
fn a_hundred_thousand_live_objects_do_not_slow_a_cycle_down() {
    const LIVE: u64 = 100_000;
    const ROUND: u64 = 20_000;
    let world = World::<Fds>::new();
    let alone = shortest(5, |at| (0..ROUND).for_each(|n| cycle(&world, at * ROUND + n, BASE)));
    for number in 0..LIVE {
        let handle = create(&world, (1 << 32) + number);
        map(&world, handle, BASE + (number + 1) * SIZE, SIZE, 0);
    }
    let crowded = shortest(5, |at| (0..ROUND).for_each(|n| cycle(&world, at * ROUND + n, BASE)));
    // Deeper trees and colder caches cost a few times a very short time; a scan would cost ten thousand times.
    assert!(crowded < alone * 12, "a cycle took {alone:?} alone and {crowded:?} among {LIVE}");
}
