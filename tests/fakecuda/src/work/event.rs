//! Events: a record remembers a piece of work, and the event is complete when that is.
//!
//! An interprocess event counts its records in a share, so that every process that opened it sees them. It connects its
//! processes also after both went through a checkpoint (docs/DRIVER-VERSIONS.md, what a process holds).

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::c_uint;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use cuda_sys::{CuError, CuResult, Event as Handle, IPC_HANDLE_SIZE, IpcEventHandle, Stream as StreamHandle};

use super::capture::{self, Point};
use super::op::Op;
use super::stream::{self, Ticket};
use crate::args;
use crate::context::current;
use crate::driver::{Driver, driver};
use crate::machine::shares::{Held, Kind};
use crate::slab::address_of;
use crate::trace::violation;

const DISABLE_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;
const MAGIC: u64 = u64::from_le_bytes(*b"fakeevnt");

/// One event. Its handle is its address.
#[derive(Debug, Default)]
pub(crate) struct Event {
    flags: AtomicU32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Counts records; never goes back.
    records: u64,
    /// The last record.
    ticket: Option<Ticket>,
    /// When the last record happened, and which one that was.
    happened: Option<(u64, Instant)>,
    /// The share of an interprocess event, and whether this process made it.
    share: Option<Arc<Held>>,
    opened: bool,
    /// The place in a capture that the last record marks.
    point: Option<Point>,
}

fn named(handle: Handle, call: &str) -> CuResult<&'static Event> {
    let driver = driver()?;
    driver.events.get(handle.0.addr()).ok_or_else(|| {
        violation(format_args!("{call}: {handle:?} is not an event"));
        CuError::INVALID_HANDLE
    })
}

fn new_event(driver: &Driver, flags: c_uint, share: Option<Held>, opened: bool) -> Handle {
    let event = driver.events.insert(|event| {
        event.flags.store(flags, Ordering::Relaxed);
        let mut state = crate::lock(&event.state);
        let records = state.records;
        *state = State { records, share: share.map(Arc::new), opened, ..State::default() };
    });
    Handle(std::ptr::with_exposed_provenance_mut(address_of(event)))
}

impl Event {
    /// A record has been reached.
    pub(super) fn happen(&self, driver: &Driver, count: u64) {
        let mut state = crate::lock(&self.state);
        if state.records == count {
            state.happened = Some((count, Instant::now()));
        }
        drop(state);
        driver.machine.changed();
    }

    /// The share of the event, and the last record that it has counted.
    fn shared(&self, driver: &Driver) -> Option<(Arc<Held>, u64)> {
        let held = crate::lock(&self.state).share.clone()?;
        let recorded = driver.machine.share(held.number)?.recorded.load(Ordering::SeqCst);
        Some((held, recorded))
    }

    fn is_done(&self, driver: &Driver) -> CuResult<bool> {
        if crate::lock(&self.state).point.is_some() {
            return Err(CuError::CAPTURED_EVENT);
        }
        if let Some((held, recorded)) = self.shared(driver) {
            let share = driver.machine.share(held.number);
            return Ok(share.is_none_or(|share| share.completed.load(Ordering::SeqCst) >= recorded));
        }
        Ok(crate::lock(&self.state).ticket.is_none_or(|ticket| ticket.is_done()))
    }
}

pub(crate) unsafe fn cuEventCreate(ph_event: *mut Handle, flags: c_uint) -> CuResult {
    let driver = driver()?;
    current()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(ph_event) }?;
    if flags & !7 != 0 || (flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0) {
        return Err(CuError::INVALID_VALUE);
    }
    let share =
        if flags & INTERPROCESS != 0 { Some(driver.machine.new_share(Kind::Event, None, 0)?) } else { None };
    place.write(new_event(driver, flags, share, false));
    Ok(())
}

/// May be called before the event is complete.
pub(crate) unsafe fn cuEventDestroy_v2(h_event: Handle) -> CuResult {
    let driver = driver()?;
    let event = named(h_event, "cuEventDestroy")?;
    if driver.events.remove(address_of(event)).is_none() {
        return Err(CuError::INVALID_HANDLE);
    }
    crate::lock(&event.state).share = None;
    driver.events.recycle(event);
    Ok(())
}

pub(crate) unsafe fn cuEventRecord(h_event: Handle, h_stream: StreamHandle) -> CuResult {
    let driver = driver()?;
    let event = named(h_event, "cuEventRecord")?;
    let stream = stream::named(h_stream)?;
    if let Some(point) = capture::point_of(stream)? {
        crate::lock(&event.state).point = Some(point);
        return Ok(());
    }
    let mut state = crate::lock(&event.state);
    state.point = None;
    state.records += 1;
    let op = match &state.share {
        None => Op::Record(event, state.records),
        Some(held) => {
            let share = driver.machine.share(held.number).ok_or(CuError::INVALID_HANDLE)?;
            Op::RecordShared(Arc::clone(held), share.recorded.fetch_add(1, Ordering::SeqCst) + 1)
        }
    };
    drop(state);
    let ticket = super::submit(stream, op, Vec::new())?;
    crate::lock(&event.state).ticket = ticket;
    Ok(())
}

