//! Stream capture: what is given to a capturing stream becomes a graph instead of running.
//!
//! Work of other streams joins through events and must have joined back when the capture ends. A call that could break a capture
//! is prohibited while one is going on, by the rules of `cuThreadExchangeStreamCaptureMode`: it gives
//! STREAM_CAPTURE_UNSUPPORTED and the captures it could have broken are invalid from then on. Which calls these are was
//! measured: queries and waits, `cuMemAlloc`, `cuMemFree`, `cuMemHostAlloc`; not copies, nor virtual memory management.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::cell::Cell;
use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use cuda_sys::{CuError, CuResult, Graph as GraphHandle, GraphNode, Stream as StreamHandle};

use super::graph::Graph;
use super::op::Op;
use super::stream::{self, Stream};
use crate::args;
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

fn begin(handle: StreamHandle, mode: c_uint, graph: Option<&'static Graph>, last: Vec<usize>) -> CuResult {
    let driver = driver()?;
    let stream = stream::named(handle)?;
    if mode > RELAXED {
        return Err(CuError::INVALID_VALUE);
    }
    // The legacy stream cannot be captured.
    if stream.is_legacy() {
        return Err(CuError::STREAM_CAPTURE_UNSUPPORTED);
    }
    if stream.part.is_capturing() {
        return Err(CuError::ILLEGAL_STATE);
    }
    let capture = Arc::new(Capture {
        id: driver.captures.next_id.fetch_add(1, Ordering::Relaxed) + 1,
        mode,
        thread: thread(),
        origin: stream,
        graph: graph.unwrap_or_else(|| Graph::create(driver)),
        invalid: AtomicBool::new(false),
        joined: Mutex::new(Vec::new()),
    });
    driver.captures.enter(&capture);
    stream.part.set(Some(Point { capture, last }));
    Ok(())
}

pub(crate) unsafe fn cuStreamBeginCapture_v2(h_stream: StreamHandle, mode: c_uint) -> CuResult {
    begin(h_stream, mode, None, Vec::new())
}

pub(crate) unsafe fn cuStreamBeginCapture(h_stream: StreamHandle) -> CuResult {
    begin(h_stream, GLOBAL, None, Vec::new())
}

pub(crate) unsafe fn cuStreamBeginCaptureToGraph(
    h_stream: StreamHandle,
    h_graph: GraphHandle,
    dependencies: *const GraphNode,
    _dependency_data: *const c_void,
    num_dependencies: usize,
    mode: c_uint,
) -> CuResult {
    let graph = super::graph::named(h_graph)?;
    // SAFETY: the caller's promise.
    let dependencies = unsafe { args::list(dependencies, num_dependencies) }?;
    begin(h_stream, mode, Some(graph), graph.numbers(dependencies)?)
}

pub(crate) unsafe fn cuStreamEndCapture(h_stream: StreamHandle, ph_graph: *mut GraphHandle) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(ph_graph) }?;
    let stream = stream::named(h_stream)?;
    let point = crate::lock(&stream.part.point).clone().ok_or(CuError::ILLEGAL_STATE)?;
    let capture = &point.capture;
    if !std::ptr::eq(capture.origin, stream) {
        capture.invalidate();
        return Err(CuError::STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != RELAXED && capture.thread != thread() {
        return Err(CuError::STREAM_CAPTURE_WRONG_THREAD);
    }
    let joined = std::mem::take(&mut *crate::lock(&capture.joined));
    let mut unjoined = false;
    for other in joined {
        let last = crate::lock(&other.part.point).as_ref().map(|point| point.last.clone());
        unjoined |= last.is_some_and(|last| !capture.graph.all_lead_to(&last, &point.last));
        other.part.set(None);
    }
    stream.part.set(None);
    driver.captures.leave(capture);
    let failed = match (capture.invalid.load(Ordering::Acquire), unjoined) {
        (true, _) => Some(CuError::STREAM_CAPTURE_INVALIDATED),
        (_, true) => Some(CuError::STREAM_CAPTURE_UNJOINED),
        _ => None,
    };
    if let Some(error) = failed {
        place.write(GraphHandle::NULL);
        return Err(error);
    }
    place.write(capture.graph.handle());
    Ok(())
}

pub(crate) unsafe fn cuStreamIsCapturing(h_stream: StreamHandle, capture_status: *mut c_uint) -> CuResult {
    driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(capture_status) }?;
    let stream = stream::named(h_stream)?;
    legacy_is_free_to_ask(stream)?;
    place.write(stream.part.status());
    Ok(())
}

