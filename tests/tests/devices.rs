//! A process that drives several devices: their memory is saved and loaded at the same time, and nothing else changes.
#![allow(clippy::indexing_slicing, reason = "a test that cannot go on fails, and says where")]

mod rig;

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

use rig::{Rig, WAYS, Way};

/// How often the process has called something.
fn count(rig: &Rig, call: &str) -> Result<usize> {
    Ok(rig.machine.calls(rig.pid())?.iter().filter(|logged| logged.name == call).count())
}

#[test]
fn memory_of_two_and_of_four_devices_is_the_same_at_its_addresses_after_cycles_of_every_kind() -> Result<()> {
    for devices in [2, 4] {
        for way in WAYS {
            let mut rig = Rig::new(devices, |start| start)?;
            for round in 1..=3 {
                rig.cycle(way).with_context(|| format!("{devices} devices, {way:?}, round {round}"))?;
                let last = devices - 1;
                rig.worker.ok(&format!("context {last}"))?;
                rig.worker.ok(&format!("write small-{last} 70001 {round:02}"))?;
                rig.worker.ok(&format!("write zero-{last} {} {round:02}", 3 << 20))?;
                let changed = rig.look()?;
                ensure!(changed != rig.sums, "nothing was written");
                rig.sums = changed;
            }
        }
    }
    Ok(())
}

/// Lets the threads that make a call in one leg of a cycle wait for each other: as many as there are devices. Where one
/// device came after the other they would never meet.
fn meets(devices: usize, way: Way, call: &str, suspending: bool) -> Result<()> {
    // A chunk with a part that no device sees is not hashed where it lies.
    let hides = call != "cuLaunchKernel";
    let hidden = |rig: Rig| if hides { rig.hide().map(|()| rig) } else { Ok(rig) };
    let quiet = hidden(Rig::new(devices, |start| start)?)?;
    if !suspending {
        quiet.suspend(way)?.done()?;
    }
    let before = count(&quiet, call)?;
    let fault = format!("{call}:{}+:*=meet({devices})", before + 1);
    let rig = hidden(Rig::new(devices, |start| start.set("FAKECUDA_FAULTS", &fault))?)?;
    let cycle = rig.plain_cycle(way);
    let met = rig.machine.take_violations()?;
    ensure!(met.is_empty(), "{}", met.join("\n"));
    cycle?;
    // It did bite: the calls of the leg came from a thread for each device.
    let calls = rig.machine.calls(rig.pid())?;
    let threads: BTreeSet<i32> =
        calls.iter().filter(|logged| logged.name == call).skip(before).map(|logged| logged.thread).collect();
    ensure!(threads.len() >= devices, "{call} was made by {} threads", threads.len());
    if hides {
        rig.show()?;
    }
    rig.is_as_it_was()
}

#[test]
fn all_devices_are_copied_from_at_the_same_time() -> Result<()> {
    for (devices, way) in
        [(2, Way::InPlace), (2, Way::Kept), (2, Way::Store), (4, Way::InPlace), (4, Way::Store)]
    {
        meets(devices, way, "cuMemcpyDtoHAsync_v2", true).with_context(|| format!("{devices}, {way:?}"))?;
    }
    Ok(())
}

#[test]
fn all_devices_are_copied_to_at_the_same_time() -> Result<()> {
    for (devices, way) in [(2, Way::InPlace), (2, Way::Store), (4, Way::InPlace), (4, Way::Store)] {
        meets(devices, way, "cuMemcpyHtoDAsync_v2", false).with_context(|| format!("{devices}, {way:?}"))?;
    }
    Ok(())
}

#[test]
fn all_devices_look_at_their_memory_and_make_it_again_at_the_same_time() -> Result<()> {
    for way in [Way::InPlace, Way::Store] {
        meets(2, way, "cuLaunchKernel", true).with_context(|| format!("{way:?}"))?;
        meets(2, way, "cuMemCreate", false).with_context(|| format!("{way:?}"))?;
    }
    Ok(())
}

#[test]
fn one_device_needs_no_thread_that_drives_it() -> Result<()> {
    let rig = Rig::new(1, |start| start)?;
    rig.worker.ok("drop host")?;
    for way in WAYS {
        let before = rig.machine.calls(rig.pid())?.len();
        rig.hide()?;
        rig.suspend(way)?.done()?;
        rig.resume()?.done()?;
        let calls = rig.machine.calls(rig.pid())?;
        let moves =
            |name: &str| name.starts_with("cuMemcpy") || name == "cuMemCreate" || name == "cuMemRelease";
        let threads: BTreeSet<i32> =
            calls[before..].iter().filter(|call| moves(&call.name)).map(|call| call.thread).collect();
        ensure!(threads.len() == 1, "{way:?}: {threads:?}");
        rig.show()?;
    }
    Ok(())
}

#[test]
fn the_same_bytes_on_two_devices_go_to_a_store_once() -> Result<()> {
    let rig = Rig::new(2, |start| start)?;
    for device in 0..2 {
        rig.worker.ok(&format!("context {device}"))?;
        rig.worker.ok(&format!("new twin-{device} 64M device:{device}"))?;
        rig.worker.ok(&format!("noise twin-{device} 0 64M 7"))?;
    }
    let summary = rig.suspend(Way::Store)?.done()?.events()?.pop().context("a summary")?;
    let deduplicated = summary["bytes"]["save"]["deduplicated"].as_u64().context("a number")?;
    ensure!(deduplicated == 64 << 20, "{summary}");
    rig.resume()?.done()?;
    let words = |device: usize| {
        rig.worker.ok(&format!("context {device}"))?;
        rig.worker.ok(&format!("sum twin-{device} 0 64M"))
    };
    ensure!(words(0)? == words(1)?, "they differ");
    rig.is_as_it_was()
}

#[test]
fn nothing_adds_up_in_a_process_with_several_devices() -> Result<()> {
    for way in WAYS {
        let rig = Rig::new(4, |start| start)?;
        let cycles = |count: usize| (0..count).try_for_each(|_| rig.cycle(way));
        cycles(4)?;
        let before = rig.worker.snapshot()?;
        cycles(8)?;
        rig.worker.settles_to(&before, 8 << 10).with_context(|| format!("{way:?}"))?;
    }
    Ok(())
}
