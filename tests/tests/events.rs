//! Events that several processes use: refused on drivers that are not known to carry them, and counted as the driver
//! counts them.

use anyhow::{Result, ensure};
use integration::{InTheWay, Machine, Target};

/// The API version of r580, the first driver that was seen to carry them, and the one before.
const R580: &str = "13000";
const R575: &str = "12090";

fn machine(version: &str) -> Result<Machine> {
    let mut machine = Machine::stand_in()?;
    machine.set("FAKECUDA_VERSION", version);
    Ok(machine)
}

fn worker(machine: &Machine, name: &str, faults: &str) -> Result<Target> {
    // The worker asks the resolver for versions that the older driver does not know.
    let worker = machine.worker(name).preload().argument("dlsym").set("FAKECUDA_FAULTS", faults).start()?;
    all(&worker, &["begin 0", "malloc m 64K", "fill m 0 64K 7"])?;
    Ok(worker)
}

fn all(worker: &Target, lines: &[&str]) -> Result<()> {
    lines.iter().try_for_each(|line| worker.ok(line).map(drop))
}

/// Nothing is in the way of a suspend.
fn is_free(machine: &Machine, worker: &Target) -> Result<()> {
    let outcome = machine.tool().option("--json").verb("check", &[worker.pid()])?.done()?;
    ensure!(!outcome.text().contains("shared-event"), "{}", outcome.text());
    Ok(())
}

/// So many events are in the way of a suspend, and nothing else is.
fn holds(machine: &Machine, worker: &Target, count: u32) -> Result<()> {
    InTheWay {
        kind: "shared-event",
        count,
        object: "event 0x",
        message: &["interprocess event", "r580"],
        remedy: &["destroy them", "newer driver"],
    }
    .of(machine, worker, ("m", "64K"))
}

fn cycles(machine: &Machine, workers: &[&Target]) -> Result<()> {
    let pids: Vec<i32> = workers.iter().map(|worker| worker.pid()).collect();
    for _ in 0..2 {
        machine.suspend(&pids)?.done()?;
        machine.resume(&pids)?.done()?;
    }
    Ok(())
}

/// What is exported counts once however often it is, until it is destroyed; failed calls count for nothing.
#[test]
fn an_exported_event_is_in_the_way_until_it_is_destroyed() -> Result<()> {
    let machine = machine(R575)?;
    let faults = "cuIpcGetEventHandle:1:*=error(304);cuEventDestroy_v2:1:*=error(999)";
    let a = worker(&machine, "a", faults)?;
    all(&a, &["event plain", "shared-event e", "shared-event f", "shared-event never"])?;
    is_free(&machine, &a)?;
    a.refused("event-handle e", 304)?;
    a.refused("event-handle plain", 400)?;
    is_free(&machine, &a)?;
    a.ok("event-handle e")?;
    holds(&machine, &a, 1)?;
    a.ok("event-handle e")?;
    holds(&machine, &a, 1)?;
    a.ok("event-handle f")?;
    holds(&machine, &a, 2)?;
    a.refused("destroy-event e", 999)?;
    holds(&machine, &a, 2)?;
    a.ok("destroy-event e")?;
    holds(&machine, &a, 1)?;
    a.ok("destroy-event f")?;
    is_free(&machine, &a)?;
    cycles(&machine, &[&a])?;
    // As it was for those that nobody else knows.
    all(&a, &["stream s", "record plain s", "record never s", "event-sync plain", "event-sync never"])
}

/// Each open is an event of its own for the process that opens; what its exporter does is not its business.
#[test]
fn an_opened_event_is_in_the_way_until_it_is_destroyed() -> Result<()> {
    let machine = machine(R575)?;
    let a = worker(&machine, "a", "")?;
    let b = worker(&machine, "b", "cuIpcOpenEventHandle:1:*=error(304)")?;
    a.ok("shared-event e")?;
    let handle = a.ok("event-handle e")?;
    b.refused(&format!("open-event x {handle}"), 304)?;
    b.refused(&format!("open-event x {}", "00".repeat(64)), 1)?;
    is_free(&machine, &b)?;
    b.ok(&format!("open-event x {handle}"))?;
    holds(&machine, &b, 1)?;
    b.ok(&format!("open-event y {handle}"))?;
    holds(&machine, &b, 2)?;
    a.ok("destroy-event e")?;
    is_free(&machine, &a)?;
    holds(&machine, &b, 2)?;
    b.ok("destroy-event x")?;
    holds(&machine, &b, 1)?;
    b.ok("destroy-event y")?;
    is_free(&machine, &b)?;
    cycles(&machine, &[&a, &b])
}

