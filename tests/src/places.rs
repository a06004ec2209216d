//! Where a fault can be put: a call of a process, found in the logs of a run without faults.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, ensure};

use crate::{Call, Machine};

/// How many processes are tried at a time.
const AT_ONCE: usize = 4;
/// How many calls stand for all of a function that only asks.
const FEW: usize = 4;

/// Calls that a process logs, and takes faults for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Calls {
    /// Of the stand-in driver.
    Driver,
    /// Of the library's file layer.
    File,
}

impl Calls {
    /// The variable with which a process is told to log them, where it does not do so anyway; its value is a file.
    pub const FILE_TRACE: &str = "NVSNAP_GPUSHARE_FILE_TRACE";

    /// The variable and its value that put this effect at a place.
    pub fn fault(self, place: &Place, effect: &str) -> (&'static str, String) {
        match self {
            Self::Driver => ("FAKECUDA_FAULTS", place.fault(effect)),
            // It is the process's own.
            Self::File => ("NVSNAP_GPUSHARE_FILE_FAULTS", format!("{}:{}:*={effect}", place.call, place.nth)),
        }
    }

    /// The calls of a process so far, by name; those of files as they were logged to `trace`.
    pub fn so_far(self, machine: &Machine, pid: i32, trace: &str) -> Result<Vec<String>> {
        Ok(match self {
            Self::Driver => machine.calls(pid)?.into_iter().map(|call| call.name).collect(),
            Self::File => match std::fs::read_to_string(machine.path(trace)) {
                Ok(text) => text.lines().map(str::to_owned).collect(),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
                Err(error) => return Err(error.into()),
            },
        })
    }
}

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
        Self::among(log.iter().map(|call| call.name.as_str()), before, process)
    }

    /// The same for calls of which only the names are known.
    pub fn among<'a>(names: impl Iterator<Item = &'a str>, before: usize, process: usize) -> Vec<Self> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let mut found = Vec::new();
        for (position, name) in names.enumerate() {
            let nth = counts.entry(name).or_insert(0);
            *nth += 1;
            if position >= before {
                found.push(Self { call: name.to_owned(), nth: *nth, process });
            }
        }
        found
    }

    /// Leaves out most calls that ask how far work has come: they are made as often as the moment wants, and the first few stand
    /// for all.
    pub fn without_most_questions(places: &mut Vec<Self>) {
        let mut seen: BTreeMap<(String, usize), usize> = BTreeMap::new();
        places.retain(|place| {
            let asks = place.call.ends_with("Query") || place.call.ends_with("Synchronize");
            let count = seen.entry((place.call.clone(), place.process)).or_insert(0);
            *count += 1;
            !asks || *count <= FEW
        });
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

/// Tries each fault, some at a time, and names all for which `check` fails. How many made a command fail, as `check` says,
/// comes back.
pub fn at_each<F: fmt::Display + Sync>(
    faults: &[F],
    check: impl Fn(&F) -> Result<bool> + Sync,
) -> Result<usize> {
    let (next, bitten) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failures = Mutex::new(Vec::new());
    let work = || {
        while let Some(fault) = faults.get(next.fetch_add(1, Ordering::Relaxed)) {
            match check(fault) {
                Ok(failed) => drop(bitten.fetch_add(usize::from(failed), Ordering::Relaxed)),
                Err(error) => {
                    let text = format!("{fault}: {error:#}");
                    failures.lock().unwrap_or_else(PoisonError::into_inner).push(text);
                }
            }
        }
    };
    std::thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(work))));
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(failures.is_empty(), "{} of {} faults:\n{}", failures.len(), faults.len(), failures.join("\n"));
    Ok(bitten.into_inner())
}
