//! Memory that the driver saves itself is known to the byte, and a resume that would want more than there is does not begin.

use anyhow::{Context, Result};
use integration::Machine;

const MIB: u64 = 1 << 20;

/// Bytes that the status calls so.
fn bytes(machine: &Machine, pid: i32, of: &str) -> Result<u64> {
    let status = machine.status(pid)?;
    let sum = status.pointer(&format!("/bytes/{of}")).and_then(serde_json::Value::as_u64);
    sum.with_context(|| format!("no {of}: {status}"))
}

#[test]
fn what_the_driver_keeps_is_counted_while_it_is_alive() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = machine.worker("a").preload().start()?;
    let pid = worker.pid();
    for line in ["begin 0", "stream s", "new own 2M device:0", "malloc block 4M"] {
        worker.ok(line)?;
    }
    let before = bytes(&machine, pid, "gpu")?;
    assert_eq!((bytes(&machine, pid, "driver")?, bytes(&machine, pid, "driver_host")?), (0, 0));
    for line in ["malloc-async x 6M s", "malloc-async y 10K s", "sync s", "malloc-host h 3M"] {
        worker.ok(line)?;
    }
    let kept = 6 * MIB + 10 * 1024;
    assert_eq!(bytes(&machine, pid, "driver")?, kept);
    assert_eq!(bytes(&machine, pid, "driver_host")?, 3 * MIB);
    assert_eq!(bytes(&machine, pid, "gpu")?, before + kept);

    machine.suspend(&[pid])?.done()?;
    assert_eq!(bytes(&machine, pid, "driver")?, kept);
    assert_eq!((bytes(&machine, pid, "gpu")?, bytes(&machine, pid, "saved")?), (0, before + kept));
    machine.resume(&[pid])?.done()?;

    for line in ["free y", "free-async x s", "sync s", "free-host h"] {
        worker.ok(line)?;
    }
    // What the driver does not give back is still there.
    worker.refused("free-host h", 1)?;
    machine.take_violations()?;
    assert_eq!((bytes(&machine, pid, "driver")?, bytes(&machine, pid, "driver_host")?), (0, 0));
    assert_eq!(bytes(&machine, pid, "gpu")?, before);
    Ok(())
}

/// From the device's own pool or one of the program's, by every form of the calls; what failed counts for nothing, and what a pool leaves
/// behind counts on.
#[test]
fn memory_in_the_order_of_a_stream_is_counted_whichever_pool_it_is_from() -> Result<()> {
    for road in ["resolver", "per-thread", "dlsym"] {
        let machine = Machine::stand_in()?;
        let worker = machine.worker("a").preload().argument(road).start()?;
        let pid = worker.pid();
        let counts = |expected: u64| -> Result<()> {
            assert_eq!(bytes(&machine, pid, "driver")?, expected, "{road}");
            Ok(())
        };
        for line in
            ["begin 0", "stream s", "pool private p", "malloc-async x 6M s", "malloc-from p y 3M s", "sync s"]
        {
            worker.ok(line)?;
        }
        counts(9 * MIB)?;
        for line in ["malloc-async z 8192G s", "malloc-from p z 8192G s"] {
            worker.refused(line, 2)?;
        }
        counts(9 * MIB)?;
        worker.ok("end-pool p")?;
        counts(9 * MIB)?;
        worker.ok("fill y 0 3M 7")?;
        let sum = worker.ok("sum y 0 3M")?;
        machine.suspend(&[pid])?.done()?;
        machine.resume(&[pid])?.done()?;
        assert_eq!(worker.ok("sum y 0 3M")?, sum);
        counts(9 * MIB)?;
        worker.ok("free-async y s")?;
        counts(6 * MIB)?;
        worker.ok("free x")?;
        counts(0)?;
        worker.refused("free x", 1)?;
        machine.take_violations()?;
        counts(0)?;
    }
    Ok(())
}

/// More than what contexts alone may take of a card.
#[test]
fn a_card_too_full_for_what_the_driver_saved_is_refused_before_the_restore() -> Result<()> {
    let mut machine = Machine::stand_in()?;
    machine.set("FAKECUDA_MEMORY", (4096 * MIB).to_string());
    let worker = machine.worker("a").preload().start()?;
    for line in ["begin 0", "stream s", "malloc-async x 2G s", "sync s", "fill x 0 4M 12"] {
        worker.ok(line)?;
    }
    let sum = worker.ok("sum x 0 4M")?;
    machine.suspend(&[worker.pid()])?.done()?;
    let hog = machine.worker("hog").start()?;
    for line in ["begin 0", "new x 2500M device:0"] {
        hog.ok(line)?;
    }
    let refused = machine.resume(&[worker.pid()])?;
    assert!(refused.code != 0 && refused.text().contains("memory"), "{}", refused.text());
    let status = machine.status(worker.pid())?;
    assert_eq!(status.get("driver"), Some(&"checkpointed".into()), "the restore has not begun: {status}");
    hog.ok("drop x")?;
    machine.resume(&[worker.pid()])?.done()?;
    assert_eq!(worker.ok("sum x 0 4M")?, sum);
    Ok(())
}
