//! Faults on order.
//!
//! A plan is a list of faults, separated by `;`. Each is `call:nth:pid=effect`.
//!
//! | part | is |
//! | --- | --- |
//! | `call` | `open` `read` `write` `sync` `stat` `buffered` `lock` `rename` `link` `unlink` `mkdir` `syncdir` `list` `touch` `volume`, or `*` for any; `open.direct` `read.direct` `write.direct` are those with `O_DIRECT` only, and `rename.keep` those that must replace nothing |
//! | `nth` | `3`: the third such call of the process; `3+`: that and all later ones; `*`: all |
//! | `pid` | the process, or `*` for any |
//! | `effect` | an error by its name (`ENOSPC`), which the call gives instead of being made; `short`: reads and writes do half of what they are asked; `kill`: the process gets `SIGKILL` before the call is made (number 1 of a pid namespace survives that) |
//!
//! `write.direct:1:*=EINVAL;write:5+:*=ENOSPC` refuses the first direct write and finds the disk full from the
//! fifth write on. The first fault that applies is the one that happens; every fault counts for itself.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use thiserror::Error;

use super::{FileLayer, Open, OpenFile, Rename, Stat, Volume};
use crate::error::{About, FileError};

const CALLS: [&str; 20] = [
    "*",
    "open",
    "open.direct",
    "read",
    "read.direct",
    "write",
    "write.direct",
    "sync",
    "stat",
    "buffered",
    "lock",
    "rename",
    "rename.keep",
    "link",
    "unlink",
    "mkdir",
    "syncdir",
    "list",
    "touch",
    "volume",
];

const ERRORS: [(&str, Errno); 16] = [
    ("EACCES", Errno::ACCESS),
    ("EDQUOT", Errno::DQUOT),
    ("EEXIST", Errno::EXIST),
    ("EINTR", Errno::INTR),
    ("EINVAL", Errno::INVAL),
    ("EIO", Errno::IO),
    ("EMFILE", Errno::MFILE),
    ("ENOENT", Errno::NOENT),
    ("ENOLCK", Errno::NOLCK),
    ("ENOSPC", Errno::NOSPC),
    ("ENOSYS", Errno::NOSYS),
    ("ENOTSUP", Errno::NOTSUP),
    ("EOPNOTSUPP", Errno::OPNOTSUPP),
    ("EPERM", Errno::PERM),
    ("EROFS", Errno::ROFS),
    ("ESTALE", Errno::STALE),
];

/// The faults that shall happen, and how often each was looked at.
#[derive(Debug, Default)]
pub struct FaultPlan {
    faults: Vec<Fault>,
    /// Where calls are written down.
    trace: Option<OwnedFd>,
}

/// A fault that is not `call:nth:pid=effect`.
#[derive(Debug, Error)]
#[error("{fault:?}: {part} is not understood; a fault is call:nth:pid=effect, such as write:3:*=ENOSPC")]
pub struct BadFault {
    fault: String,
    part: &'static str,
}

#[derive(Debug)]
struct Fault {
    call: &'static str,
    first: u64,
    last: u64,
    pid: Option<i32>,
    effect: Effect,
    seen: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    Fail(Errno),
    Short,
    Kill,
}

impl FaultPlan {
    /// Reads a plan. An empty text is a plan without faults.
    pub fn parse(text: &str) -> Result<Self, BadFault> {
        let faults = text.split(';').map(str::trim).filter(|fault| !fault.is_empty());
        Ok(Self { faults: faults.map(Fault::parse).collect::<Result<_, _>>()?, trace: None })
    }

    /// What shall happen to the call that is about to be made. `special`: it is of the kind behind the dot.
    fn effect(&self, call: &str, special: bool) -> Option<Effect> {
        if let Some(trace) = &self.trace {
            // One write, so that lines of several threads do not mix. A test notices what is missing.
            let _ = rustix::io::write(trace, format!("{call}\n").as_bytes());
        }
        let mut effect = None;
        for fault in &self.faults {
            if fault.applies(call, special) {
                effect = effect.or(Some(fault.effect));
            }
        }
        effect
    }
}

