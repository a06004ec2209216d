//! `scripts/install` over an installation that is in use.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use integration::Machine;

/// What was built, laid out as `make dist` does.
fn layout(machine: &Machine) -> Result<std::path::PathBuf> {
    let dist = machine.path("dist");
    let artifacts = machine.artifacts();
    let files = [(&artifacts.shim, "lib/libnvsnap_gpushare.so"), (&artifacts.tool, "bin/nvsnap-gpu-suspend")];
    for (from, to) in files {
        std::fs::create_dir_all(dist.join(to).parent().unwrap_or(&dist))?;
        std::fs::copy(from, dist.join(to))?;
    }
    for text in [
        "share/man/man1/nvsnap-gpu-suspend.1",
        "share/man/man1/nvsnap-gpu-suspend-suspend.1",
        "share/completions/nvsnap-gpu-suspend.bash",
        "share/completions/_nvsnap-gpu-suspend",
        "share/completions/nvsnap-gpu-suspend.fish",
    ] {
        std::fs::create_dir_all(dist.join(text).parent().unwrap_or(&dist))?;
        std::fs::write(dist.join(text), "a text\n")?;
    }
    Ok(dist)
}

fn install(machine: &Machine, dist: &Path) -> Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/install");
    let output = Command::new(script).arg(dist).arg(machine.path("prefix")).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[test]
fn a_process_that_runs_keeps_the_whole_file_it_has_mapped() -> Result<()> {
    let machine = Machine::stand_in()?;
    let dist = layout(&machine)?;
    install(&machine, &dist)?;
    let library = machine.path("prefix/lib/libnvsnap_gpushare.so");
    let before = std::fs::metadata(&library)?;
    let worker = machine.worker("a").set("LD_PRELOAD", &library).start()?;
    for line in ["begin 0", "new x 4M device:0 fd", "fill x 0 4M 3"] {
        worker.ok(line)?;
    }
    let sum = worker.ok("sum x 0 4M")?;
    let pids = [worker.pid()];
    let whole = machine.tool().verb("check", &pids)?.done()?;
    assert!(!whole.text().contains("replaced"), "{}", whole.text());

    install(&machine, &dist)?;
    let after = std::fs::metadata(&library)?;
    assert_ne!(before.ino(), after.ino(), "the file was written over, not replaced");
    assert_eq!(std::fs::read(&library)?, std::fs::read(&machine.artifacts().shim)?);
    let left: Vec<_> = std::fs::read_dir(machine.path("prefix/lib"))?.collect::<Result<_, _>>()?;
    assert_eq!(left.len(), 1, "{left:?}");

    let replaced = machine.tool().verb("check", &pids)?.done()?;
    assert!(replaced.text().contains("was replaced or deleted since it was loaded"), "{}", replaced.text());
    machine.suspend(&pids)?.done()?;
    machine.resume(&pids)?.done()?;
    assert_eq!(worker.ok("sum x 0 4M")?, sum);
    Ok(())
}

#[test]
fn every_verb_has_a_page_of_the_manual_with_its_options() -> Result<()> {
    let machine = Machine::stand_in()?;
    let pages = machine.path("pages");
    std::fs::create_dir(&pages)?;
    machine.tool().option("man").argument(&pages).run()?.done()?;
    for (verb, option) in [("suspend", "keep\\-arena"), ("resume", "gpu\\-map"), ("store-gc", "delete")] {
        let page = std::fs::read_to_string(pages.join(format!("nvsnap-gpu-suspend-{verb}.1")))?;
        ensure!(page.contains(option), "{verb}: {page}");
    }
    ensure!(!pages.join("nvsnap-gpu-suspend-hold.1").exists(), "the inside of the command has a page");
    let nowhere = machine.tool().option("man").argument(machine.path("nowhere")).run()?.exits(1)?;
    ensure!(nowhere.text().contains("cannot be written"), "{}", nowhere.text());
    Ok(())
}
