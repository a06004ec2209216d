//! The process that holds threads still after the command has ended, and that undoes what a command began that died.
//!
//! ```text
//!   command                                    holder
//!      |-- starts, before it touches CUDA ------> |    a child of nobody here: whoever started the command never meets it
//!      |-- watch(rescue) -----------------------> |    the command dies: `rescue` is run
//!      |-- freeze(threads) ---------------------> |
//!      |-- keep --------------------------------> |    the command dies: nothing
//!      |-- finish, or its death after keep -----> |    ends, unless it holds threads
//!  a later command -- SIGTERM ------------------> |    lets everything go, and ends
//! ```
//!
//! A rescue may come late: the holder notices the death of the command when it gets to run. It takes back what its command
//! began, and nothing that another has begun since; see [`crate::state::Run`].
//!
//! It has no CUDA and no thread of its own. A thread is held by whoever seized it, and goes on when that one dies: a
//! holder that is killed leaves nobody stopped.

mod serve;
mod start;

use std::cell::Cell;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::{Deserialize, Serialize};

pub use serve::serve;

use crate::freeze::{Hold, HoldError, NotFrozen, Order, Thawer, tracers};
use crate::pid::{Pid, Target};
use crate::proc::ProcFs;
use crate::state::Run;

/// Set for the rescue, which needs nobody to watch over it: the run that it carries on.
pub const RESCUE_VARIABLE: &str = "NVSNAP_GPU_SUSPEND_RESCUE";
/// A message has at most this many bytes; it travels as one packet.
const LONGEST: usize = 128 << 10;
/// How long an answer may take: longer than a thread may take to stop.
const PATIENCE: Duration = Duration::from_secs(15);

/// What the command asks.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    Watch { run: Run, arguments: Vec<Vec<u8>>, folder: Vec<u8> },
    Freeze { orders: Vec<Order> },
    Keep,
    Finish,
}

/// What the holder answers.
#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    Watching(i32),
    Done,
    NotFrozen(Vec<(Pid, NotFrozen)>),
}

/// The command's end of a holder.
#[derive(Debug)]
pub struct Holder {
    channel: OwnedFd,
    proc: ProcFs,
    process: Cell<Option<i32>>,
}

impl Holder {
    /// Starts one. To be called while this process has one thread and no CUDA.
    pub fn start() -> Result<Self, HoldError> {
        let channel = start::start().map_err(HoldError::Start)?;
        Ok(Self { channel, proc: ProcFs::default(), process: Cell::new(None) })
    }

    fn ask(&self, request: &Request) -> Result<Reply, HoldError> {
        let exchange = || -> io::Result<Reply> {
            tell(&self.channel, request)?;
            if !readable(&self.channel, PATIENCE)? {
                return Err(io::ErrorKind::TimedOut.into());
            }
            hear(&self.channel)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
        };
        exchange().map_err(HoldError::Silent)
    }
}

impl Hold for Holder {
    fn process(&self) -> Option<i32> {
        self.process.get()
    }

    fn watch(&self, run: Run, rescue: Vec<OsString>) -> Result<(), HoldError> {
        let folder = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let request = Request::Watch {
            run,
            arguments: rescue.into_iter().map(OsString::into_vec).collect(),
            folder: folder.as_os_str().as_bytes().to_vec(),
        };
        if let Reply::Watching(pid) = self.ask(&request)? {
            self.process.set(Some(pid));
        }
        Ok(())
    }

    fn freeze(&self, orders: &[Order]) -> Result<(), Vec<(Pid, NotFrozen)>> {
        match self.ask(&Request::Freeze { orders: orders.to_vec() }) {
            Ok(Reply::NotFrozen(failed)) => Err(failed),
            Ok(_) => Ok(()),
            Err(error) => {
                let reason = crate::report::chain(&error);
                let failed = |order: &Order| {
                    let pid = order.target.pid;
                    (pid, NotFrozen::System { tid: pid.number(), reason: reason.clone() })
                };
                Err(orders.iter().map(failed).collect())
            }
        }
    }

    fn thaw(&self, targets: &[Target]) -> Result<(), Vec<(Pid, NotFrozen)>> {
        tracers::dismiss(&self.proc, targets)
    }

    fn thawer(&self) -> Thawer {
        thawer(&self.proc)
    }

    fn keep(&self) -> Result<(), HoldError> {
        self.ask(&Request::Keep).map(drop)
    }

    fn finish(&self) {
        // One that is gone has nothing to hold either.
        let _ = self.ask(&Request::Finish);
    }
}

/// Holds nothing: for a run that nobody has to watch over.
#[derive(Debug, Default)]
pub struct Unwatched(ProcFs);

impl Hold for Unwatched {
    fn process(&self) -> Option<i32> {
        None
    }

    fn watch(&self, _run: Run, _rescue: Vec<OsString>) -> Result<(), HoldError> {
        Ok(())
    }

    fn freeze(&self, orders: &[Order]) -> Result<(), Vec<(Pid, NotFrozen)>> {
        let nobody = |order: &Order| {
            let reason = "no process was started to hold it".to_owned();
            (order.target.pid, NotFrozen::System { tid: order.target.pid.number(), reason })
        };
        Err(orders.iter().map(nobody).collect())
    }

    fn thaw(&self, targets: &[Target]) -> Result<(), Vec<(Pid, NotFrozen)>> {
        tracers::dismiss(&self.0, targets)
    }

    fn thawer(&self) -> Thawer {
        thawer(&self.0)
    }

    fn keep(&self) -> Result<(), HoldError> {
        Ok(())
    }

    fn finish(&self) {}
}

fn thawer(proc: &ProcFs) -> Thawer {
    let proc = proc.clone();
    Box::new(move |targets| drop(tracers::dismiss(&proc, targets)))
}

fn tell(channel: &OwnedFd, message: &impl Serialize) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    retry_on_intr(|| send(channel, &bytes, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// The next message; `None` where the other end is gone.
fn hear<T: for<'a> Deserialize<'a>>(channel: &OwnedFd) -> io::Result<Option<T>> {
    let mut bytes = vec![0; LONGEST];
    let (count, whole) = retry_on_intr(|| recv(channel, &mut bytes[..], RecvFlags::TRUNC))?;
    if count == 0 {
        return Ok(None);
    }
    if whole > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(Some(serde_json::from_slice(bytes.get(..count).unwrap_or_default())?))
}

fn readable(channel: &OwnedFd, limit: Duration) -> io::Result<bool> {
    let limit = Timespec { tv_sec: limit.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: 0 };
    let ready = retry_on_intr(|| poll(&mut [PollFd::new(channel, PollFlags::IN)], Some(&limit)))?;
    Ok(ready > 0)
}
