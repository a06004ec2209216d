//! Memory in use per device, whoever uses it, as `nvidia-smi` shows it.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::machine::{Driver, Machine};

/// Memory in use at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Bytes per device.
    pub devices: Vec<u64>,
}

impl Usage {
    pub(crate) fn read(machine: &Machine) -> Result<Self> {
        match machine.driver() {
            Driver::StandIn => Self::of_stand_in(machine),
            Driver::Real => Self::of_nvidia_smi(),
        }
    }

    /// Bytes on one device.
    pub fn device(&self, device: usize) -> u64 {
        self.devices.get(device).copied().unwrap_or(0)
    }

    fn of_nvidia_smi() -> Result<Self> {
        let output = Command::new("nvidia-smi")
            .args(["--query-gpu=memory.used", "--format=csv,noheader,nounits"])
            .output()
            .context("cannot run nvidia-smi")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mib = text.lines().map(|line| line.trim().parse::<u64>().with_context(|| line.to_owned()));
        Ok(Self { devices: mib.map(|mib| mib.map(|mib| mib << 20)).collect::<Result<_>>()? })
    }

    /// A process of its own asks: on the stand-in a context costs no device memory.
    fn of_stand_in(machine: &Machine) -> Result<Self> {
        let devices = Self::observe(machine, "init\ndevices\n")?;
        let devices: usize = devices.first().and_then(|count| count.parse().ok()).context("no devices")?;
        let questions: String = (0..devices).map(|device| format!("context {device}\nmemory\n")).collect();
        let answers = Self::observe(machine, &format!("init\n{questions}"))?;
        let used = |answer: &String| {
            let (free, total) = answer.split_once(' ')?;
            total.parse::<u64>().ok()?.checked_sub(free.parse().ok()?)
        };
        let devices = answers.iter().map(|answer| used(answer).with_context(|| answer.clone()));
        Ok(Self { devices: devices.collect::<Result<_>>()? })
    }

    /// Gives a worker these lines; what its answers say beside `ok` comes back.
    fn observe(machine: &Machine, lines: &str) -> Result<Vec<String>> {
        let mut command = machine.command(machine.artifacts().programs.join("worker"));
        command.env_remove("FAKECUDA_LOG").env_remove("FAKECUDA_FAULTS");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        child.stdin.take().context("no pipe")?.write_all(lines.as_bytes())?;
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().filter_map(|line| line.strip_prefix("ok ")).map(str::to_owned).collect())
    }
}