impl Fault {
    fn parse(text: &str) -> Result<Self, BadFault> {
        let bad = |part| BadFault { fault: text.to_owned(), part };
        let (place, effect) = text.split_once('=').ok_or_else(|| bad("the effect"))?;
        let mut parts = place.split(':');
        let (Some(call), Some(nth), Some(pid), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(bad("the place"));
        };
        let call = CALLS.into_iter().find(|name| *name == call).ok_or_else(|| bad("the call"))?;
        let (first, last) = match (nth, nth.strip_suffix('+')) {
            ("*", _) => (1, u64::MAX),
            (_, Some(from)) => (from.parse().map_err(|_| bad("the count"))?, u64::MAX),
            (exactly, None) => {
                let n = exactly.parse().map_err(|_| bad("the count"))?;
                (n, n)
            }
        };
        let pid = match pid {
            "*" => None,
            number => Some(number.parse().map_err(|_| bad("the process"))?),
        };
        let effect = match effect {
            "short" => Effect::Short,
            "kill" => Effect::Kill,
            name => {
                let error = ERRORS.into_iter().find(|(known, _)| *known == name);
                Effect::Fail(error.ok_or_else(|| bad("the effect"))?.1)
            }
        };
        Ok(Self { call, first, last, pid, effect, seen: AtomicU64::new(0) })
    }

    fn applies(&self, call: &str, special: bool) -> bool {
        let called = match self.call.split_once('.') {
            Some((name, _)) => special && name == call,
            None => self.call == "*" || self.call == call,
        };
        if !called || self.pid.is_some_and(|pid| pid != getpid().as_raw_pid()) {
            return false;
        }
        let nth = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        (self.first..=self.last).contains(&nth)
    }
}

/// A layer that fails as planned, and is otherwise the one behind it.
#[derive(Debug)]
pub struct Faulty<L> {
    behind: L,
    plan: Arc<FaultPlan>,
}

impl<L: FileLayer> Faulty<L> {
    /// Lets `plan` happen in front of `behind`.
    pub fn new(behind: L, plan: FaultPlan) -> Self {
        Self { behind, plan: Arc::new(plan) }
    }

    /// The same, and writes the name of every call into the file `trace`, a line each.
    pub fn traced(behind: L, mut plan: FaultPlan, trace: &Path) -> Result<Self, FileError> {
        let how = OFlags::CREATE | OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
        let opened = rustix::fs::open(trace, how, Mode::RUSR | Mode::WUSR).map_err(io::Error::from);
        plan.trace = Some(opened.about("open", trace)?);
        Ok(Self::new(behind, plan))
    }
}

/// Lets happen what is planned, and says whether the call shall do only half. `special`: it is of the kind behind the
/// dot.
fn meet(plan: &FaultPlan, call: &str, special: bool) -> io::Result<bool> {
    match plan.effect(call, special) {
        None => Ok(false),
        Some(Effect::Short) => Ok(true),
        Some(Effect::Fail(error)) => Err(error.into()),
        Some(Effect::Kill) => {
            kill_process(getpid(), Signal::KILL)?;
            Ok(false)
        }
    }
}

impl<L: FileLayer> FileLayer for Faulty<L> {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn OpenFile>> {
        meet(&self.plan, "open", how.direct)?;
        let behind = self.behind.open(path, how)?;
        let direct = AtomicBool::new(how.direct);
        Ok(Box::new(FaultyFile { behind, direct, plan: Arc::clone(&self.plan) }))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        meet(&self.plan, "stat", false)?;
        self.behind.stat(path)
    }

