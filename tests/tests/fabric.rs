//! Fabric handles: hidden by default, and refused alike wherever a program asks; with the switch they are the driver's, and `check`
//! refuses who holds some.

use anyhow::{Result, ensure};
use integration::{Machine, Target};

/// `CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED`
const SUPPORTED: u32 = 128;
/// `CU_MEM_HANDLE_TYPE_FABRIC`, and with it descriptors.
const FABRIC: u32 = 8;
const BOTH: u32 = 9;

/// A worker on a machine that has a channel for fabric handles, and one that has not.
fn worker(channel: bool, preload: bool, switch: &str) -> Result<(Machine, Target)> {
    let mut machine = Machine::stand_in()?;
    machine.set("FAKECUDA_FABRIC", if channel { "1" } else { "0" }).set("FAKECUDA_MULTICAST", "1");
    let worker = machine.worker("a").preload_if(preload).set("NVSNAP_GPUSHARE_FABRIC", switch).start()?;
    worker.ok("begin 0")?;
    Ok((machine, worker))
}

#[test]
fn without_the_switch_every_rank_is_told_the_same_whatever_its_machine_has() -> Result<()> {
    for channel in [false, true] {
        let (machine, a) = worker(channel, true, "")?;
        for road in ["dlsym", "resolver"] {
            let said = a.ok(&format!("raw {road} cuDeviceGetAttribute out {SUPPORTED} 0"))?;
            ensure!(said == "0 untouched", "{road}: the device says it has fabric handles: {said}");
        }
        for types in [FABRIC, BOTH] {
            a.refused(&format!("create x 2M device:0 {types}"), 801)?;
        }
        let import = a.ok(&format!("raw dlsym cuMemImportFromShareableHandle out 4096 {FABRIC}"))?;
        ensure!(import == "801 untouched", "an import: {import}");
        a.refused("pool fabric", 801)?;
        a.refused("team t 2M 1 fabric", 801)?;
        // What an engine falls back on works, and nothing sticks.
        for line in ["new x 2M device:0 fd", "fill x 0 2M 3", "malloc y 4M", "export fd x", "sync"] {
            a.ok(line)?;
        }
        let export = a.ok(&format!("raw dlsym cuMemExportToShareableHandle out handle:x {FABRIC} 0"))?;
        ensure!(export == "1 untouched", "an export: {export}");
        machine.suspend(&[a.pid()])?.done()?;
        machine.resume(&[a.pid()])?.done()?;
    }
    Ok(())
}

#[test]
fn with_the_switch_a_program_gets_what_the_driver_says() -> Result<()> {
    for channel in [false, true] {
        let lines = [
            format!("raw dlsym cuDeviceGetAttribute out {SUPPORTED} 0"),
            format!("create x 2M device:0 {FABRIC}"),
            format!("create y 2M device:0 {BOTH}"),
            format!("raw dlsym cuMemExportToShareableHandle out handle:x {FABRIC} 0"),
            format!("raw dlsym cuMemImportFromShareableHandle out 4096 {FABRIC}"),
            // The library's own memory asks for none: here that would fail.
            "malloc z 4M".to_owned(),
            "create w 2M device:0 fd".to_owned(),
        ];
        let (_native_machine, native) = worker(channel, false, "1")?;
        let (_machine, shimmed) = worker(channel, true, "1")?;
        for line in &lines {
            let (native, shimmed) = (native.ask(line)?, shimmed.ask(line)?);
            ensure!(native == shimmed, "{line}\nwithout: {native}\nwith:    {shimmed}");
        }
    }
    Ok(())
}

#[test]
fn a_process_that_holds_fabric_memory_is_refused_and_goes_on() -> Result<()> {
    let (machine, a) = worker(true, true, "1")?;
    for line in [&format!("new x 2M device:0 {BOTH}"), "fill x 0 2M 4"] {
        a.ok(line)?;
    }
    let sum = a.ok("sum x 0 2M")?;
    for verb in ["check", "suspend"] {
        let refused = machine.tool().verb(verb, &[a.pid()])?.exits(4)?;
        for word in ["1 allocation(s)", "fabric", "NVSNAP_GPUSHARE_FABRIC"] {
            ensure!(refused.text().contains(word), "{verb} does not say {word}: {}", refused.text());
        }
    }
    ensure!(a.ok("sum x 0 2M")? == sum);
    a.ok("drop x")?;
    machine.suspend(&[a.pid()])?.done()?;
    machine.resume(&[a.pid()])?.done()?;
    Ok(())
}
