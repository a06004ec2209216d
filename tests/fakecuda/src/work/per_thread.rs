//! The `_ptsz` functions: those that name a stream, where null is the default stream of the calling thread.

#![allow(non_snake_case, reason = "the driver's own names")]
#![allow(clippy::too_many_arguments, reason = "the driver's own signatures")]

use std::ffi::{c_int, c_uint, c_void};

use cuda_sys::*;

use crate::api;
use crate::args;

/// The default stream of the calling thread: `CU_STREAM_PER_THREAD`.
pub(super) const OWN: Stream = Stream(std::ptr::without_provenance_mut(2));

fn own(stream: Stream) -> Stream {
    if stream.is_null() { OWN } else { stream }
}

macro_rules! per_thread {
    ($(fn $own:ident = $plain:ident($($arg:ident: $ty:ty),*) on $stream:ident;)*) => {$(
        pub(crate) unsafe fn $own($($arg: $ty),*) -> CuResult {
            let $stream = own($stream);
            // SAFETY: the caller's promise.
            unsafe { api::$plain($($arg),*) }
        }
    )*};
}

per_thread! {
    fn cuEventRecordWithFlags_ptsz = cuEventRecordWithFlags(h_event: Event, h_stream: Stream, flags: c_uint) on h_stream;
    fn cuEventRecord_ptsz = cuEventRecord(h_event: Event, h_stream: Stream) on h_stream;
    fn cuGraphLaunch_ptsz = cuGraphLaunch(h_graph_exec: GraphExec, h_stream: Stream) on h_stream;
    fn cuGraphUpload_ptsz = cuGraphUpload(h_graph_exec: GraphExec, h_stream: Stream) on h_stream;
    fn cuLaunchCooperativeKernel_ptsz = cuLaunchCooperativeKernel(f: Function, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, h_stream: Stream, kernel_params: *mut *mut c_void) on h_stream;
    fn cuLaunchHostFunc_ptsz = cuLaunchHostFunc(h_stream: Stream, func: HostFn, user_data: *mut c_void) on h_stream;
    fn cuLaunchKernel_ptsz = cuLaunchKernel(f: Function, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, h_stream: Stream, kernel_params: *mut *mut c_void, extra: *mut *mut c_void) on h_stream;
    fn cuMemAllocAsync_ptsz = cuMemAllocAsync(dptr: *mut DevicePtr, bytesize: usize, h_stream: Stream) on h_stream;
    fn cuMemAllocFromPoolAsync_ptsz = cuMemAllocFromPoolAsync(dptr: *mut DevicePtr, bytesize: usize, pool: MemPool, h_stream: Stream) on h_stream;
    fn cuMemFreeAsync_ptsz = cuMemFreeAsync(dptr: DevicePtr, h_stream: Stream) on h_stream;
    fn cuMemcpy2DAsync_v2_ptsz = cuMemcpy2DAsync_v2(p_copy: *const c_void, h_stream: Stream) on h_stream;
    fn cuMemcpy3DAsync_v2_ptsz = cuMemcpy3DAsync_v2(p_copy: *const c_void, h_stream: Stream) on h_stream;
    fn cuMemcpy3DPeerAsync_ptsz = cuMemcpy3DPeerAsync(p_copy: *const c_void, h_stream: Stream) on h_stream;
    fn cuMemcpyAtoHAsync_v2_ptsz = cuMemcpyAtoHAsync_v2(dst_host: *mut c_void, src_array: Array, src_offset: usize, byte_count: usize, h_stream: Stream) on h_stream;
    fn cuMemcpyHtoAAsync_v2_ptsz = cuMemcpyHtoAAsync_v2(dst_array: Array, dst_offset: usize, src_host: *const c_void, byte_count: usize, h_stream: Stream) on h_stream;
    fn cuMemcpyAsync_ptsz = cuMemcpyAsync(dst: DevicePtr, src: DevicePtr, byte_count: usize, h_stream: Stream) on h_stream;
    fn cuMemcpyDtoDAsync_v2_ptsz = cuMemcpyDtoDAsync_v2(dst_device: DevicePtr, src_device: DevicePtr, byte_count: usize, h_stream: Stream) on h_stream;
    fn cuMemcpyDtoHAsync_v2_ptsz = cuMemcpyDtoHAsync_v2(dst_host: *mut c_void, src_device: DevicePtr, byte_count: usize, h_stream: Stream) on h_stream;
    fn cuMemcpyHtoDAsync_v2_ptsz = cuMemcpyHtoDAsync_v2(dst_device: DevicePtr, src_host: *const c_void, byte_count: usize, h_stream: Stream) on h_stream;
    fn cuMemcpyPeerAsync_ptsz = cuMemcpyPeerAsync(dst_device: DevicePtr, dst_context: Context, src_device: DevicePtr, src_context: Context, byte_count: usize, h_stream: Stream) on h_stream;
    fn cuMemsetD16Async_ptsz = cuMemsetD16Async(dst_device: DevicePtr, us: u16, n: usize, h_stream: Stream) on h_stream;
    fn cuMemsetD2D16Async_ptsz = cuMemsetD2D16Async(dst_device: DevicePtr, dst_pitch: usize, us: u16, width: usize, height: usize, h_stream: Stream) on h_stream;
    fn cuMemsetD2D32Async_ptsz = cuMemsetD2D32Async(dst_device: DevicePtr, dst_pitch: usize, ui: c_uint, width: usize, height: usize, h_stream: Stream) on h_stream;
    fn cuMemsetD2D8Async_ptsz = cuMemsetD2D8Async(dst_device: DevicePtr, dst_pitch: usize, uc: u8, width: usize, height: usize, h_stream: Stream) on h_stream;
    fn cuMemsetD32Async_ptsz = cuMemsetD32Async(dst_device: DevicePtr, ui: c_uint, n: usize, h_stream: Stream) on h_stream;
    fn cuMemsetD8Async_ptsz = cuMemsetD8Async(dst_device: DevicePtr, uc: u8, n: usize, h_stream: Stream) on h_stream;
    fn cuStreamAddCallback_ptsz = cuStreamAddCallback(h_stream: Stream, callback: StreamCallback, user_data: *mut c_void, flags: c_uint) on h_stream;
    fn cuStreamBatchMemOp_v2_ptsz = cuStreamBatchMemOp_v2(stream: Stream, count: c_uint, param_array: *mut c_void, flags: c_uint) on stream;
    fn cuStreamBeginCaptureToGraph_ptsz = cuStreamBeginCaptureToGraph(h_stream: Stream, h_graph: Graph, dependencies: *const GraphNode, dependency_data: *const c_void, num_dependencies: usize, mode: c_uint) on h_stream;
    fn cuStreamBeginCapture_ptsz = cuStreamBeginCapture(h_stream: Stream) on h_stream;
    fn cuStreamBeginCapture_v2_ptsz = cuStreamBeginCapture_v2(h_stream: Stream, mode: c_uint) on h_stream;
    fn cuStreamEndCapture_ptsz = cuStreamEndCapture(h_stream: Stream, ph_graph: *mut Graph) on h_stream;
    fn cuStreamGetCaptureInfo_ptsz = cuStreamGetCaptureInfo(h_stream: Stream, capture_status_out: *mut c_uint, id_out: *mut u64) on h_stream;
    fn cuStreamGetCaptureInfo_v2_ptsz = cuStreamGetCaptureInfo_v2(h_stream: Stream, capture_status_out: *mut c_uint, id_out: *mut u64, graph_out: *mut Graph, dependencies_out: *mut *const GraphNode, num_dependencies_out: *mut usize) on h_stream;
    fn cuStreamGetCaptureInfo_v3_ptsz = cuStreamGetCaptureInfo_v3(h_stream: Stream, capture_status_out: *mut c_uint, id_out: *mut u64, graph_out: *mut Graph, dependencies_out: *mut *const GraphNode, edge_data_out: *mut *const c_void, num_dependencies_out: *mut usize) on h_stream;
    fn cuStreamGetCtx_ptsz = cuStreamGetCtx(h_stream: Stream, pctx: *mut Context) on h_stream;
    fn cuStreamGetDevice_ptsz = cuStreamGetDevice(h_stream: Stream, device: *mut Device) on h_stream;
    fn cuStreamGetFlags_ptsz = cuStreamGetFlags(h_stream: Stream, flags: *mut c_uint) on h_stream;
    fn cuStreamGetId_ptsz = cuStreamGetId(h_stream: Stream, stream_id: *mut u64) on h_stream;
    fn cuStreamGetPriority_ptsz = cuStreamGetPriority(h_stream: Stream, priority: *mut c_int) on h_stream;
    fn cuStreamIsCapturing_ptsz = cuStreamIsCapturing(h_stream: Stream, capture_status: *mut c_uint) on h_stream;
    fn cuStreamQuery_ptsz = cuStreamQuery(h_stream: Stream) on h_stream;
    fn cuStreamSynchronize_ptsz = cuStreamSynchronize(h_stream: Stream) on h_stream;
    fn cuStreamUpdateCaptureDependencies_ptsz = cuStreamUpdateCaptureDependencies(h_stream: Stream, dependencies: *mut GraphNode, num_dependencies: usize, flags: c_uint) on h_stream;
    fn cuStreamWaitEvent_ptsz = cuStreamWaitEvent(h_stream: Stream, h_event: Event, flags: c_uint) on h_stream;
    fn cuStreamWaitValue32_v2_ptsz = cuStreamWaitValue32_v2(stream: Stream, addr: DevicePtr, value: u32, flags: c_uint) on stream;
    fn cuStreamWaitValue64_v2_ptsz = cuStreamWaitValue64_v2(stream: Stream, addr: DevicePtr, value: u64, flags: c_uint) on stream;
    fn cuStreamWriteValue32_v2_ptsz = cuStreamWriteValue32_v2(stream: Stream, addr: DevicePtr, value: u32, flags: c_uint) on stream;
    fn cuStreamWriteValue64_v2_ptsz = cuStreamWriteValue64_v2(stream: Stream, addr: DevicePtr, value: u64, flags: c_uint) on stream;
}

/// The stream is in the parameters, which have no meaning here.
pub(crate) unsafe fn cuGraphInstantiateWithParams_ptsz(
    ph_graph_exec: *mut GraphExec,
    h_graph: Graph,
    instantiate_params: *mut c_void,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { api::cuGraphInstantiateWithParams(ph_graph_exec, h_graph, instantiate_params) }
}

/// The stream is in the configuration.
pub(crate) unsafe fn cuLaunchKernelEx_ptsz(
    config: *const LaunchConfig,
    f: Function,
    kernel_params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CuResult {
    // SAFETY: the caller's promise.
    let mut config = unsafe { args::read(config) }?;
    config.stream = own(config.stream);
    // SAFETY: the caller's promise; the configuration is our copy.
    unsafe { api::cuLaunchKernelEx(&raw const config, f, kernel_params, extra) }
}
