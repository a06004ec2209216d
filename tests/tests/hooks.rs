//! Every function of the list, by every road, with the library and without: what comes back has to be the same.

use anyhow::Result;
use integration::{Machine, Target};

struct Entry {
    class: &'static str,
    family: &'static str,
    name: &'static str,
}

macro_rules! entries {
    ($($class:ident $family:ident fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(on $($stream:ident).+)?;)*) => {
        const ENTRIES: &[Entry] = &[$(Entry {
            class: stringify!($class),
            family: stringify!($family),
            name: stringify!($name),
        },)*];
    };
}

cuda_sys::for_each_call!(entries);

const ROADS: [&str; 4] = ["dlsym", "resolver", "per-thread", "scope"];

/// Calls that take the context away from those that come after them.
fn comes_last(name: &str) -> bool {
    ["CtxDestroy", "CtxDetach", "PrimaryCtxRe", "CtxPopCurrent", "CtxSetCurrent", "CtxPushCurrent"]
        .iter()
        .any(|part| name.contains(part))
}

fn in_order() -> Vec<&'static Entry> {
    let (last, first): (Vec<_>, Vec<_>) = ENTRIES.iter().partition(|entry| comes_last(entry.name));
    first.into_iter().chain(last).collect()
}

fn worker(machine: &Machine, preload: bool, name: &str) -> Result<Target> {
    let worker = machine.worker(name).preload_if(preload).start()?;
    for line in ["begin 0", "new x 2M device:0 fd", "reserve r 2M", "stream s", "event e"] {
        worker.ok(line)?;
    }
    Ok(worker)
}

/// Asks both the same, for every entry; every difference is listed.
fn differences(lines: impl Fn(&Entry) -> Vec<String>, faults: &str) -> Result<Vec<String>> {
    let mut machine = Machine::stand_in()?;
    if !faults.is_empty() {
        machine.set("FAKECUDA_FAULTS", faults);
    }
    let (without, with) = (worker(&machine, false, "without")?, worker(&machine, true, "with")?);
    let mut found = Vec::new();
    for entry in in_order() {
        for line in lines(entry) {
            let (native, shimmed) = (without.ask(&line)?, with.ask(&line)?);
            if native != shimmed {
                found.push(format!("{line}: {native} without, {shimmed} with"));
            }
        }
    }
    // These calls are wrong on purpose.
    machine.take_violations()?;
    Ok(found)
}

#[test]
fn every_road_that_leads_to_a_function_still_does_and_no_other() -> Result<()> {
    let lines = |entry: &Entry| {
        // The default scope holds the library itself, which exports every name of the list.
        ROADS[..3].iter().map(|road| format!("there {road} {}", entry.name)).collect()
    };
    assert_eq!(differences(lines, "")?, [""; 0]);
    Ok(())
}

#[test]
fn every_function_with_all_arguments_zero() -> Result<()> {
    let lines = |entry: &Entry| ROADS[..3].iter().map(|road| format!("raw {road} {}", entry.name)).collect();
    assert_eq!(differences(lines, "")?, [""; 0]);
    Ok(())
}

#[test]
fn an_error_of_the_driver_comes_through_and_nothing_is_written() -> Result<()> {
    // What the worker itself needs has to work.
    let needed = [
        "cuInit",
        "cuCtxSetCurrent",
        "cuDevicePrimaryCtxRetain",
        "cuModuleLoadData",
        "cuModuleGetFunction",
        "cuMemAlloc_v2",
        "cuMemCreate",
        "cuMemAddressReserve",
        "cuMemMap",
        "cuMemSetAccess",
        "cuStreamCreate",
        "cuEventCreate",
        "cuCtxGetCurrent",
        "cuCtxGetDevice",
        "cuStreamIsCapturing",
        "cuGetProcAddress",
        "cuGetProcAddress_v2",
    ];
    let chosen = |entry: &Entry| matches!(entry.family, "gate" | "sync") && !needed.contains(&entry.name);
    let faults: Vec<String> = ENTRIES
        .iter()
        .filter(|entry| chosen(entry))
        .map(|entry| format!("{}:*:*=error(912)", entry.name))
        .collect();
    let lines = |entry: &Entry| {
        if chosen(entry) {
            vec![format!("raw dlsym {} out out out out out out", entry.name)]
        } else {
            Vec::new()
        }
    };
    assert_eq!(differences(lines, &faults.join(";"))?, [""; 0]);
    Ok(())
}

#[test]
fn a_driver_without_a_function_looks_so() -> Result<()> {
    for missing in ["cuMulticast", "cuMemRetainAllocationHandle", "cuMemcpyBatchAsync", "cuLaunchKernelEx"] {
        let mut machine = Machine::stand_in()?;
        let names: Vec<&str> =
            ENTRIES.iter().map(|entry| entry.name).filter(|name| name.starts_with(missing)).collect();
        machine.set("FAKECUDA_WITHOUT", names.join(","));
        let (without, with) = (worker(&machine, false, "without")?, worker(&machine, true, "with")?);
        for name in names {
            for road in ["resolver", "per-thread", "dlsym"] {
                let line = format!("there {road} {name}");
                assert_eq!(without.ask(&line)?, with.ask(&line)?, "`{line}` where the driver lacks it");
            }
        }
    }
    Ok(())
}

#[test]
fn the_list_has_every_class() {
    for class in ["launch", "memory", "object", "completion", "information", "pass"] {
        assert!(ENTRIES.iter().any(|entry| entry.class == class), "no {class}");
    }
}
