//! Programs choose their way by error codes: with the library they have to be the very ones the driver gives.

use anyhow::Result;
use integration::{Machine, Target};

/// Asks the same of a worker with the library and of one without; the answers come back side by side.
struct Twins {
    _machine: Machine,
    without: Target,
    with: Target,
}

impl Twins {
    fn new() -> Result<Self> {
        let machine = Machine::stand_in()?;
        let without = machine.worker("without").start()?;
        let with = machine.worker("with").preload().start()?;
        Ok(Self { _machine: machine, without, with })
    }

    fn ask(&self, line: &str) -> Result<String> {
        let (native, shimmed) = (self.without.ask(line)?, self.with.ask(line)?);
        assert!(!native.starts_with("usage"), "`{line}` answered `{native}`");
        assert_eq!(native, shimmed, "`{line}`");
        Ok(native)
    }

    fn all(&self, lines: &[&str]) -> Result<()> {
        lines.iter().try_for_each(|line| self.ask(line).map(drop))
    }
}

#[test]
fn before_the_driver_is_initialised() -> Result<()> {
    let twins = Twins::new()?;
    twins.all(&[
        "create x 2M device:0 fd",
        "reserve r 2M",
        "current",
        "malloc y 4K",
        "devices",
        "version",
    ])?;
    for call in
        ["cuMemRelease", "cuMemMap", "cuMemUnmap", "cuMemSetAccess", "cuCtxSynchronize", "cuMemFree_v2"]
    {
        twins.ask(&format!("raw dlsym {call} 4096 4096"))?;
    }
    twins.all(&["init", "create x 2M device:0 fd", "malloc y 4K", "current", "sync"])
}

#[test]
fn every_kind_of_address_given_to_every_way_of_freeing() -> Result<()> {
    let twins = Twins::new()?;
    twins.all(&["begin 0", "stream s", "reserve unreserved 2M", "unreserve unreserved"])?;
    let kinds: &[(&str, &[&str])] = &[
        ("plain", &["malloc plain 64K"]),
        ("ordered", &["malloc-async ordered 64K s", "sync s"]),
        ("virtual", &["new virtual 2M device:0"]),
        ("reserved", &["reserve reserved 2M"]),
        ("host", &["malloc-host host 4K"]),
        ("unreserved", &[]),
    ];
    let frees = [
        "free X",
        "free X 512",
        "raw dlsym cuMemFree_v2 0",
        "free-async X s",
        "free-host X",
        "ipc-close X",
        "unreserve X",
        "unmap X 0 4096",
        "unmap X",
        "free X",
    ];
    for (kind, make) in kinds {
        for free in frees {
            twins.all(make)?;
            twins.ask(&free.replace('X', kind))?;
            twins.all(&["sync s", "extent plain 0", "attribute 2 plain 0"])?;
        }
    }
    // What a program gets wrong here the driver refuses, and notes.
    twins._machine.take_violations()?;
    Ok(())
}

#[test]
fn imports_of_what_is_no_memory_handle() -> Result<()> {
    let twins = Twins::new()?;
    twins.all(&["begin 0", "new x 2M device:0 fd", "export fd x"])?;
    // Without 8: fabric handles are hidden, and have tests of their own.
    for kind in [0, 1, 2, 4, 99] {
        for fd in ["0", "9999"] {
            twins.ask(&format!("raw dlsym cuMemImportFromShareableHandle out {fd} {kind}"))?;
        }
        twins.ask(&format!("raw dlsym cuMemExportToShareableHandle out handle:x {kind} 0"))?;
        twins.ask(&format!("raw dlsym cuMemExportToShareableHandle out handle:x {kind} 1"))?;
    }
    twins.all(&["close fd", "import y fd", "drop x"])?;
    twins._machine.take_violations()?;
    Ok(())
}

