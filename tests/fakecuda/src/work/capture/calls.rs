//! The functions that begin, end and ask about a capture.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::{c_uint, c_void};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use cuda_sys::{CuError, CuResult, Graph as GraphHandle, GraphNode, Stream as StreamHandle};

use super::super::graph::{self, Graph};
use super::super::stream::{self, Stream};
use super::{Capture, GLOBAL, MODE, Point, RELAXED, THREAD_LOCAL, thread};
use crate::args;
use crate::driver::driver;

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
    let graph = graph::named(h_graph)?;
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