pub(crate) unsafe fn cuEventRecordWithFlags(
    h_event: Handle,
    h_stream: StreamHandle,
    flags: c_uint,
) -> CuResult {
    if flags > 1 {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    unsafe { cuEventRecord(h_event, h_stream) }
}

pub(crate) unsafe fn cuEventQuery(h_event: Handle) -> CuResult {
    let driver = driver()?;
    let event = named(h_event, "cuEventQuery")?;
    capture::unsafe_call(driver)?;
    if event.is_done(driver)? { Ok(()) } else { Err(CuError::NOT_READY) }
}

pub(crate) unsafe fn cuEventSynchronize(h_event: Handle) -> CuResult {
    let driver = driver()?;
    let event = named(h_event, "cuEventSynchronize")?;
    capture::unsafe_call(driver)?;
    event.is_done(driver)?;
    if let Some((held, recorded)) = event.shared(driver) {
        driver.machine.wait_until(|| {
            let share = driver.machine.share(held.number);
            share.is_none_or(|share| share.completed.load(Ordering::SeqCst) >= recorded)
        });
        return Ok(());
    }
    let ticket = crate::lock(&event.state).ticket;
    if let Some(ticket) = ticket {
        ticket.wait();
        ticket.stream.context().check()?;
    }
    Ok(())
}

pub(crate) unsafe fn cuEventElapsedTime(
    p_milliseconds: *mut f32,
    h_start: Handle,
    h_end: Handle,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(p_milliseconds) }?;
    let moment = |handle| -> CuResult<Instant> {
        let event = named(handle, "cuEventElapsedTime")?;
        if event.flags.load(Ordering::Relaxed) & DISABLE_TIMING != 0 {
            return Err(CuError::INVALID_HANDLE);
        }
        if !event.is_done(driver)? {
            return Err(CuError::NOT_READY);
        }
        crate::lock(&event.state).happened.map(|(_, moment)| moment).ok_or(CuError::INVALID_HANDLE)
    };
    let (start, end) = (moment(h_start)?, moment(h_end)?);
    let forward = end.saturating_duration_since(start).as_secs_f32();
    let backward = start.saturating_duration_since(end).as_secs_f32();
    place.write((forward - backward) * 1000.0);
    Ok(())
}

pub(crate) unsafe fn cuEventElapsedTime_v2(
    p_milliseconds: *mut f32,
    h_start: Handle,
    h_end: Handle,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { cuEventElapsedTime(p_milliseconds, h_start, h_end) }
}

/// Work that is submitted later waits for the last record there was at this moment.
pub(crate) unsafe fn cuStreamWaitEvent(h_stream: StreamHandle, h_event: Handle, _flags: c_uint) -> CuResult {
    let driver = driver()?;
    let event = named(h_event, "cuStreamWaitEvent")?;
    let stream = stream::named(h_stream)?;
    let point = crate::lock(&event.state).point.clone();
    if let Some(point) = point {
        return capture::join(stream, &point);
    }
    if let Some((held, recorded)) = event.shared(driver) {
        return super::submit(stream, Op::WaitShared(held, recorded), Vec::new()).map(|_| ());
    }
    let ticket = crate::lock(&event.state).ticket;
    match ticket {
        Some(ticket) if !ticket.is_done() => super::submit(stream, Op::Nothing, vec![ticket]).map(|_| ()),
        _ => Ok(()),
    }
}

pub(crate) unsafe fn cuIpcGetEventHandle(p_handle: *mut IpcEventHandle, event: Handle) -> CuResult {
    driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(p_handle) }?;
    let event = named(event, "cuIpcGetEventHandle")?;
    let state = crate::lock(&event.state);
    let held = state.share.as_ref().filter(|_| !state.opened).ok_or(CuError::INVALID_HANDLE)?;
    let mut reserved = [0; IPC_HANDLE_SIZE];
    for (bytes, word) in reserved.chunks_exact_mut(8).zip([MAGIC, args::wide(held.number), held.id]) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    place.write(IpcEventHandle { reserved });
    Ok(())
}

pub(crate) unsafe fn cuIpcOpenEventHandle(ph_event: *mut Handle, handle: IpcEventHandle) -> CuResult {
    let driver = driver()?;
    current()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(ph_event) }?;
    let mut words =
        handle.reserved.chunks_exact(8).map(|bytes| bytes.try_into().map_or(0, u64::from_ne_bytes));
    let (Some(MAGIC), Some(number), Some(id)) = (words.next(), words.next(), words.next()) else {
        return Err(CuError::INVALID_VALUE);
    };
    let held = driver.machine.open_share(args::size(number), id).ok_or(CuError::INVALID_VALUE)?;
    place.write(new_event(driver, INTERPROCESS | DISABLE_TIMING, Some(held), true));
    Ok(())
}
