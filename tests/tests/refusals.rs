//! What cannot be carried yet is refused before anything is touched, and said in a sentence with the process in it.

#[path = "refusals/kinds.rs"]
mod kinds;

use anyhow::Result;
use integration::{Machine, Target};

const REFUSED: i32 = 4;

fn worker(machine: &Machine, name: &str, preload: bool) -> Result<Target> {
    let worker = machine.worker(name).preload_if(preload).start()?;
    for line in ["listen", "begin 0", "new good 2M device:0 fd", "fill good 0 2M 1"] {
        worker.ok(line)?;
    }
    Ok(worker)
}

fn all(worker: &Target, lines: &[&str]) -> Result<()> {
    lines.iter().try_for_each(|line| worker.ok(line).map(drop))
}

/// `check` and `suspend` refuse these processes, naming `pid` and `what`, and every worker goes on as before.
fn refuses(machine: &Machine, targets: &[&Target], pid: i32, what: &str) -> Result<()> {
    let pids: Vec<i32> = targets.iter().map(|target| target.pid()).collect();
    for verb in ["check", "suspend"] {
        let outcome = machine.tool().verb(verb, &pids)?.exits(REFUSED)?;
        let text = outcome.text();
        assert!(text.contains(&pid.to_string()), "{verb} does not name {pid}: {text}");
        assert!(text.to_lowercase().contains(what), "{verb} does not say `{what}`: {text}");
    }
    for target in targets {
        let sum = target.ok("sum good 0 2M")?;
        all(target, &["new more 2M device:0", "fill more 0 2M 1"])?;
        assert_eq!(target.ok("sum more 0 2M")?, sum);
        target.ok("drop more")?;
    }
    Ok(())
}

fn accepts(machine: &Machine, targets: &[&Target]) -> Result<()> {
    let pids: Vec<i32> = targets.iter().map(|target| target.pid()).collect();
    machine.tool().verb("check", &pids)?.done()?;
    machine.suspend(&pids)?.done()?;
    machine.resume(&pids)?.done().map(drop)
}

#[test]
fn an_open_ipc_handle() -> Result<()> {
    let machine = Machine::stand_in()?;
    let exporter = worker(&machine, "exporter", false)?;
    let opener = worker(&machine, "opener", true)?;
    exporter.ok("malloc x 2M")?;
    let handle = exporter.ok("ipc-get x 0")?;
    opener.ok(&format!("ipc-open x 2M {handle}"))?;
    refuses(&machine, &[&opener], opener.pid(), "ipc")?;
    opener.ok("ipc-close x")?;
    accepts(&machine, &[&opener])
}

#[test]
fn managed_memory() -> Result<()> {
    let machine = Machine::stand_in()?;
    let holder = worker(&machine, "holder", true)?;
    holder.ok("managed x 2M")?;
    refuses(&machine, &[&holder], holder.pid(), "managed")?;
    holder.ok("free x")?;
    accepts(&machine, &[&holder])
}

#[test]
fn a_pool_that_can_be_shared() -> Result<()> {
    let machine = Machine::stand_in()?;
    let private = worker(&machine, "private", true)?;
    private.ok("pool private")?;
    accepts(&machine, &[&private])?;
    let shared = worker(&machine, "shared", true)?;
    shared.ok("pool fd")?;
    refuses(&machine, &[&shared], shared.pid(), "pool")?;
    shared.ok("end-pool pool")?;
    accepts(&machine, &[&shared])
}

/// A pool of another process, and what is imported of it, each counts. A pool that is destroyed lives on in what was
/// obtained from it.
#[test]
fn a_pool_of_another_process() -> Result<()> {
    let machine = Machine::stand_in()?;
    let (exporter, importer) = (worker(&machine, "exporter", false)?, worker(&machine, "importer", true)?);
    let both = [&exporter, &importer];
    accepts(&machine, &[&importer])?;
    for worker in both {
        worker.ok("stream s")?;
    }
    all(
        &exporter,
        &["pool fd p", "malloc-from p x 2M s", "malloc-from p y 2M s", "sync s", "fill x 0 2M 5"],
    )?;
    all(&exporter, &["export-pool fd p", "send fd importer"])?;
    all(&importer, &["receive fd", "import-pool p fd"])?;
    let counts = |count: u32| {
        refuses(&machine, &[&importer], importer.pid(), &format!("holds {count} memory pool(s)"))?;
        refuses(&machine, &[&importer], importer.pid(), "use pools without a shareable handle type")
    };
    counts(1)?;
    for (name, count) in [("x", 2), ("y", 3)] {
        let pointer = exporter.ok(&format!("export-pointer {name}"))?;
        importer.ok(&format!("import-pointer {name} 2M p {pointer}"))?;
        counts(count)?;
    }
    assert_eq!(importer.ok("sum x 0 2M")?, exporter.ok("sum x 0 2M")?);
    importer.ok("end-pool p")?;
    counts(2)?;
    importer.ok("free x")?;
    counts(1)?;
    all(&importer, &["free-async y s", "sync s"])?;
    accepts(&machine, &[&importer])
}

