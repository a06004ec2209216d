//! The thread that answers other processes, and that is the restore thread.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cuda_sys::{CuError, CuResult, ProcessState, number};
use rustix::net::{SocketFlags, accept_with};

use super::save;
use super::wire::{self, Request, Verb};
use crate::driver::Driver;
use crate::{hold, work};

/// Starts the thread. Its name is `cuda` and hexadecimal digits, as with the real driver (docs/DRIVER-VERSIONS.md, `locking`); nobody
/// should rely on that.
pub(crate) fn start(driver: &'static Driver) {
    let socket = match wire::serve(driver.machine.dir(), driver.machine.slot_number()) {
        Ok(socket) => socket,
        Err(error) => {
            return crate::trace::complain(&format!("other processes cannot reach this one: {error}"));
        }
    };
    let name = format!("cuda{:011x}", std::process::id());
    work::stream::without_signals(|| {
        let started = std::thread::Builder::new().name(name).spawn(move || run(driver, &socket));
        if let Err(error) = started {
            crate::trace::complain(&format!("no thread for the checkpoint API: {error}"));
        }
    });
    // Whoever sees this process initialised may ask for the thread.
    while driver.machine.own_slot().restore_thread.load(Ordering::Acquire) == 0 {
        std::thread::yield_now();
    }
}

fn run(driver: &'static Driver, socket: &OwnedFd) {
    let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    driver.machine.own_slot().restore_thread.store(tid, Ordering::Release);
    loop {
        let Ok(connection) = accept_with(socket, SocketFlags::CLOEXEC) else { continue };
        if let Some(request) = wire::hear(&connection) {
            wire::answer(&connection, number(serve(driver, &request, &connection)));
        }
    }
}

fn serve(driver: &'static Driver, request: &Request, connection: &OwnedFd) -> CuResult {
    let state = &driver.machine.own_slot().state;
    let (from, to) = match request.verb {
        Verb::Lock => (ProcessState::RUNNING, ProcessState::LOCKED),
        Verb::Checkpoint => (ProcessState::LOCKED, ProcessState::CHECKPOINTED),
        Verb::Restore => (ProcessState::CHECKPOINTED, ProcessState::LOCKED),
        Verb::Unlock => (ProcessState::LOCKED, ProcessState::RUNNING),
    };
    if state.load(Ordering::Acquire) != from.0 {
        return Err(CuError::ILLEGAL_STATE);
    }
    match request.verb {
        Verb::Lock => lock(driver, request.timeout_ms, connection)?,
        Verb::Checkpoint => save::checkpoint(driver)?,
        Verb::Restore => {
            let pairs = &request.pairs;
            save::restore(driver, pairs.pairs.get(..pairs.count).unwrap_or(&[]))?;
        }
        Verb::Unlock => save::forget(driver),
    }
    hold::set_checkpointed(to == ProcessState::CHECKPOINTED);
    state.store(to.0, Ordering::Release);
    if to == ProcessState::RUNNING {
        hold::open();
    }
    Ok(())
}

/// Holds new calls and waits until those in progress, and all work, are done. Where that takes too long, or nobody waits for
/// the answer any longer, the process goes on.
fn lock(driver: &'static Driver, timeout_ms: u32, connection: &OwnedFd) -> CuResult {
    hold::close();
    let limit = Duration::from_millis(timeout_ms.into());
    let deadline = (timeout_ms != 0).then(|| Instant::now() + limit);
    let quiet = || hold::drained() && work::is_idle(driver);
    let ended = hold::wait_until(deadline, || quiet() || wire::is_gone(connection));
    if ended && quiet() {
        return Ok(());
    }
    hold::open();
    Err(CuError::NOT_READY)
}
