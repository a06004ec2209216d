//! Memory in use per device and process, as `nvidia-smi` shows it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::machine::Driver;

/// Memory in use at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Bytes per device, whoever uses them.
    pub devices: Vec<u64>,
    /// Bytes per process and device; the real driver does not always tell.
    pub processes: BTreeMap<(i32, usize), u64>,
}

impl Usage {
    pub(crate) fn read(driver: Driver, state: &Path) -> Result<Self> {
        match driver {
            Driver::StandIn => Self::of_stand_in(state),
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
        let devices = mib.map(|mib| mib.map(|mib| mib << 20)).collect::<Result<_>>()?;
        Ok(Self { devices, processes: BTreeMap::new() })
    }
}

impl Usage {
    fn of_stand_in(_state: &Path) -> Result<Self> {
        Ok(Self::default())
    }
}
