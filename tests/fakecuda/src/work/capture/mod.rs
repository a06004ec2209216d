//! Stream capture: what is given to a capturing stream becomes a graph instead of running.
//!
//! Work of other streams joins through events and must have joined back when the capture ends. A call that could break a capture
//! is prohibited while one is going on, by the rules of `cuThreadExchangeStreamCaptureMode`: it gives
//! STREAM_CAPTURE_UNSUPPORTED and the captures it could have broken are invalid from then on. Which calls these are was
//! measured: queries and waits, `cuMemAlloc`, `cuMemFree`, `cuMemHostAlloc`; not copies, nor virtual memory management.

#![allow(non_snake_case, reason = "the driver's own names")]

pub(crate) mod calls;

use std::cell::Cell;
use std::ffi::c_uint;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use cuda_sys::{CuError, CuResult};

use super::graph::Graph;
use super::op::Op;
use super::stream::Stream;
use crate::context::Ctx;
use crate::driver::{Driver, driver};

const GLOBAL: c_uint = 0;
const THREAD_LOCAL: c_uint = 1;
const RELAXED: c_uint = 2;

const NONE: c_uint = 0;
const ACTIVE: c_uint = 1;
const INVALIDATED: c_uint = 2;

thread_local! {
    static MODE: Cell<c_uint> = const { Cell::new(GLOBAL) };
}

/// One capture.
#[derive(Debug)]
pub(crate) struct Capture {
    id: u64,
    mode: c_uint,
    thread: i32,
    origin: &'static Stream,
    graph: &'static Graph,
    invalid: AtomicBool,
    joined: Mutex<Vec<&'static Stream>>,
}

/// The part of a capture that a stream is at.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    capture: Arc<Capture>,
    /// Nodes that the next one depends on.
    last: Vec<usize>,
}

/// A stream's part in a capture.
#[derive(Debug, Default)]
pub(crate) struct Part {
    is_capturing: AtomicBool,
    point: Mutex<Option<Point>>,
}

/// The captures of the process.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    next_id: AtomicU64,
    count: AtomicU32,
    active: Mutex<Vec<Arc<Capture>>>,
}

fn thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

impl Part {
    #[inline]
    pub(super) fn is_capturing(&self) -> bool {
        self.is_capturing.load(Ordering::Acquire)
    }

    fn set(&self, point: Option<Point>) {
        let mut place = crate::lock(&self.point);
        self.is_capturing.store(point.is_some(), Ordering::Release);
        *place = point;
    }

    fn status(&self) -> c_uint {
        match &*crate::lock(&self.point) {
            None => NONE,
            Some(point) if point.capture.invalid.load(Ordering::Acquire) => INVALIDATED,
            Some(_) => ACTIVE,
        }
    }
}

impl Capture {
    fn invalidate(&self) {
        self.invalid.store(true, Ordering::Release);
    }
}

impl Captures {
    /// Whether any stream of the process captures.
    pub(super) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) != 0
    }

    fn enter(&self, capture: &Arc<Capture>) {
        crate::lock(&self.active).push(Arc::clone(capture));
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    fn leave(&self, capture: &Arc<Capture>) {
        crate::lock(&self.active).retain(|other| !Arc::ptr_eq(other, capture));
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A call that is prohibited while a capture goes on that concerns this thread.
pub(crate) fn unsafe_call(driver: &Driver) -> CuResult {
    if !driver.captures.any() {
        return Ok(());
    }
    let mode = MODE.with(Cell::get);
    if mode == RELAXED {
        return Ok(());
    }
    let own = thread();
    let mut result = Ok(());
    for capture in crate::lock(&driver.captures.active).iter() {
        let concerns = match capture.mode {
            RELAXED => false,
            GLOBAL => capture.thread == own || mode == GLOBAL,
            _ => capture.thread == own,
        };
        if concerns {
            capture.invalidate();
            result = Err(CuError::STREAM_CAPTURE_UNSUPPORTED);
        }
    }
    result
}

/// The wait for a whole context breaks every capture in it, whatever its mode and thread (as measured).
pub(crate) fn synchronize(driver: &Driver, context: &'static Ctx) -> CuResult {
    if !driver.captures.any() {
        return Ok(());
    }
    let mut result = Ok(());
    for capture in crate::lock(&driver.captures.active).iter() {
        if std::ptr::eq(capture.origin.context(), context) {
            capture.invalidate();
            result = Err(CuError::STREAM_CAPTURE_UNSUPPORTED);
        }
    }
    result
}

/// A call that cannot be captured; asking for it on a capturing stream invalidates the capture.
pub(crate) fn not_capturing(stream: &Stream) -> CuResult {
    if !stream.part.is_capturing() {
        return legacy_is_free(stream);
    }
    if let Some(point) = &*crate::lock(&stream.part.point) {
        point.capture.invalidate();
    }
    Err(CuError::STREAM_CAPTURE_UNSUPPORTED)
}

/// Use of the legacy stream would make it wait for a blocking stream that captures.
pub(super) fn legacy_is_free(stream: &Stream) -> CuResult {
    let Ok(driver) = driver() else { return Ok(()) };
    if !driver.captures.any() || !stream.is_legacy() {
        return Ok(());
    }
    let mut result = Ok(());
    for capture in crate::lock(&driver.captures.active).iter() {
        let same_context = std::ptr::eq(capture.origin.context(), stream.context());
        if same_context && capture.origin.is_blocking() {
            capture.invalidate();
            result = Err(CuError::STREAM_CAPTURE_IMPLICIT);
        }
    }
    result
}

/// Adds work to the graph that a capturing stream makes.
pub(super) fn add(stream: &Stream, op: Op) -> CuResult {
    let mut place = crate::lock(&stream.part.point);
    let Some(point) = place.as_mut() else { return Err(CuError::STREAM_CAPTURE_INVALIDATED) };
    if point.capture.invalid.load(Ordering::Acquire) {
        return Err(CuError::STREAM_CAPTURE_INVALIDATED);
    }
    let node = point.capture.graph.add(op, std::mem::take(&mut point.last));
    point.last = vec![node];
    Ok(())
}

/// Where a capturing stream is, for an event that is recorded in it.
pub(super) fn point_of(stream: &Stream) -> CuResult<Option<Point>> {
    if !stream.part.is_capturing() {
        return Ok(None);
    }
    let point = crate::lock(&stream.part.point).clone();
    match point {
        Some(point) if point.capture.invalid.load(Ordering::Acquire) => {
            Err(CuError::STREAM_CAPTURE_INVALIDATED)
        }
        point => Ok(point),
    }
}

/// A stream waits for an event of a capture: it takes part in it from here on.
pub(super) fn join(stream: &'static Stream, point: &Point) -> CuResult {
    if point.capture.invalid.load(Ordering::Acquire) {
        return Err(CuError::STREAM_CAPTURE_INVALIDATED);
    }
    let mut place = crate::lock(&stream.part.point);
    match place.as_mut() {
        Some(own) if Arc::ptr_eq(&own.capture, &point.capture) => {
            for node in &point.last {
                if !own.last.contains(node) {
                    own.last.push(*node);
                }
            }
        }
        Some(own) => {
            own.capture.invalidate();
            point.capture.invalidate();
            return Err(CuError::STREAM_CAPTURE_MERGE);
        }
        None => {
            stream.part.is_capturing.store(true, Ordering::Release);
            *place = Some(point.clone());
            drop(place);
            crate::lock(&point.capture.joined).push(stream);
        }
    }
    Ok(())
}
