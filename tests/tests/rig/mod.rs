//! A process with memory on several devices, and the three ways in which it is suspended.
#![allow(
    dead_code,
    clippy::indexing_slicing,
    reason = "each test file uses its own part, and fails where it cannot go on"
)]

use anyhow::{Context, Result, ensure};
use integration::threads::Thread;
use integration::{Machine, Outcome, Start, Target};

/// Where a suspend puts the bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Way {
    InPlace,
    Kept,
    Store,
}

pub(crate) const WAYS: [Way; 3] = [Way::InPlace, Way::Kept, Way::Store];

/// The process.
pub(crate) struct Rig {
    pub(crate) machine: Machine,
    pub(crate) worker: Target,
    devices: usize,
    pub(crate) sums: Vec<String>,
}

/// What it has on each device: name, size. `hidden` is not mapped while it is suspended.
const OBJECTS: [(&str, &str); 4] = [("large", "6M"), ("small", "2M"), ("zero", "2M"), ("hidden", "2M")];

impl Rig {
    pub(crate) fn new(devices: usize, how: impl FnOnce(Start<'_>) -> Start<'_>) -> Result<Self> {
        let mut machine = Machine::stand_in()?;
        machine.set("FAKECUDA_DEVICES", devices.to_string());
        let worker = how(machine.worker("a").preload().set("FAKECUDA_INDEX", "1")).start()?;
        for device in (0..devices).rev() {
            worker.ok(&format!("begin {device}"))?;
        }
        for (device, (name, size)) in objects(devices) {
            let object = format!("{name}-{device}");
            worker.ok(&format!("context {device}"))?;
            worker.ok(&format!("new {object} {size} device:{device}"))?;
            let seed = 10 * device + name.len();
            let what = if name == "zero" {
                format!("fill {object} 0 {size} 0")
            } else {
                format!("noise {object} 0 {size} {seed}")
            };
            worker.ok(&what)?;
        }
        worker.ok("context 0")?;
        worker.ok("new host 2M host")?;
        worker.ok("memset host 0 2M 77")?;
        let mut rig = Self { machine, worker, devices, sums: Vec::new() };
        rig.sums = rig.look()?;
        Ok(rig)
    }

    pub(crate) fn pid(&self) -> i32 {
        self.worker.pid()
    }

    pub(crate) fn suspend(&self, way: Way) -> Result<Outcome> {
        let mut tool = self.machine.tool().option("--json");
        match way {
            Way::InPlace => {}
            Way::Kept => tool = tool.option("--keep-arena"),
            Way::Store => {
                tool = tool.option("--store").argument(self.machine.path("store"));
                tool = tool.option("--ckpt-dir").argument(self.machine.path("ckpt"));
            }
        }
        tool.verb("suspend", &[self.pid()])
    }

    pub(crate) fn resume(&self) -> Result<Outcome> {
        self.machine.resume(&[self.pid()])
    }

    /// Takes the mapping of what is hidden away.
    pub(crate) fn hide(&self) -> Result<()> {
        (0..self.devices).try_for_each(|device| self.worker.ok(&format!("unmap hidden-{device}")).map(drop))
    }

    /// Puts it back, at the same address.
    pub(crate) fn show(&self) -> Result<()> {
        for device in 0..self.devices {
            self.worker.ok(&format!("map hidden-{device} 0 2M hidden-{device}"))?;
            self.worker.ok(&format!("access hidden-{device} 0 2M device:{device} rw"))?;
        }
        Ok(())
    }

    /// What the process sees at the addresses that it had from the start.
    pub(crate) fn look(&self) -> Result<Vec<String>> {
        self.worker.ok("context 0")?;
        let mut sums = vec![self.worker.ok("read host 0 4096")?, self.worker.ok("read host 2097144 8")?];
        for (device, (name, size)) in objects(self.devices) {
            self.worker.ok(&format!("context {device}"))?;
            let object = format!("{name}-{device}");
            sums.push(self.worker.ok(&format!("sum {object} 0 {size}")).with_context(|| object)?);
        }
        self.worker.ok("context 0")?;
        Ok(sums)
    }

    /// Insists that contents are those of the start, that it runs, and that no thread of a transfer is left.
    pub(crate) fn is_as_it_was(&self) -> Result<()> {
        ensure!(self.look()? == self.sums, "contents changed");
        let status = self.machine.status(self.pid())?;
        ensure!(status["phase"] == "running", "{status}");
        let names = ["nvsnap-copy", "nvsnap-lane"];
        // One that was joined may be there for a moment still.
        let moves = |thread: &Thread| names.contains(&&*thread.name) && !thread.is_ending;
        let left: Vec<Thread> = Thread::all(self.pid())?.into_iter().filter(moves).collect();
        ensure!(left.is_empty(), "left behind: {left:?}");
        Ok(())
    }

    /// A suspend and a resume.
    pub(crate) fn plain_cycle(&self, way: Way) -> Result<()> {
        self.suspend(way)?.done().context("the suspend")?;
        self.resume()?.done().context("the resume").map(drop)
    }

    /// A cycle, with what is hidden hidden.
    pub(crate) fn cycle(&self, way: Way) -> Result<()> {
        self.hide()?;
        self.plain_cycle(way)?;
        self.show()?;
        self.is_as_it_was()
    }
}

fn objects(devices: usize) -> impl Iterator<Item = (usize, (&'static str, &'static str))> {
    (0..devices).flat_map(|device| OBJECTS.map(|object| (device, object)))
}
