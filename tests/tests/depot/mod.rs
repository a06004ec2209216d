//! Two workers with memory of every kind that is saved, a store and what belongs to it.
#![allow(
    dead_code,
    clippy::indexing_slicing,
    reason = "each test file uses its own part, and fails where it cannot go on"
)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use integration::{Machine, Outcome, Target, Tool};

/// Two workers that share a buffer, and directories with names that need care.
pub(crate) struct Depot {
    pub(crate) machine: Machine,
    pub(crate) workers: [Target; 2],
    sums: Vec<String>,
}

/// What the first worker makes: name, size, location. Chunks of its own, shared ones, zeros, host memory, two devices.
const FIRST: [(&str, &str, &str); 6] = [
    ("shared", "4M", "device:0 fd"),
    ("large", "130M", "device:0"),
    ("small", "2M", "device:0"),
    ("zero", "66M", "device:0"),
    ("other", "6M", "device:1"),
    ("host", "2M", "host"),
];

impl Depot {
    pub(crate) fn new() -> Result<Self> {
        Self::with(Machine::stand_in()?, |start| start)
    }

    /// On a machine of the test's own, with workers that are started its way.
    pub(crate) fn with(
        machine: Machine,
        how: impl Fn(integration::Start<'_>) -> integration::Start<'_>,
    ) -> Result<Self> {
        let start = |name: &str, index: &str| -> Result<Target> {
            let worker = how(machine.worker(name).preload().set("FAKECUDA_INDEX", index)).start()?;
            for line in ["listen", "begin 1", "begin 0"] {
                worker.ok(line)?;
            }
            Ok(worker)
        };
        let workers = [start("a", "1")?, start("b", "2")?];
        let [a, b] = &workers;
        for (name, size, location) in FIRST {
            a.ok(&format!("new {name} {size} {location}"))?;
        }
        // Chunks that differ, so that each is a file of its own.
        for (name, at, size, value) in [
            ("shared", "0", "4M", 3),
            ("large", "0", "64M", 5),
            ("large", "64M", "64M", 6),
            ("large", "128M", "2M", 7),
            ("small", "0", "2M", 9),
        ] {
            a.ok(&format!("fill {name} {at} {size} {value}"))?;
        }
        for line in ["context 1", "fill other 0 6M 11", "context 0"] {
            a.ok(line)?;
        }
        a.ok("write large 70000000 0102030405")?;
        a.ok("memset host 0 2M 77")?;
        for line in ["export shared shared", "send shared b"] {
            a.ok(line)?;
        }
        for line in ["receive shared", "import shared shared", "show shared 4M", "close shared"] {
            b.ok(line)?;
        }
        for line in ["new own 4M device:0", "fill own 0 4M 21", "malloc old 1M", "fill old 0 1M 23"] {
            b.ok(line)?;
        }
        let mut depot = Self { machine, workers, sums: Vec::new() };
        depot.sums = depot.look()?;
        Ok(depot)
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.machine.path("the störe")
    }

    pub(crate) fn ckpt_dir(&self) -> PathBuf {
        self.machine.path("check point/of today")
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.machine.path("the 缓存")
    }

    pub(crate) fn pids(&self) -> Vec<i32> {
        self.workers.iter().map(Target::pid).collect()
    }

    /// A suspend to the store, to be run.
    pub(crate) fn saving(&self) -> Tool {
        let tool = self.machine.tool().option("--json").option("--store").argument(self.store());
        tool.option("--ckpt-dir").argument(self.ckpt_dir())
    }

    pub(crate) fn suspend(&self) -> Result<Outcome> {
        self.saving().verb("suspend", &self.pids())
    }

    pub(crate) fn resume(&self) -> Result<Outcome> {
        self.machine.resume(&self.pids())
    }

    pub(crate) fn resume_from(&self, store: Option<&Path>, cache: Option<&Path>) -> Result<Outcome> {
        let mut tool = self.machine.tool();
        for (option, path) in [("--store", store), ("--cache", cache)] {
            if let Some(path) = path {
                tool = tool.option(option).argument(path);
            }
        }
        tool.verb("resume", &self.pids())
    }

    /// Has the suspended processes read ahead, from this cache if there is one, and waits until all is read that will be.
    pub(crate) fn stage(&self, cache: Option<&Path>) -> Result<()> {
        let calls = || -> Result<Vec<usize>> {
            self.pids().into_iter().map(|pid| Ok(self.machine.calls(pid)?.len())).collect()
        };
        let before = calls()?;
        let tool = self.machine.tool();
        let tool = if let Some(cache) = cache { tool.option("--cache").argument(cache) } else { tool };
        tool.verb("stage", &self.pids())?.done()?;
        for worker in &self.workers {
            self.machine.status_until(worker.pid(), |_| {
                worker.snapshot().is_ok_and(|now| !now.threads.iter().any(|name| name == "nvsnap-stage"))
            })?;
        }
        ensure!(calls()? == before, "the driver was called while it had the processes checkpointed");
        self.are("released")
    }

    /// What each worker sees of all its memory. Afterwards also the memory that the workers compute in is as it was after
    /// the last look.
    pub(crate) fn look(&self) -> Result<Vec<String>> {
        let [a, b] = &self.workers;
        let mut sums = vec![a.ok("read host 0 4096")?, a.ok("read zero 60000000 64")?];
        for (name, size, location) in FIRST.iter().filter(|(name, ..)| *name != "host") {
            a.ok(if *location == "device:1" { "context 1" } else { "context 0" })?;
            sums.push(a.ok(&format!("sum {name} 0 {size}")).with_context(|| (*name).to_owned())?);
        }
        a.ok("context 0")?;
        for (name, size) in [("shared", "4M"), ("own", "4M"), ("old", "1M")] {
            sums.push(b.ok(&format!("sum {name} 0 {size}"))?);
        }
        Ok(sums)
    }

    /// Insists that contents and sharing are those of the start, and that everything runs.
    pub(crate) fn is_as_it_was(&self) -> Result<()> {
        ensure!(self.look()? == self.sums, "contents changed");
        let [a, b] = &self.workers;
        for (writer, reader) in [(a, b), (b, a)] {
            writer.ok("add shared 0 4M 1")?;
            ensure!(
                writer.ok("sum shared 0 4M")? == reader.ok("sum shared 0 4M")?,
                "not one memory any more"
            );
            writer.ok(&format!("add shared 0 4M {}", u32::MAX))?;
        }
        self.are("running")
    }

    /// Insists on the phase of both.
    pub(crate) fn are(&self, phase: &str) -> Result<()> {
        for pid in self.pids() {
            let status = self.machine.status(pid)?;
            ensure!(status["phase"] == phase, "{status}");
        }
        Ok(())
    }

    /// The list of the first worker's chunks.
    pub(crate) fn list(&self) -> PathBuf {
        self.ckpt_dir().join(format!("gpu-{}.chunks", self.workers[0].pid()))
    }
}

/// Bytes by fate in a stage, as the summary of a `--json` run tells: moved, zero, deduplicated.
pub(crate) fn fates(outcome: &Outcome, stage: &str) -> Result<[u64; 3]> {
    let summary = outcome.events()?.pop().context("a summary")?;
    let bytes = &summary["bytes"][stage];
    let number = |fate: &str| bytes[fate].as_u64().with_context(|| format!("{fate} in {summary}"));
    Ok([number("moved")?, number("zero")?, number("deduplicated")?])
}

/// The process that fills the cache, as the summary of a `--json` run tells.
pub(crate) fn filler(outcome: &Outcome) -> Result<i32> {
    let summary = outcome.events()?.pop().context("a summary")?;
    let pid = summary["counts"]["cache_fill"]["pid"].as_i64().with_context(|| summary.to_string())?;
    Ok(i32::try_from(pid)?)
}

/// Waits until that process is gone.
pub(crate) fn filled(outcome: &Outcome) -> Result<()> {
    integration::threads::ends(filler(outcome)?)
}

/// All chunks of a store or cache: path, with length, inode and time of change.
pub(crate) fn chunks(store: &Path) -> Result<BTreeMap<PathBuf, (u64, u64, i64)>> {
    let mut found = BTreeMap::new();
    let fans = match fs::read_dir(store.join("chunks")) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(found),
        fans => fans?,
    };
    for fan in fans {
        for chunk in fs::read_dir(fan?.path())? {
            let chunk = chunk?;
            let about = chunk.metadata()?;
            ensure!(about.mode() & 0o777 == 0o600, "{} may be read by others", chunk.path().display());
            found.insert(chunk.path(), (about.len(), about.ino(), about.ctime_nsec()));
        }
    }
    Ok(found)
}

/// The largest chunk of a store.
pub(crate) fn largest(store: &Path) -> Result<PathBuf> {
    let chunks = chunks(store)?;
    chunks
        .into_iter()
        .max_by_key(|(path, (len, ..))| (*len, path.clone()))
        .map(|(path, _)| path)
        .context("a chunk")
}

/// Turns one bit of a file.
pub(crate) fn flip(path: &Path) -> Result<()> {
    let mut bytes = fs::read(path)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    Ok(fs::write(path, bytes)?)
}