#[test]
fn a_process_without_the_library() -> Result<()> {
    let machine = Machine::stand_in()?;
    let (bare, shimmed) = (worker(&machine, "bare", false)?, worker(&machine, "shimmed", true)?);
    refuses(&machine, &[&bare, &shimmed], bare.pid(), "libnvsnap_gpushare")?;
    accepts(&machine, &[&shimmed])
}

#[test]
fn an_import_whose_exporter_is_not_named() -> Result<()> {
    let machine = Machine::stand_in()?;
    let (a, b) = (worker(&machine, "a", true)?, worker(&machine, "b", true)?);
    all(&a, &["export fd good", "send fd b"])?;
    all(&b, &["receive fd", "import x fd", "show x 2M"])?;
    refuses(&machine, &[&b], a.pid(), "")?;
    accepts(&machine, &[&a, &b])?;
    // The other way round the exporter would leave with memory that another still uses.
    refuses(&machine, &[&a], b.pid(), "")
}

#[test]
fn an_import_from_a_process_without_the_library() -> Result<()> {
    let machine = Machine::stand_in()?;
    let (a, b) = (worker(&machine, "a", false)?, worker(&machine, "b", true)?);
    all(&a, &["export fd good", "send fd b"])?;
    all(&b, &["receive fd", "import x fd", "show x 2M"])?;
    refuses(&machine, &[&b], b.pid(), "import")?;
    b.ok("drop x")?;
    accepts(&machine, &[&b])
}

#[test]
fn a_driver_without_the_checkpoint_api() -> Result<()> {
    let mut machine = Machine::stand_in()?;
    machine.set("FAKECUDA_WITHOUT", "checkpoint");
    let holder = worker(&machine, "holder", true)?;
    let outcome = machine.tool().verb("suspend", &[holder.pid()])?;
    assert_eq!(outcome.code, REFUSED, "{}", outcome.text());
    assert!(outcome.text().contains("driver"), "{}", outcome.text());
    holder.ok("sum good 0 2M")?;
    Ok(())
}

/// What other APIs and devices hold of a program's memory: refused with the count and a remedy while it is there, and not after.
#[test]
fn what_other_apis_and_devices_hold() -> Result<()> {
    // How it is made, what `check` says of it, its remedy, and how it ends.
    let kinds: [(&[&str], &str, &str, &[&str]); 4] = [
        (&["new x 2M device:0", "dma-buf f x 2M"], "1 raw handle", "dma-buf", &["close f", "drop x"]),
        (
            &["sparse map 4096 good", "sparse map 8192 good"],
            "2 sparse",
            "free them",
            &["sparse unmap 4096 good", "sparse unmap 8192 good"],
        ),
        (&["external e"], "1 allocation(s) of a graphics api", "free them", &["end-external e"]),
        (
            &["graphics map 64", "graphics map 128"],
            "2 mapped graphics",
            "unmap them",
            &["graphics unmap 64", "graphics unmap 128"],
        ),
    ];
    for (make, count, remedy, end) in kinds {
        let machine = Machine::stand_in()?;
        let holder = worker(&machine, "holder", true)?;
        accepts(&machine, &[&holder])?;
        all(&holder, make)?;
        refuses(&machine, &[&holder], holder.pid(), count)?;
        refuses(&machine, &[&holder], holder.pid(), remedy)?;
        all(&holder, end)?;
        accepts(&machine, &[&holder])?;
    }
    Ok(())
}

#[test]
fn a_raw_descriptor_that_was_asked_for() -> Result<()> {
    let machine = Machine::stand_in()?;
    let holder = machine.worker("holder").preload().set("NVSNAP_GPUSHARE_RAW_FD", "1").start()?;
    all(&holder, &["begin 0", "new good 2M device:0 fd", "fill good 0 2M 1"])?;
    accepts(&machine, &[&holder])?;
    holder.ok("export fd good")?;
    refuses(&machine, &[&holder], holder.pid(), "nvsnap_gpushare_raw_fd")
}