    fn rename(&self, from: &Path, to: &Path, how: Rename) -> io::Result<()> {
        meet(&self.plan, "rename", how == Rename::Keep)?;
        self.behind.rename(from, to, how)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        meet(&self.plan, "link", false)?;
        self.behind.link(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        meet(&self.plan, "unlink", false)?;
        self.behind.unlink(path)
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        meet(&self.plan, "mkdir", false)?;
        self.behind.make_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        meet(&self.plan, "syncdir", false)?;
        self.behind.sync_dir(path)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<OsString>> {
        meet(&self.plan, "list", false)?;
        self.behind.list_dir(path)
    }

    fn touch(&self, path: &Path) -> io::Result<()> {
        meet(&self.plan, "touch", false)?;
        self.behind.touch(path)
    }

    fn volume(&self, path: &Path) -> io::Result<Volume> {
        meet(&self.plan, "volume", false)?;
        self.behind.volume(path)
    }
}

#[derive(Debug)]
struct FaultyFile {
    behind: Box<dyn OpenFile>,
    direct: AtomicBool,
    plan: Arc<FaultPlan>,
}

impl FaultyFile {
    fn meet(&self, call: &str) -> io::Result<bool> {
        meet(&self.plan, call, self.direct.load(Ordering::Relaxed))
    }
}

impl OpenFile for FaultyFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let amount = if self.meet("read")? { into.len().div_ceil(2) } else { into.len() };
        self.behind.read_at(into.split_at_mut(amount).0, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let amount = if self.meet("write")? { bytes.len().div_ceil(2) } else { bytes.len() };
        self.behind.write_at(bytes.split_at(amount).0, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.meet("sync")?;
        self.behind.sync_data()
    }

    fn stat(&self) -> io::Result<Stat> {
        self.meet("stat")?;
        self.behind.stat()
    }

    fn set_buffered(&self) -> io::Result<()> {
        self.meet("buffered")?;
        self.behind.set_buffered()?;
        self.direct.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn direct_alignment(&self) -> usize {
        self.behind.direct_alignment()
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.meet("lock")?;
        self.behind.try_lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effects(plan: &str, calls: &[(&str, bool)]) -> Vec<Option<Effect>> {
        let plan = FaultPlan::parse(plan).unwrap();
        calls.iter().map(|(call, direct)| plan.effect(call, *direct)).collect()
    }

    #[test]
    fn counts_are_per_fault_and_start_at_one() {
        let full = Some(Effect::Fail(Errno::NOSPC));
        let calls = [("write", false), ("read", false), ("write", false), ("write", false)];
        assert_eq!(effects("write:2:*=ENOSPC", &calls), [None, None, full, None]);
        assert_eq!(effects("write:2+:*=ENOSPC", &calls), [None, None, full, full]);
        assert_eq!(effects("*:2:*=ENOSPC", &calls), [None, full, None, None]);
        assert_eq!(effects("write:1:*=short; *:*:*=ENOSPC", &calls), [Some(Effect::Short), full, full, full]);
    }

    #[test]
    fn a_direct_fault_leaves_buffered_calls_alone() {
        let refused = Some(Effect::Fail(Errno::INVAL));
        let calls = [("write", false), ("write", true), ("open", true)];
        assert_eq!(effects("write.direct:1:*=EINVAL", &calls), [None, refused, None]);
    }

    #[test]
    fn a_fault_of_another_process_does_not_happen() {
        let own = format!("write:1:{}=kill", std::process::id());
        assert_eq!(effects(&own, &[("write", false)]), [Some(Effect::Kill)]);
        assert_eq!(effects("write:1:1=kill", &[("write", false)]), [None]);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (plan, part) in [
            ("write", "the effect"),
            ("write:1=EIO", "the place"),
            ("write:1:*:2=EIO", "the place"),
            ("wrote:1:*=EIO", "the call"),
            ("write:first:*=EIO", "the count"),
            ("write:1:me=EIO", "the process"),
            ("write:1:*=EGAD", "the effect"),
        ] {
            let error = FaultPlan::parse(plan).unwrap_err();
            assert_eq!((error.part, error.fault.as_str()), (part, plan));
        }
        assert!(FaultPlan::parse("").unwrap().faults.is_empty());
    }
}
