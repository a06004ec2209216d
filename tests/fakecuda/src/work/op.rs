//! What can be queued on a stream or stand in a graph.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cuda_sys::{CuError, CuResult, HostFn, Stream as Handle, StreamCallback};

use super::copy::{Copy, Fill};
use super::event::Event;
use super::kernels::Launch;
use super::memory_ops::{ValueWait, ValueWrite};
use crate::context::Ctx;
use crate::driver::Driver;
use crate::machine::shares::Held;
use crate::memory::space::Fault;
use crate::trace::violation;

/// A pointer of the program that is handed back to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserData(pub(crate) *mut c_void);

// SAFETY: nobody here follows it; the program knows on which thread its functions are called.
unsafe impl Send for UserData {}
// SAFETY: as above.
unsafe impl Sync for UserData {}

/// One piece of work.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Orders what comes after it behind what it waits for.
    Nothing,
    Kernel(Launch),
    Copy(Arc<Copy>),
    Fill(Fill),
    Host(HostFn, UserData),
    Callback(StreamCallback, Handle, UserData),
    /// The nth record of an event.
    Record(&'static Event, u64),
    /// The nth record of an interprocess event.
    RecordShared(Arc<Held>, u64),
    /// Waits for the nth record of an interprocess event.
    WaitShared(Arc<Held>, u64),
    Write(ValueWrite),
    Wait(ValueWait),
    Free(usize),
    /// The nodes of a graph, each after those it depends on.
    Graph(Arc<[Op]>),
}

impl Op {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Kernel(launch) => launch.kernel.name(),
            Self::Copy(_) => "copy",
            Self::Fill(_) => "memset",
            Self::Host(..) => "host function",
            Self::Callback(..) => "callback",
            Self::Record(..) | Self::RecordShared(..) => "event record",
            Self::WaitShared(..) => "event wait",
            Self::Write(_) => "value write",
            Self::Wait(_) => "value wait",
            Self::Free(_) => "free",
            Self::Graph(_) => "graph",
        }
    }

    /// Whether it is complete as soon as it is its turn.
    pub(super) fn takes_no_time(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Kernel(launch) => launch.kernel.does_nothing(),
            _ => false,
        }
    }

    pub(super) fn runs_after_a_fault(&self) -> bool {
        matches!(self, Self::Callback(..) | Self::Record(..) | Self::RecordShared(..) | Self::Free(_))
    }

    /// Calls `range` with each range of device memory that the work is known to use.
    pub(crate) fn touches(&self, range: &mut dyn FnMut(usize, usize)) {
        match self {
            Self::Kernel(launch) => launch.touches(range),
            Self::Copy(copy) => copy.touches(range),
            Self::Fill(fill) => fill.touches(range),
            Self::Write(write) => range(write.address, write.size()),
            Self::Wait(wait) => range(wait.address, wait.size()),
            Self::Graph(ops) => ops.iter().for_each(|op| op.touches(range)),
            Self::Nothing
            | Self::Host(..)
            | Self::Callback(..)
            | Self::Record(..)
            | Self::RecordShared(..)
            | Self::WaitShared(..)
            | Self::Free(_) => {}
        }
    }

    /// Does the work. An error ends the context.
    pub(super) fn run(&self, driver: &'static Driver, context: &'static Ctx) -> CuResult {
        match self {
            Self::Nothing => {}
            Self::Kernel(launch) => launch.run(driver, context)?,
            Self::Copy(copy) => copy.run(driver).map_err(|fault| illegal(self, fault))?,
            Self::Fill(fill) => fill.run(driver).map_err(|fault| illegal(self, fault))?,
            Self::Host(function, data) => {
                if let Some(function) = function {
                    // SAFETY: the program asked for this call.
                    unsafe { function(data.0) };
                }
            }
            Self::Callback(callback, stream, data) => {
                if let Some(callback) = callback {
                    let status = cuda_sys::number(context.check());
                    // SAFETY: the program asked for this call.
                    unsafe { callback(*stream, status, data.0) };
                }
            }
            Self::Record(event, count) => event.happen(driver, *count),
            Self::RecordShared(held, count) => {
                if let Some(share) = driver.machine.share(held.number) {
                    share.completed.fetch_max(*count, Ordering::SeqCst);
                }
                driver.machine.changed();
            }
            Self::WaitShared(held, count) => driver.machine.wait_until(|| {
                let share = driver.machine.share(held.number);
                share.is_none_or(|share| share.completed.load(Ordering::SeqCst) >= *count)
            }),
            Self::Write(write) => write.run(driver, context).map_err(|fault| illegal(self, fault))?,
            Self::Wait(wait) => wait.run(driver, context).map_err(|fault| illegal(self, fault))?,
            Self::Free(address) => driver.memory.free_in_order(*address),
            Self::Graph(ops) => {
                for op in ops.iter() {
                    op.run(driver, context)?;
                }
            }
        }
        Ok(())
    }
}

/// Work touched memory that it must not: a violation, and the end of its context.
pub(super) fn illegal(op: &Op, fault: Fault) -> CuError {
    violation(format_args!("{}: {fault:?} while running", op.name()));
    CuError::ILLEGAL_ADDRESS
}
