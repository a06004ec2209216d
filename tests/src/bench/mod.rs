//! One table, side by side in one run: the driver's own checkpoint of some memory, this project's in all its ways, and
//! what the hardware gives when nothing is in the way.
//!
//! Contents are checked after every cycle: a fast wrong answer is no result.

mod ceilings;
mod protocol;
mod sheet;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::machine::{Driver, Machine, TMPFS};
use crate::target::Target;
use crate::tool::Tool;
use sheet::{Leg, Sheet};

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// On which driver.
    pub driver: Driver,
    /// Memory of the process, in MiB.
    pub mib: u64,
    /// A folder on a disk, for a store; a store in memory is measured anyway.
    pub disk: Option<PathBuf>,
}

/// Measures, and prints the table row by row.
pub fn bench(plan: &Plan) -> Result<()> {
    let mut machine = Machine::new(plan.driver)?;
    if plan.driver == Driver::StandIn {
        machine.set("FAKECUDA_MEMORY", (16_u64 << 30).to_string());
    }
    let mut bench = Bench { machine: &machine, sheet: Sheet::new(plan.driver), bytes: plan.mib << 20 };
    bench.ceilings(plan)?;
    bench.sheet.head();
    // That of the stand-in moves no bytes.
    if plan.driver == Driver::Real {
        bench.driver_alone()?;
    }
    bench.in_place()?;
    bench.zeros()?;
    bench.arena_kept()?;
    bench.store("memory", Path::new(TMPFS))?;
    if let Some(disk) = &plan.disk {
        bench.store("disk", disk)?;
    }
    protocol::protocol(plan.driver)
}

struct Bench<'m> {
    machine: &'m Machine,
    sheet: Sheet,
    bytes: u64,
}

