//! Chunks that a device has hashed go to a store through slots of a few threads: what happens where those cannot be had.
//!
//! The places of faults are never listed by hand: they come from the log of a run without faults.

use anyhow::{Context, Result, ensure};
use integration::{Machine, Outcome, Target};

/// A worker with three chunks of noise on a device, and a store.
struct Scene {
    machine: Machine,
    worker: Target,
    sum: String,
}

impl Scene {
    fn new(threads: usize, faults: &str) -> Result<Self> {
        let machine = Machine::stand_in()?;
        let start = machine.worker("a").preload().set("NVSNAP_GPUSHARE_THREADS", threads.to_string());
        let worker = start.set("NVSNAP_GPUSHARE_STAGE", "0").set("FAKECUDA_FAULTS", faults).start()?;
        for line in ["begin 0", "new x 192M device:0", "noise x 0 192M 7"] {
            worker.ok(line)?;
        }
        let sum = worker.ok("sum x 0 192M")?;
        Ok(Self { machine, worker, sum })
    }

    fn suspend(&self) -> Result<Outcome> {
        let tool = self.machine.tool().option("--store").argument(self.machine.path("store"));
        tool.option("--ckpt-dir").argument(self.machine.path("ckpt")).verb("suspend", &[self.worker.pid()])
    }

    fn resume(&self) -> Result<()> {
        self.machine.resume(&[self.worker.pid()])?.done()?;
        self.is_as_it_was()
    }

    fn is_as_it_was(&self) -> Result<()> {
        ensure!(self.worker.ok("sum x 0 192M")? == self.sum, "the bytes changed");
        Ok(())
    }

    /// How often the process has called functions whose names begin so.
    fn count(&self, name: &str) -> Result<usize> {
        let calls = self.machine.calls(self.worker.pid())?;
        Ok(calls.iter().filter(|call| call.name.starts_with(name)).count())
    }
}

#[test]
fn without_streams_and_registered_memory_all_bytes_are_saved_and_nobody_asks_for_them_again_and_again()
-> Result<()> {
    let names = ["cuStreamCreate", "cuMemHostRegister"];
    let first = {
        let scene = Scene::new(2, "")?;
        let first = [scene.count(names[0])? + 1, scene.count(names[1])? + 1];
        scene.suspend()?.done()?;
        for (name, first) in names.iter().zip(first) {
            ensure!(scene.count(name)? >= first, "a save makes no call of {name}");
        }
        first
    };
    let faults: Vec<String> =
        names.iter().zip(first).map(|(name, first)| format!("{name}*:{first}+:*=oom")).collect();
    let scene = Scene::new(2, &faults.join(";"))?;
    scene.suspend()?.done()?;
    let log = scene.worker.log();
    ensure!(log.contains("copies are slower without") && log.contains("the default stream does"), "{log}");
    // Two slots of each thread, and 96 pieces of 2 MiB.
    let asked = scene.count(names[1])? + 1 - first[1];
    ensure!((2..=4).contains(&asked), "memory was to be registered {asked} times");
    scene.resume()
}

/// A context that cannot be made current leaves a thread without slots: which calls those are.
fn each_push_fails_once(threads: usize, check: impl Fn(&Outcome) -> Result<()>) -> Result<Vec<usize>> {
    let (before, after) = {
        let scene = Scene::new(threads, "")?;
        let before = scene.count("cuCtxPushCurrent")?;
        scene.suspend()?.done()?;
        (before, scene.count("cuCtxPushCurrent")?)
    };
    ensure!(after > before, "a save makes no context current");
    let mut without_slots = Vec::new();
    for nth in before + 1..=after {
        let scene = Scene::new(threads, &format!("cuCtxPushCurrent*:{nth}:*=oom"))?;
        let suspend = scene.suspend()?;
        if scene.worker.log().contains(
            "device 0: cuCtxPushCurrent_v2 failed with CUDA_ERROR_OUT_OF_MEMORY (2); there is one thread less",
        ) {
            without_slots.push(nth);
            check(&suspend).with_context(|| format!("push {nth}: {}", suspend.text()))?;
        }
        if suspend.code == 0 {
            scene.resume()?;
        }
        scene.is_as_it_was().with_context(|| format!("push {nth}"))?;
        scene.suspend()?.done().with_context(|| format!("a suspend after push {nth}"))?;
        scene.resume().with_context(|| format!("a resume after push {nth}"))?;
    }
    ensure!(without_slots.len() == threads, "{without_slots:?} left {threads} threads without slots");
    Ok(without_slots)
}

fn fails_with_the_cause(suspend: &Outcome) -> Result<()> {
    ensure!(suspend.code == 1, "exit status {}: {}", suspend.code, suspend.text());
    ensure!(suspend.text().contains("cuCtxPushCurrent"), "the cause is not told: {}", suspend.text());
    Ok(())
}

#[test]
fn a_save_whose_only_thread_has_no_slots_fails_and_leaves_out_nothing() -> Result<()> {
    each_push_fails_once(1, fails_with_the_cause).map(drop)
}

#[test]
fn a_thread_without_slots_leaves_all_chunks_to_the_other_and_two_are_an_error() -> Result<()> {
    let pushes = each_push_fails_once(2, |suspend| {
        ensure!(suspend.code == 0, "exit status {}", suspend.code);
        Ok(())
    })?;
    // The last first: a fault that stands for a call hides it from those behind.
    let faults: Vec<String> =
        pushes.iter().rev().map(|nth| format!("cuCtxPushCurrent*:{nth}:*=oom")).collect();
    let scene = Scene::new(2, &faults.join(";"))?;
    fails_with_the_cause(&scene.suspend()?)?;
    scene.is_as_it_was()?;
    scene.suspend()?.done().context("a later suspend")?;
    scene.resume()
}
