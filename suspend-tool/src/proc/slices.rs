//! Slices of GPUs (MIG) that a process has open.
//!
//! A slice is opened by a capability of the driver, a device in `/dev/nvidia-caps`. So are two of the management library, which every
//! program has that asks it anything: to configure slices, and to watch them. `mig-minors` tells which number is which.

use std::collections::BTreeSet;

use super::ProcFs;
use crate::pid::Pid;

/// The devices, but for their number.
const CAPABILITY: &str = "/dev/nvidia-caps/nvidia-cap";
/// A line for each: a name and a number. Slices are called `gpu0/gi1/access` and `gpu0/gi1/ci2/access`.
const MINORS: &str = "driver/nvidia-caps/mig-minors";

impl ProcFs {
    /// A slice of a GPU that the process has open.
    pub fn open_slice(&self, pid: Pid) -> Option<String> {
        let slices = slices(&std::fs::read_to_string(self.path(MINORS)).unwrap_or_default());
        let open = self.descriptors(pid, CAPABILITY).unwrap_or_default();
        open.into_iter().find(|device| {
            let number = device.strip_prefix(CAPABILITY).and_then(|number| number.parse().ok());
            number.is_some_and(|number: u32| slices.contains(&number))
        })
    }
}

/// The numbers of the slices.
fn slices(minors: &str) -> BTreeSet<u32> {
    let named = minors.lines().filter_map(|line| line.split_once(' '));
    named
        .filter(|(name, _)| name.starts_with("gpu") && name.ends_with("/access"))
        .filter_map(|(_, number)| number.trim().parse().ok())
        .collect()
}
