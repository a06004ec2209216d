//! `cuCheckpointProcess*`, as the calling process sees them.
//!
//! A process that has not initialised the driver answers NOT_INITIALIZED, a forked child of one that has as well (docs/DRIVER-VERSIONS.md,
//! processes around the ones that compute); a pid without a process is OPERATING_SYSTEM (as measured).

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use cuda_sys::{
    CheckpointCheckpointArgs, CheckpointLockArgs, CheckpointRestoreArgs, CheckpointUnlockArgs, CuError,
    CuResult, ProcessState, result,
};

use super::wire::{self, Pairs, Request, Verb};
use crate::args;
use crate::driver::{Driver, driver};
use crate::faults;
use crate::machine::layout::Slot;

/// The process that a call is about.
fn target(driver: &Driver, pid: c_int) -> CuResult<(u32, usize, &'static Slot)> {
    let pid = u32::try_from(pid).ok().filter(|&pid| pid != 0).ok_or(CuError::OPERATING_SYSTEM)?;
    match driver.machine.find(pid) {
        Some((number, slot)) => Ok((pid, number, slot)),
        None if std::path::Path::new(&format!("/proc/{pid}")).exists() => Err(CuError::NOT_INITIALIZED),
        None => Err(CuError::OPERATING_SYSTEM),
    }
}

/// Makes a call about a process, with the faults that are ordered for it.
fn about(
    call: &str,
    pid: c_int,
    mut body: impl FnMut(&Driver, usize, &'static Slot) -> CuResult,
) -> CuResult {
    let driver = driver()?;
    let (pid, number, slot) = target(driver, pid)?;
    let index = Some(slot.index.load(Ordering::Relaxed)).filter(|&index| index != u32::MAX);
    faults::around_process(call, pid, index, || body(driver, number, slot))
}

fn ask(call: &str, pid: c_int, verb: Verb, timeout_ms: u32, pairs: Pairs) -> CuResult {
    about(call, pid, |driver, slot, _| {
        let request = Request { verb, timeout_ms, pairs };
        // The process may end while it is asked.
        result(wire::ask(driver.machine.dir(), slot, &request).map_err(|_| CuError::NOT_INITIALIZED)?)
    })
}

pub(crate) unsafe fn cuCheckpointProcessGetState(pid: c_int, state: *mut ProcessState) -> CuResult {
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(state) }?;
    about("cuCheckpointProcessGetState", pid, |_, _, slot| {
        place.write(ProcessState(slot.state.load(Ordering::Acquire)));
        Ok(())
    })
}

pub(crate) unsafe fn cuCheckpointProcessGetRestoreThreadId(pid: c_int, tid: *mut c_int) -> CuResult {
    about("cuCheckpointProcessGetRestoreThreadId", pid, |_, _, slot| {
        let thread = slot.restore_thread.load(Ordering::Acquire);
        // SAFETY: the caller's promise.
        unsafe { args::out(tid) }?.write(c_int::try_from(thread).map_err(|_| CuError::UNKNOWN)?);
        Ok(())
    })
}

pub(crate) unsafe fn cuCheckpointProcessLock(pid: c_int, args: *mut CheckpointLockArgs) -> CuResult {
    // SAFETY: the caller's promise.
    let timeout = unsafe { args.as_ref() }.map_or(0, |args| args.timeout_ms);
    ask("cuCheckpointProcessLock", pid, Verb::Lock, timeout, Pairs::default())
}

pub(crate) unsafe fn cuCheckpointProcessCheckpoint(
    pid: c_int,
    _args: *mut CheckpointCheckpointArgs,
) -> CuResult {
    ask("cuCheckpointProcessCheckpoint", pid, Verb::Checkpoint, 0, Pairs::default())
}

pub(crate) unsafe fn cuCheckpointProcessRestore(pid: c_int, args: *mut CheckpointRestoreArgs) -> CuResult {
    let mut pairs = Pairs::default();
    // SAFETY: the caller's promise.
    if let Some(args) = unsafe { args.as_ref() } {
        let count = usize::try_from(args.gpu_pairs_count).unwrap_or(usize::MAX);
        // SAFETY: the caller's promise.
        let given = unsafe { args::list(args.gpu_pairs.cast_const(), count) }?;
        let room = pairs.pairs.get_mut(..count).ok_or(CuError::INVALID_VALUE)?;
        room.copy_from_slice(given);
        pairs.count = count;
    }
    ask("cuCheckpointProcessRestore", pid, Verb::Restore, 0, pairs)
}

pub(crate) unsafe fn cuCheckpointProcessUnlock(pid: c_int, _args: *mut CheckpointUnlockArgs) -> CuResult {
    ask("cuCheckpointProcessUnlock", pid, Verb::Unlock, 0, Pairs::default())
}
