//! Processes by number, and by the moment they were started.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The number of a process in the pid namespace of this command. Positive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pid(i32);

impl Pid {
    /// The process with this number, or `None` where the number cannot be one: 0 is what the kernel answers for
    /// a process of a foreign pid namespace, and negative numbers mean groups.
    pub const fn new(number: i32) -> Option<Self> {
        if number > 0 { Some(Self(number)) } else { None }
    }

    /// The number.
    pub const fn number(self) -> i32 {
        self.0
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Why a text is not a pid.
#[derive(Debug, thiserror::Error)]
pub enum NotAPid {
    /// It is not a number.
    #[error("a pid is a number")]
    NotANumber(#[from] ParseIntError),
    /// It is zero or negative.
    #[error("a pid is positive")]
    NotPositive,
}

impl FromStr for Pid {
    type Err = NotAPid;

    fn from_str(text: &str) -> Result<Self, NotAPid> {
        Self::new(text.parse()?).ok_or(NotAPid::NotPositive)
    }
}

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Target {
    /// Its number.
    pub pid: Pid,
    /// When it was started, in clock ticks since boot.
    pub start: u64,
}

/// The pids in a sentence, which is one about processes.
pub fn named(pids: impl IntoIterator<Item = Pid>) -> String {
    let pids: Vec<String> = pids.into_iter().map(|pid| pid.to_string()).collect();
    match pids.as_slice() {
        [one] => format!("process {one}"),
        [first @ .., last] => format!("processes {} and {last}", first.join(", ")),
        [] => "no process".to_owned(),
    }
}

/// The pids as they are written on a command line.
pub fn listed(pids: impl IntoIterator<Item = Pid>) -> String {
    pids.into_iter().map(|pid| pid.to_string()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_a_process_and_several_are_processes() {
        let pids =
            |numbers: &[i32]| numbers.iter().filter_map(|number| Pid::new(*number)).collect::<Vec<_>>();
        assert_eq!(named(pids(&[7])), "process 7");
        assert_eq!(named(pids(&[7, 8])), "processes 7 and 8");
        assert_eq!(named(pids(&[7, 8, 9])), "processes 7, 8 and 9");
        assert_eq!(named([]), "no process");
        assert_eq!(listed(pids(&[7, 8])), "7 8");
    }
}