impl Bench<'_> {
    fn ceilings(&self, plan: &Plan) -> Result<()> {
        let worker = self.machine.worker("bus").start()?;
        worker.ok("begin 0")?;
        self.sheet.bound("bus, page-locked", ceilings::bus(&worker, self.bytes.min(1 << 30))?);
        worker.end()?;
        let some = self.bytes.min(8 << 30);
        self.sheet.bound("huge pages, first touch and read", ceilings::memory(some)?);
        self.sheet.bound("files in memory", ceilings::folder(Path::new(TMPFS), some)?);
        if let Some(disk) = &plan.disk {
            self.sheet.bound("files on disk", ceilings::folder(disk, some)?);
        }
        Ok(())
    }

    /// A worker whose memory looks like chance, or is zero.
    fn worker(&self, preload: bool, random: bool) -> Result<Target> {
        let worker = self.machine.worker("bench").preload_if(preload).start()?;
        worker.ok("begin 0")?;
        worker.ok(&format!("new x {} device:0", self.bytes))?;
        let kernel = if random { "noise" } else { "fill" };
        worker.ok(&format!("{kernel} x 0 {} 0", self.bytes))?;
        Ok(worker)
    }

    fn sum(&self, worker: &Target) -> Result<String> {
        worker.ok(&format!("sum x 0 {}", self.bytes))
    }

    /// The checkpoint API on a process without the library.
    fn driver_alone(&mut self) -> Result<()> {
        let (worker, caller) = (self.worker(false, true)?, self.machine.worker("caller").start()?);
        caller.ok("init")?;
        let before = self.sum(&worker)?;
        let timed = |lines: [String; 2]| -> Result<Leg> {
            let begin = Instant::now();
            lines.iter().try_for_each(|line| caller.ok(line).map(|_| ()))?;
            let whole = begin.elapsed();
            Ok(Leg { whole, moving: whole, moved: self.bytes })
        };
        let pid = worker.pid();
        let out = timed([format!("lock {pid} 5000"), format!("checkpoint {pid}")])?;
        let back = timed([format!("restore {pid}"), format!("unlock {pid}")])?;
        ensure!(self.sum(&worker)? == before, "the driver changed bytes");
        self.sheet.row("the driver alone", self.bytes, out, back);
        worker.end().map(|_| ())
    }

    /// Host memory, given back after each cycle.
    fn in_place(&mut self) -> Result<()> {
        let worker = self.worker(true, true)?;
        for what in ["in place, first cycle", "in place, second cycle"] {
            self.cycle(what, &worker, &[], &[])?;
        }
        worker.end().map(|_| ())
    }

    /// Host memory that stays.
    fn arena_kept(&mut self) -> Result<()> {
        let worker = self.worker(true, true)?;
        let keep = &["--keep-arena"];
        self.cycle("arena kept, cold", &worker, keep, &[])?;
        self.cycle("arena kept, unchanged", &worker, keep, &[])?;
        worker.ok(&format!("noise x 0 {} 7", self.bytes / 100 / 4096 * 4096))?;
        self.cycle("arena kept, 1% changed", &worker, keep, &[])?;
        worker.ok(&format!("noise x 0 {} 8", self.bytes))?;
        self.cycle("arena kept (warm), all changed", &worker, keep, &[])?;
        worker.end().map(|_| ())
    }

    fn zeros(&mut self) -> Result<()> {
        let worker = self.worker(true, false)?;
        self.cycle("in place, all zero", &worker, &[], &[])?;
        worker.end().map(|_| ())
    }

    /// A store in this folder: empty, then with everything in it, then with a hundredth changed.
    fn store(&mut self, kind: &str, folder: &Path) -> Result<()> {
        let own = tempfile::Builder::new().prefix("nvsnap-bench-").tempdir_in(folder)?;
        let (store, list) = (own.path().join("store"), own.path().join("checkpoint"));
        for folder in [&store, &list] {
            std::fs::create_dir(folder)?;
        }
        let (store, list) =
            (store.to_str().context("a name in UTF-8")?, list.to_str().context("a name in UTF-8")?);
        let out = ["--store", store, "--ckpt-dir", list];
        let worker = self.worker(true, true)?;
        self.cycle(&format!("store in {kind}, empty"), &worker, &out, &[])?;
        self.cycle(&format!("store in {kind}, unchanged"), &worker, &out, &[])?;
        worker.ok(&format!("noise x 0 {} 7", self.bytes / 100 / 4096 * 4096))?;
        self.cycle(&format!("store in {kind}, 1% changed"), &worker, &out, &[])?;
        worker.end().map(|_| ())
    }

    fn cycle(&mut self, what: &str, worker: &Target, out: &[&str], back: &[&str]) -> Result<()> {
        let before = self.sum(worker)?;
        let suspend = self.command("suspend", worker, out, "save")?;
        let resume = self.command("resume", worker, back, "load")?;
        ensure!(self.sum(worker)? == before, "{what}: bytes changed");
        self.sheet.row(what, self.bytes, suspend, resume);
        Ok(())
    }

    /// Runs the command, and reads from its events what it did.
    fn command(&self, verb: &str, worker: &Target, options: &[&str], stage: &str) -> Result<Leg> {
        let tool =
            options.iter().fold(self.machine.tool().option("--json"), |tool: Tool, word| tool.option(word));
        let begin = Instant::now();
        let outcome = tool.verb(verb, &[worker.pid()])?.done()?;
        let mut leg = Leg { whole: begin.elapsed(), ..Leg::default() };
        for event in outcome.events()? {
            let text = |key: &str| event.get(key).and_then(|value| value.as_str());
            if text("stage") != Some(stage) {
                continue;
            }
            if text("event") == Some("end") {
                let seconds = event.get("seconds").and_then(|seconds| seconds.as_f64());
                leg.moving = Duration::from_secs_f64(seconds.context("a stage has its seconds")?);
            }
            leg.moved += event.pointer("/bytes/moved").and_then(|bytes| bytes.as_u64()).unwrap_or(0);
        }
        Ok(leg)
    }
}