/// Its descriptor is imported by whoever has initialised the driver, and by nobody else.
#[test]
fn an_exporter_that_ended_before_any_import() -> Result<()> {
    let twins = Twins::new()?;
    twins.all(&["listen"])?;
    let exporter = |preload: bool, name: &str| -> Result<Target> {
        let exporter = twins._machine.worker(&format!("{name}-{preload}")).preload_if(preload).start()?;
        let to = if preload { "with" } else { "without" };
        let send = format!("send {name} {to}");
        for line in ["begin 0", "new x 4M device:0 fd", "fill x 0 4M 7", &format!("export {name} x"), &send] {
            exporter.ok(line)?;
        }
        Ok(exporter)
    };
    for name in ["ended", "killed"] {
        let exporters = [exporter(false, name)?, exporter(true, name)?];
        twins.all(&[&format!("receive {name}")])?;
        for exporter in exporters {
            match name {
                "ended" => drop(exporter.end()?),
                _ => exporter.kill()?,
            }
        }
        assert_eq!(twins.ask(&format!("import early-{name} {name}"))?, "error 3 CUDA_ERROR_NOT_INITIALIZED");
    }
    twins.all(&["begin 0"])?;
    for name in ["ended", "killed"] {
        let imported = twins.ask(&format!("import {name} {name}"))?;
        assert!(imported.starts_with("ok"), "{imported}");
        twins.all(&[&format!("show {name} 4M"), &format!("sum {name} 0 4M"), &format!("props {name}")])?;
    }
    twins._machine.take_violations()?;
    Ok(())
}

#[test]
fn a_single_null_argument() -> Result<()> {
    let twins = Twins::new()?;
    twins.all(&["begin 0", "new x 2M device:0 fd", "reserve r 2M", "export fd x"])?;
    for line in [
        "cuMemCreate 0 2M 0 0",
        "cuMemCreate out 2M 0 0",
        "cuMemRelease 0",
        "cuMemRetainAllocationHandle 0 x",
        "cuMemRetainAllocationHandle out 0",
        "cuMemGetAllocationPropertiesFromHandle 0 handle:x",
        "cuMemGetAllocationPropertiesFromHandle out 0",
        "cuMemExportToShareableHandle 0 handle:x 1 0",
        "cuMemExportToShareableHandle out 0 1 0",
        "cuMemImportFromShareableHandle 0 3 1",
        "cuMemMap 0 2M 0 handle:x 0",
        "cuMemMap r 0 0 handle:x 0",
        "cuMemMap r 2M 0 0 0",
        "cuMemUnmap 0 2M",
        "cuMemUnmap x 0",
        "cuMemSetAccess x 2M 0 1",
        "cuMemSetAccess x 2M out 0",
        "cuMemSetAccess x 0 0 0",
        "cuMemSetAccess 0 2M 0 0",
        "cuMemGetAccess 0 out x",
        "cuMemGetAccess out 0 x",
        "cuMemAddressReserve 0 2M 0 0 0",
        "cuMemAddressReserve out 0 0 0 0",
        "cuMemAddressFree 0 2M",
        "cuMemAddressFree r 0",
        "cuMemFree_v2 0",
        "cuMemAlloc_v2 0 4096",
        "cuMemAlloc_v2 out 0",
    ] {
        for road in ["dlsym", "resolver"] {
            twins.ask(&format!("raw {road} {line}"))?;
        }
    }
    twins.all(&["sum x 0 2M", "drop x"])?;
    twins._machine.take_violations()?;
    Ok(())
}

