//! Where a fault can be put: a call of a process, found in the call logs of a run without faults.

use std::collections::BTreeMap;
use std::fmt;

use crate::Call;

/// Which call of which process, counted as the stand-in counts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// The function.
    pub call: String,
    /// The how manieth call of it, from 1.
    pub nth: usize,
    /// The process, by its `FAKECUDA_INDEX`.
    pub process: usize,
}

impl Place {
    /// The calls in `log` behind the first `before`, each with its number among those of its name.
    pub fn behind(log: &[Call], before: usize, process: usize) -> Vec<Self> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let mut found = Vec::new();
        for (position, call) in log.iter().enumerate() {
            let nth = counts.entry(&call.name).or_insert(0);
            *nth += 1;
            if position >= before {
                found.push(Self { call: call.name.clone(), nth: *nth, process });
            }
        }
        found
    }

    /// The fault that has this effect there, as `FAKECUDA_FAULTS` takes it.
    pub fn fault(&self, effect: &str) -> String {
        format!("{self}={effect}")
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.call, self.nth, self.process)
    }
}
