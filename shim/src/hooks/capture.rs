//! Stream captures: where one begins and ends.
//!
//! The pass of a begin counts as a launch, and the capture is recorded while it is held: see [`captures`].

use core::ffi::{c_uint, c_void};

use cuda_sys::{CuResult, Graph, GraphNode, Stream};
use shim_core::calls::CallId;
use shim_core::gate;

use crate::driver::real;
use crate::{answers, captures};

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuStreamBeginCapture(h_stream: Stream) -> CuResult {
    let _pass = gate::enter(CallId::cuStreamBeginCapture);
    let context = captures::context_of(CallId::cuStreamBeginCapture, h_stream);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuStreamBeginCapture(h_stream) }?;
    captures::begun(CallId::cuStreamBeginCapture, h_stream, context);
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuStreamBeginCaptureToGraph(
    h_stream: Stream,
    h_graph: Graph,
    dependencies: *const GraphNode,
    dependency_data: *const c_void,
    num_dependencies: usize,
    mode: c_uint,
) -> CuResult {
    let _pass = gate::enter(CallId::cuStreamBeginCaptureToGraph);
    let context = captures::context_of(CallId::cuStreamBeginCaptureToGraph, h_stream);
    // SAFETY: the caller's arguments, unchanged.
    unsafe {
        real::cuStreamBeginCaptureToGraph(
            h_stream,
            h_graph,
            dependencies,
            dependency_data,
            num_dependencies,
            mode,
        )
    }?;
    captures::begun(CallId::cuStreamBeginCaptureToGraph, h_stream, context);
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuStreamBeginCaptureToGraph_ptsz(
    h_stream: Stream,
    h_graph: Graph,
    dependencies: *const GraphNode,
    dependency_data: *const c_void,
    num_dependencies: usize,
    mode: c_uint,
) -> CuResult {
    let _pass = gate::enter(CallId::cuStreamBeginCaptureToGraph_ptsz);
    let context = captures::context_of(CallId::cuStreamBeginCaptureToGraph_ptsz, h_stream);
    // SAFETY: the caller's arguments, unchanged.
    unsafe {
        real::cuStreamBeginCaptureToGraph_ptsz(
            h_stream,
            h_graph,
            dependencies,
            dependency_data,
            num_dependencies,
            mode,
        )
    }?;
    captures::begun(CallId::cuStreamBeginCaptureToGraph_ptsz, h_stream, context);
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuStreamBeginCapture_ptsz(h_stream: Stream) -> CuResult {
    let _pass = gate::enter(CallId::cuStreamBeginCapture_ptsz);
    let context = captures::context_of(CallId::cuStreamBeginCapture_ptsz, h_stream);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuStreamBeginCapture_ptsz(h_stream) }?;
    captures::begun(CallId::cuStreamBeginCapture_ptsz, h_stream, context);
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuStreamBeginCapture_v2(h_stream: Stream, mode: c_uint) -> CuResult {
    let _pass = gate::enter(CallId::cuStreamBeginCapture_v2);
    let context = captures::context_of(CallId::cuStreamBeginCapture_v2, h_stream);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuStreamBeginCapture_v2(h_stream, mode) }?;
    captures::begun(CallId::cuStreamBeginCapture_v2, h_stream, context);
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuStreamBeginCapture_v2_ptsz(h_stream: Stream, mode: c_uint) -> CuResult {
    let _pass = gate::enter(CallId::cuStreamBeginCapture_v2_ptsz);
    let context = captures::context_of(CallId::cuStreamBeginCapture_v2_ptsz, h_stream);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuStreamBeginCapture_v2_ptsz(h_stream, mode) }?;
    captures::begun(CallId::cuStreamBeginCapture_v2_ptsz, h_stream, context);
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuStreamEndCapture(h_stream: Stream, ph_graph: *mut Graph) -> CuResult {
    let _pass = gate::enter(CallId::cuStreamEndCapture);
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { real::cuStreamEndCapture(h_stream, ph_graph) };
    captures::ended(CallId::cuStreamEndCapture, h_stream, result.is_ok());
    result
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuStreamEndCapture_ptsz(h_stream: Stream, ph_graph: *mut Graph) -> CuResult {
    let _pass = gate::enter(CallId::cuStreamEndCapture_ptsz);
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { real::cuStreamEndCapture_ptsz(h_stream, ph_graph) };
    captures::ended(CallId::cuStreamEndCapture_ptsz, h_stream, result.is_ok());
    result
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuStreamDestroy(h_stream: Stream) -> CuResult {
    let _pass = gate::enter(CallId::cuStreamDestroy);
    let gone = captures::stream_gone(CallId::cuStreamDestroy, h_stream);
    let context = answers::stream_gone(h_stream);
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { real::cuStreamDestroy(h_stream) };
    if result.is_err() {
        gone.into_iter().for_each(captures::Gone::put_back);
        answers::stream_stays(h_stream, context);
    }
    result
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuStreamDestroy_v2(h_stream: Stream) -> CuResult {
    let _pass = gate::enter(CallId::cuStreamDestroy_v2);
    let gone = captures::stream_gone(CallId::cuStreamDestroy_v2, h_stream);
    let context = answers::stream_gone(h_stream);
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { real::cuStreamDestroy_v2(h_stream) };
    if result.is_err() {
        gone.into_iter().for_each(captures::Gone::put_back);
        answers::stream_stays(h_stream, context);
    }
    result
}