/// Everything that may be wrong with an opening, as both sides answer it.
fn openings(preload: bool) -> Result<Vec<String>> {
    let machine = Machine::stand_in()?;
    let start = |name: &str| -> Result<Target> {
        let worker = machine.worker(name).preload_if(preload).start()?;
        for line in ["listen", "begin 0", "stream s"] {
            worker.ok(line)?;
        }
        Ok(worker)
    };
    let (exporter, opener) = (start("exporter")?, start("opener")?);
    for line in [
        "malloc x 4M",
        "fill x 0 4M 8",
        "malloc small 4096",
        "malloc freed 4M",
        "malloc-async pooled 4M s",
        "malloc-host host 4K",
    ] {
        exporter.ok(line)?;
    }
    let [x, small, freed] = ["x", "small", "freed"].map(|name| exporter.ok(&format!("ipc-get {name} 0")));
    let (x, small, freed) = (x?, small?, freed?);
    let mut said = Vec::new();
    let mut ask = |worker: &Target, line: &str, handle: &str| -> Result<()> {
        let answer = worker.ask(&format!("{line} {handle}"))?;
        assert!(!answer.starts_with("usage"), "`{line}` answered `{answer}`");
        // A handle is different each time; that there is one is what counts.
        let same = if line.starts_with("ipc-get") && answer.starts_with("ok") { "ok" } else { &answer };
        said.push(format!("{line}: {same}"));
        Ok(())
    };
    for line in ["ipc-get x 4096", "ipc-get small 100", "ipc-get x 4M", "ipc-get pooled 0", "ipc-get host 0"]
    {
        ask(&exporter, line, "")?;
    }
    ask(&exporter, "ipc-open own 4M", &x)?;
    ask(&exporter, "ipc-close x", "")?;
    for byte in ["00", "ff"] {
        ask(&opener, "ipc-open bogus 4M", &byte.repeat(64))?;
    }
    for flags in ["0", "2", "3"] {
        ask(&opener, "ipc-open x 4M", &format!("{x} {flags}"))?;
    }
    ask(&opener, "on bare ipc-open x 4M", &x)?;
    for (name, handle) in [("x", &x), ("x", &x), ("small", &small)] {
        ask(&opener, &format!("ipc-open {name} 4096"), handle)?;
    }
    for line in [
        "ipc-get x 0",
        "ipc-get small 0",
        "free x",
        "free-async x s",
        "retain h x",
        "unmap x",
        "extent x 4095",
    ] {
        ask(&opener, line, "")?;
    }
    for line in ["ipc-close x 0", "ipc-close x 0", "ipc-close x 0", "ipc-close small", "ipc-close small"] {
        ask(&opener, line, "")?;
    }
    exporter.ok("free freed")?;
    ask(&opener, "ipc-open freed 4M", &freed)?;
    ask(&opener, "ipc-open x 4096", &x)?;
    exporter.kill()?;
    exporter.wait()?;
    ask(&opener, "read x 0 4", "")?;
    ask(&opener, "ipc-open small 4096", &small)?;
    ask(&opener, "ipc-close x", "")?;
    machine.take_violations()?;
    Ok(said)
}

/// Engines choose between CUDA IPC and NCCL by these.
#[test]
fn everything_that_may_be_wrong_with_an_ipc_handle() -> Result<()> {
    let (native, shimmed) = (openings(false)?, openings(true)?);
    for (native, shimmed) in native.iter().zip(&shimmed) {
        assert_eq!(native, shimmed);
    }
    assert_eq!(native.len(), shimmed.len());
    Ok(())
}

/// A process without the library cannot open what one with it has handed out; neither is the worse for it.
#[test]
fn a_handle_that_a_process_without_the_library_is_given() -> Result<()> {
    let machine = Machine::stand_in()?;
    let (exporter, bare) = (machine.worker("exporter").preload().start()?, machine.worker("bare").start()?);
    for worker in [&exporter, &bare] {
        worker.ok("begin 0")?;
    }
    for line in ["malloc x 4M", "fill x 0 4M 8"] {
        exporter.ok(line)?;
    }
    let (handle, sum) = (exporter.ok("ipc-get x 0")?, exporter.ok("sum x 0 4M")?);
    bare.refused(&format!("ipc-open x 4M {handle}"), 1)?;
    // Nor can it import what is handed out as a descriptor.
    bare.ok("listen")?;
    for line in ["new y 2M device:0 fd", "export fd y", "send fd bare"] {
        exporter.ok(line)?;
    }
    bare.ok("receive fd")?;
    bare.refused("import y fd", 999)?;
    machine.take_violations()?;
    bare.ok("malloc y 4M")?;
    machine.suspend(&[exporter.pid()])?.done()?;
    machine.resume(&[exporter.pid()])?.done()?;
    assert_eq!(exporter.ok("sum x 0 4M")?, sum);
    Ok(())
}