/// Asking the legacy stream while a blocking stream captures is STREAM_CAPTURE_IMPLICIT, and breaks nothing.
fn legacy_is_free_to_ask(stream: &Stream) -> CuResult {
    let driver = driver()?;
    let implicit = |capture: &Arc<Capture>| {
        std::ptr::eq(capture.origin.context(), stream.context()) && capture.origin.is_blocking()
    };
    if stream.is_legacy() && crate::lock(&driver.captures.active).iter().any(implicit) {
        return Err(CuError::STREAM_CAPTURE_IMPLICIT);
    }
    Ok(())
}

pub(crate) unsafe fn cuStreamGetCaptureInfo(
    h_stream: StreamHandle,
    capture_status_out: *mut c_uint,
    id_out: *mut u64,
) -> CuResult {
    // SAFETY: the caller's promise; what is left out may be null.
    unsafe {
        cuStreamGetCaptureInfo_v2(
            h_stream,
            capture_status_out,
            id_out,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    }
}

pub(crate) unsafe fn cuStreamGetCaptureInfo_v2(
    h_stream: StreamHandle,
    capture_status_out: *mut c_uint,
    id_out: *mut u64,
    graph_out: *mut GraphHandle,
    dependencies_out: *mut *const GraphNode,
    num_dependencies_out: *mut usize,
) -> CuResult {
    driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(capture_status_out) }?;
    let stream = stream::named(h_stream)?;
    legacy_is_free_to_ask(stream)?;
    place.write(stream.part.status());
    let point = crate::lock(&stream.part.point).clone();
    let Some(point) = point else { return Ok(()) };
    // SAFETY: the caller's promise.
    if let Some(place) = unsafe { args::optional(id_out) } {
        place.write(point.capture.id);
    }
    // SAFETY: the caller's promise.
    if let Some(place) = unsafe { args::optional(graph_out) } {
        place.write(point.capture.graph.handle());
    }
    let (nodes, count) = point.capture.graph.shown_dependencies(&point.last);
    // SAFETY: the caller's promise.
    if let Some(place) = unsafe { args::optional(num_dependencies_out) } {
        place.write(count);
    }
    // SAFETY: the caller's promise.
    if let Some(place) = unsafe { args::optional(dependencies_out) } {
        place.write(nodes);
    }
    Ok(())
}

pub(crate) unsafe fn cuStreamGetCaptureInfo_v3(
    h_stream: StreamHandle,
    capture_status_out: *mut c_uint,
    id_out: *mut u64,
    graph_out: *mut GraphHandle,
    dependencies_out: *mut *const GraphNode,
    edge_data_out: *mut *const c_void,
    num_dependencies_out: *mut usize,
) -> CuResult {
    // SAFETY: the caller's promise.
    if let Some(place) = unsafe { args::optional(edge_data_out) } {
        place.write(std::ptr::null());
    }
    // SAFETY: the caller's promise.
    unsafe {
        cuStreamGetCaptureInfo_v2(
            h_stream,
            capture_status_out,
            id_out,
            graph_out,
            dependencies_out,
            num_dependencies_out,
        )
    }
}

/// Flag 0 adds to the nodes that the next one depends on, flag 1 replaces them.
pub(crate) unsafe fn cuStreamUpdateCaptureDependencies(
    h_stream: StreamHandle,
    dependencies: *mut GraphNode,
    num_dependencies: usize,
    flags: c_uint,
) -> CuResult {
    let stream = stream::named(h_stream)?;
    // SAFETY: the caller's promise.
    let dependencies = unsafe { args::list(dependencies.cast_const(), num_dependencies) }?;
    let mut place = crate::lock(&stream.part.point);
    let point = place.as_mut().ok_or(CuError::ILLEGAL_STATE)?;
    let numbers = point.capture.graph.numbers(dependencies)?;
    match flags {
        0 => point.last.extend(numbers),
        1 => point.last = numbers,
        _ => return Err(CuError::INVALID_VALUE),
    }
    Ok(())
}

/// Changes what calls of this thread a capture prohibits, and gives back what it was.
pub(crate) unsafe fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) -> CuResult {
    driver()?;
    // SAFETY: the caller's promise.
    let wanted = unsafe { args::read(mode) }?;
    if ![GLOBAL, THREAD_LOCAL, RELAXED].contains(&wanted) {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    unsafe { args::out(mode) }?.write(MODE.with(|mode| mode.replace(wanted)));
    Ok(())
}