/// Events go with the context they were made in, whichever was current when they were exported.
#[test]
fn an_event_ends_with_its_context() -> Result<()> {
    let machine = machine(R575)?;
    let (a, b) = (worker(&machine, "a", "")?, worker(&machine, "b", "")?);
    all(&a, &["make-context c 0", "shared-event in-c", "context 0", "shared-event e"])?;
    let handle = a.ok("event-handle in-c")?;
    all(&a, &["use-context c", "event-handle e", "context 0"])?;
    holds(&machine, &a, 2)?;
    all(&b, &["make-context c 1", &format!("open-event x {handle}"), "context 1", "context 0"])?;
    holds(&machine, &b, 1)?;
    for worker in [&a, &b] {
        worker.ok("destroy-context c")?;
    }
    is_free(&machine, &b)?;
    holds(&machine, &a, 1)?;
    // The other way for a context to go.
    all(&a, &["context 1", "shared-event far", "event-handle far", "context 0"])?;
    holds(&machine, &a, 2)?;
    a.ok("reset-device 1")?;
    holds(&machine, &a, 1)?;
    a.ok("destroy-event e")?;
    is_free(&machine, &a)?;
    cycles(&machine, &[&a, &b])
}

/// A driver that was seen to carry them is not refused, and they connect their processes afterwards. What CRIU makes of them is not
/// known, and that is said to those who ask about CRIU, and to nobody else.
#[test]
fn a_driver_that_carries_them_is_trusted_and_criu_is_warned_of() -> Result<()> {
    let machine = machine(R580)?;
    let (a, b) = (worker(&machine, "a", "")?, worker(&machine, "b", "")?);
    let warned = |worker: &Target| -> Result<Vec<String>> {
        let outcome = machine.tool().option("--json").verb("check", &[worker.pid()])?.done()?;
        ensure!(!outcome.text().contains("shared-event"), "without --criu: {}", outcome.text());
        let pid = worker.pid().to_string();
        let outcome =
            machine.tool().option("--json").argument("check").argument("--criu").argument(pid).run()?;
        let found = outcome.events()?.into_iter().filter(|event| event["kind"] == "shared-event");
        found
            .map(|event| {
                ensure!(event["severity"] == "warning" && event["pid"] == worker.pid(), "{event}");
                ensure!(event["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{event}");
                Ok(event["message"].as_str().unwrap_or_default().to_owned())
            })
            .collect()
    };
    a.ok("shared-event e")?;
    ensure!(warned(&a)?.is_empty());
    let handle = a.ok("event-handle e")?;
    all(&b, &[&format!("open-event x {handle}"), &format!("open-event y {handle}"), "stream t"])?;
    for (worker, count) in [(&a, 1), (&b, 2)] {
        let said = warned(worker)?.concat();
        ensure!(
            said.contains(&format!("has {count} interprocess event(s)")) && said.contains("CRIU"),
            "{said}"
        );
    }
    cycles(&machine, &[&a, &b])?;
    all(&a, &["stream s", "malloc flag 4K", "memset flag 0 4K 0", "sync", "launch s wait_flag flag u32:1"])?;
    a.ok("record e s")?;
    b.refused("event-query x", 600)?;
    all(&a, &["write flag 0 01000000", "sync s"])?;
    all(&b, &["event-sync x", "event-query y"])?;
    for (worker, event) in [(&a, "e"), (&b, "x"), (&b, "y")] {
        worker.ok(&format!("destroy-event {event}"))?;
    }
    ensure!(warned(&a)?.is_empty() && warned(&b)?.is_empty());
    Ok(())
}
