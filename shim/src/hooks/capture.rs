//! Stream captures: where one begins and ends.

use core::ffi::{c_uint, c_void};

use cuda_sys::{CuResult, Graph, GraphNode, Stream};
use shim_core::calls::CallId;
use shim_core::gate;

use crate::driver::real;

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuStreamBeginCapture(h_stream: Stream) -> CuResult {
    let _pass = gate::enter(CallId::cuStreamBeginCapture);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuStreamBeginCapture(h_stream) }
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
    }
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
    }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuStreamBeginCapture_ptsz(h_stream: Stream) -> CuResult {
    let _pass = gate::enter(CallId::cuStreamBeginCapture_ptsz);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuStreamBeginCapture_ptsz(h_stream) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuStreamBeginCapture_v2(h_stream: Stream, mode: c_uint) -> CuResult {
    let _pass = gate::enter(CallId::cuStreamBeginCapture_v2);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuStreamBeginCapture_v2(h_stream, mode) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuStreamBeginCapture_v2_ptsz(h_stream: Stream, mode: c_uint) -> CuResult {
    let _pass = gate::enter(CallId::cuStreamBeginCapture_v2_ptsz);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuStreamBeginCapture_v2_ptsz(h_stream, mode) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuStreamEndCapture(h_stream: Stream, ph_graph: *mut Graph) -> CuResult {
    let _pass = gate::enter(CallId::cuStreamEndCapture);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuStreamEndCapture(h_stream, ph_graph) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuStreamEndCapture_ptsz(h_stream: Stream, ph_graph: *mut Graph) -> CuResult {
    let _pass = gate::enter(CallId::cuStreamEndCapture_ptsz);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuStreamEndCapture_ptsz(h_stream, ph_graph) }
}
