//! The one list of driver calls: every function that `cuda.h` declares has exactly one class here.
//!
//! `for_each_call!` hands the whole list to a macro of the caller, one line per function that somebody
//! stands in front of; what needs no hook is in [`PASS`]. The list is held against the real header by a test,
//! so a function nobody has classed fails the build instead of slipping by.
//!
//! A line reads `class family fn name(arguments) on stream;`. The class says what a suspend does with the call (see
//! [`Class`](crate::Class)), the family says where the body of the hook lives, and `on` names the
//! stream whose capture lets a held call through (`config.stream`: a field behind a pointer). Every function returns
//! [`CuResult`](crate::CuResult). Names that end in `_ptsz` or `_ptds` are the forms for the per-thread default
//! stream; names without `_v2` where a `_v2` exists are the driver's oldest ABI, with 32-bit addresses.

/// Calls `$then!` with every call that has a hook: `class family fn name(arguments) on stream;`.
#[macro_export]
macro_rules! for_each_call {
    ($then:path) => {
        $then! {
            // launch
            launch gate fn cuGraphLaunch(h_graph: GraphExec, h_stream: Stream) on h_stream;
            launch gate fn cuGraphLaunch_ptsz(h_graph_exec: GraphExec, h_stream: Stream) on h_stream;
            launch gate fn cuLaunch(f: Function);
            launch gate fn cuLaunchCooperativeKernel(f: Function, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, h_stream: Stream, kernel_params: *mut *mut c_void) on h_stream;
            launch gate fn cuLaunchCooperativeKernelMultiDevice(launch_params_list: *mut c_void, num_devices: c_uint, flags: c_uint);
            launch gate fn cuLaunchCooperativeKernel_ptsz(f: Function, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, h_stream: Stream, kernel_params: *mut *mut c_void) on h_stream;
            launch gate fn cuLaunchGrid(f: Function, grid_width: c_int, grid_height: c_int);
            launch gate fn cuLaunchGridAsync(f: Function, grid_width: c_int, grid_height: c_int, h_stream: Stream) on h_stream;
            launch gate fn cuLaunchHostFunc(h_stream: Stream, func: HostFn, user_data: *mut c_void) on h_stream;
            launch gate fn cuLaunchHostFunc_ptsz(h_stream: Stream, func: HostFn, user_data: *mut c_void) on h_stream;
            launch gate fn cuLaunchKernel(f: Function, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, h_stream: Stream, kernel_params: *mut *mut c_void, extra: *mut *mut c_void) on h_stream;
            launch gate fn cuLaunchKernelEx(config: *const LaunchConfig, f: Function, kernel_params: *mut *mut c_void, extra: *mut *mut c_void) on config.stream;
            launch gate fn cuLaunchKernelEx_ptsz(config: *const LaunchConfig, f: Function, kernel_params: *mut *mut c_void, extra: *mut *mut c_void) on config.stream;
            launch gate fn cuLaunchKernel_ptsz(f: Function, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, h_stream: Stream, kernel_params: *mut *mut c_void, extra: *mut *mut c_void) on h_stream;
            launch gate fn cuStreamAddCallback(h_stream: Stream, callback: StreamCallback, user_data: *mut c_void, flags: c_uint) on h_stream;
            launch gate fn cuStreamAddCallback_ptsz(h_stream: Stream, callback: StreamCallback, user_data: *mut c_void, flags: c_uint) on h_stream;
            // memory
            memory gate fn cuCtxRecordEvent(h_ctx: Context, h_event: Event);
            memory gate fn cuCtxResetPersistingL2Cache();
            memory gate fn cuCtxWaitEvent(h_ctx: Context, h_event: Event);
            memory gate fn cuDeviceGraphMemTrim(device: Device);
            memory gate fn cuEventRecord(h_event: Event, h_stream: Stream) on h_stream;
            memory gate fn cuEventRecordWithFlags(h_event: Event, h_stream: Stream, flags: c_uint) on h_stream;
            memory gate fn cuEventRecordWithFlags_ptsz(h_event: Event, h_stream: Stream, flags: c_uint) on h_stream;
            memory gate fn cuEventRecord_ptsz(h_event: Event, h_stream: Stream) on h_stream;
            memory gate fn cuFlushGPUDirectRDMAWrites(target: c_uint, scope: c_uint);
            memory gate fn cuGraphUpload(h_graph: GraphExec, h_stream: Stream) on h_stream;
            memory gate fn cuGraphUpload_ptsz(h_graph_exec: GraphExec, h_stream: Stream) on h_stream;
            memory refuse fn cuGraphicsMapResources(count: c_uint, resources: *mut GraphicsResource, h_stream: Stream) on h_stream;
            memory refuse fn cuGraphicsMapResources_ptsz(count: c_uint, resources: *mut GraphicsResource, h_stream: Stream) on h_stream;
            memory refuse fn cuGraphicsUnmapResources(count: c_uint, resources: *mut GraphicsResource, h_stream: Stream) on h_stream;
            memory refuse fn cuGraphicsUnmapResources_ptsz(count: c_uint, resources: *mut GraphicsResource, h_stream: Stream) on h_stream;
            memory gate fn cuGreenCtxRecordEvent(h_ctx: GreenContext, h_event: Event);
            memory gate fn cuGreenCtxWaitEvent(h_ctx: GreenContext, h_event: Event);
            memory gate fn cuMemAdvise(dev_ptr: DevicePtr, count: usize, advice: c_uint, device: Device);
            memory gate fn cuMemAdvise_v2(dev_ptr: DevicePtr, count: usize, advice: c_uint, location: MemLocation);
            memory malloc fn cuMemAllocAsync(dptr: *mut DevicePtr, bytesize: usize, h_stream: Stream) on h_stream;
            memory malloc fn cuMemAllocAsync_ptsz(dptr: *mut DevicePtr, bytesize: usize, h_stream: Stream) on h_stream;
            memory malloc fn cuMemAllocFromPoolAsync(dptr: *mut DevicePtr, bytesize: usize, pool: MemPool, h_stream: Stream) on h_stream;
            memory malloc fn cuMemAllocFromPoolAsync_ptsz(dptr: *mut DevicePtr, bytesize: usize, pool: MemPool, h_stream: Stream) on h_stream;
            memory gate fn cuMemBatchDecompressAsync(params_array: *mut c_void, count: usize, flags: c_uint, error_index: *mut usize, stream: Stream) on stream;
            memory gate fn cuMemBatchDecompressAsync_ptsz(params_array: *mut c_void, count: usize, flags: c_uint, error_index: *mut usize, stream: Stream) on stream;
            memory gate fn cuMemDiscardAndPrefetchBatchAsync(dptrs: *mut DevicePtr, sizes: *mut usize, count: usize, prefetch_locs: *mut MemLocation, prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize, flags: u64, h_stream: Stream) on h_stream;
            memory gate fn cuMemDiscardAndPrefetchBatchAsync_ptsz(dptrs: *mut DevicePtr, sizes: *mut usize, count: usize, prefetch_locs: *mut MemLocation, prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize, flags: u64, h_stream: Stream) on h_stream;
            memory gate fn cuMemDiscardBatchAsync(dptrs: *mut DevicePtr, sizes: *mut usize, count: usize, flags: u64, h_stream: Stream) on h_stream;
            memory gate fn cuMemDiscardBatchAsync_ptsz(dptrs: *mut DevicePtr, sizes: *mut usize, count: usize, flags: u64, h_stream: Stream) on h_stream;
            memory malloc fn cuMemFreeAsync(dptr: DevicePtr, h_stream: Stream) on h_stream;
            memory malloc fn cuMemFreeAsync_ptsz(dptr: DevicePtr, h_stream: Stream) on h_stream;
            memory refuse fn cuMemMapArrayAsync(map_info_list: *mut c_void, count: c_uint, h_stream: Stream) on h_stream;
            memory refuse fn cuMemMapArrayAsync_ptsz(map_info_list: *mut c_void, count: c_uint, h_stream: Stream) on h_stream;
            memory gate fn cuMemPoolTrimTo(pool: MemPool, min_bytes_to_keep: usize);
            memory gate fn cuMemPrefetchAsync(dev_ptr: DevicePtr, count: usize, dst_device: Device, h_stream: Stream) on h_stream;
            memory gate fn cuMemPrefetchAsync_ptsz(dev_ptr: DevicePtr, count: usize, dst_device: Device, h_stream: Stream) on h_stream;
            memory gate fn cuMemPrefetchAsync_v2(dev_ptr: DevicePtr, count: usize, location: MemLocation, flags: c_uint, h_stream: Stream) on h_stream;
            memory gate fn cuMemPrefetchAsync_v2_ptsz(dev_ptr: DevicePtr, count: usize, location: MemLocation, flags: c_uint, h_stream: Stream) on h_stream;
            memory gate fn cuMemPrefetchBatchAsync(dptrs: *mut DevicePtr, sizes: *mut usize, count: usize, prefetch_locs: *mut MemLocation, prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize, flags: u64, h_stream: Stream) on h_stream;
            memory gate fn cuMemPrefetchBatchAsync_ptsz(dptrs: *mut DevicePtr, sizes: *mut usize, count: usize, prefetch_locs: *mut MemLocation, prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize, flags: u64, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpy(dst: DevicePtr, src: DevicePtr, byte_count: usize);
            memory gate fn cuMemcpy2D(p_copy: *const c_void);
            memory gate fn cuMemcpy2DAsync(p_copy: *const c_void, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpy2DAsync_v2(p_copy: *const c_void, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpy2DAsync_v2_ptsz(p_copy: *const c_void, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpy2DUnaligned(p_copy: *const c_void);
            memory gate fn cuMemcpy2DUnaligned_v2(p_copy: *const c_void);
            memory gate fn cuMemcpy2DUnaligned_v2_ptds(p_copy: *const c_void);
            memory gate fn cuMemcpy2D_v2(p_copy: *const c_void);
            memory gate fn cuMemcpy2D_v2_ptds(p_copy: *const c_void);
            memory gate fn cuMemcpy3D(p_copy: *const c_void);
            memory gate fn cuMemcpy3DAsync(p_copy: *const c_void, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpy3DAsync_v2(p_copy: *const c_void, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpy3DAsync_v2_ptsz(p_copy: *const c_void, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpy3DBatchAsync(num_ops: usize, op_list: *mut c_void, fail_idx: *mut usize, flags: u64, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpy3DBatchAsync_ptsz(num_ops: usize, op_list: *mut c_void, fail_idx: *mut usize, flags: u64, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpy3DBatchAsync_v2(num_ops: usize, op_list: *mut c_void, flags: u64, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpy3DBatchAsync_v2_ptsz(num_ops: usize, op_list: *mut c_void, flags: u64, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpy3DPeer(p_copy: *const c_void);
            memory gate fn cuMemcpy3DPeerAsync(p_copy: *const c_void, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpy3DPeerAsync_ptsz(p_copy: *const c_void, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpy3DPeer_ptds(p_copy: *const c_void);
            memory gate fn cuMemcpy3D_v2(p_copy: *const c_void);
            memory gate fn cuMemcpy3D_v2_ptds(p_copy: *const c_void);
            memory gate fn cuMemcpyAsync(dst: DevicePtr, src: DevicePtr, byte_count: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpyAsync_ptsz(dst: DevicePtr, src: DevicePtr, byte_count: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpyAtoA(dst_array: Array, dst_offset: c_uint, src_array: Array, src_offset: c_uint, byte_count: c_uint);
            memory gate fn cuMemcpyAtoA_v2(dst_array: Array, dst_offset: usize, src_array: Array, src_offset: usize, byte_count: usize);
            memory gate fn cuMemcpyAtoA_v2_ptds(dst_array: Array, dst_offset: usize, src_array: Array, src_offset: usize, byte_count: usize);
            memory gate fn cuMemcpyAtoD(dst_device: DevicePtrV1, src_array: Array, src_offset: c_uint, byte_count: c_uint);
            memory gate fn cuMemcpyAtoD_v2(dst_device: DevicePtr, src_array: Array, src_offset: usize, byte_count: usize);
            memory gate fn cuMemcpyAtoD_v2_ptds(dst_device: DevicePtr, src_array: Array, src_offset: usize, byte_count: usize);
            memory gate fn cuMemcpyAtoH(dst_host: *mut c_void, src_array: Array, src_offset: c_uint, byte_count: c_uint);
            memory gate fn cuMemcpyAtoHAsync(dst_host: *mut c_void, src_array: Array, src_offset: c_uint, byte_count: c_uint, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpyAtoHAsync_v2(dst_host: *mut c_void, src_array: Array, src_offset: usize, byte_count: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpyAtoHAsync_v2_ptsz(dst_host: *mut c_void, src_array: Array, src_offset: usize, byte_count: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpyAtoH_v2(dst_host: *mut c_void, src_array: Array, src_offset: usize, byte_count: usize);
            memory gate fn cuMemcpyAtoH_v2_ptds(dst_host: *mut c_void, src_array: Array, src_offset: usize, byte_count: usize);
            memory gate fn cuMemcpyBatchAsync(dsts: *mut DevicePtr, srcs: *mut DevicePtr, sizes: *mut usize, count: usize, attrs: *mut c_void, attrs_idxs: *mut usize, num_attrs: usize, fail_idx: *mut usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpyBatchAsync_ptsz(dsts: *mut DevicePtr, srcs: *mut DevicePtr, sizes: *mut usize, count: usize, attrs: *mut c_void, attrs_idxs: *mut usize, num_attrs: usize, fail_idx: *mut usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpyBatchAsync_v2(dsts: *mut DevicePtr, srcs: *mut DevicePtr, sizes: *mut usize, count: usize, attrs: *mut c_void, attrs_idxs: *mut usize, num_attrs: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpyBatchAsync_v2_ptsz(dsts: *mut DevicePtr, srcs: *mut DevicePtr, sizes: *mut usize, count: usize, attrs: *mut c_void, attrs_idxs: *mut usize, num_attrs: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpyDtoA(dst_array: Array, dst_offset: c_uint, src_device: DevicePtrV1, byte_count: c_uint);
            memory gate fn cuMemcpyDtoA_v2(dst_array: Array, dst_offset: usize, src_device: DevicePtr, byte_count: usize);
            memory gate fn cuMemcpyDtoA_v2_ptds(dst_array: Array, dst_offset: usize, src_device: DevicePtr, byte_count: usize);
            memory gate fn cuMemcpyDtoD(dst_device: DevicePtrV1, src_device: DevicePtrV1, byte_count: c_uint);
            memory gate fn cuMemcpyDtoDAsync(dst_device: DevicePtrV1, src_device: DevicePtrV1, byte_count: c_uint, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpyDtoDAsync_v2(dst_device: DevicePtr, src_device: DevicePtr, byte_count: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpyDtoDAsync_v2_ptsz(dst_device: DevicePtr, src_device: DevicePtr, byte_count: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpyDtoD_v2(dst_device: DevicePtr, src_device: DevicePtr, byte_count: usize);
            memory gate fn cuMemcpyDtoD_v2_ptds(dst_device: DevicePtr, src_device: DevicePtr, byte_count: usize);
            memory gate fn cuMemcpyDtoH(dst_host: *mut c_void, src_device: DevicePtrV1, byte_count: c_uint);
            memory gate fn cuMemcpyDtoHAsync(dst_host: *mut c_void, src_device: DevicePtrV1, byte_count: c_uint, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpyDtoHAsync_v2(dst_host: *mut c_void, src_device: DevicePtr, byte_count: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpyDtoHAsync_v2_ptsz(dst_host: *mut c_void, src_device: DevicePtr, byte_count: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpyDtoH_v2(dst_host: *mut c_void, src_device: DevicePtr, byte_count: usize);
            memory gate fn cuMemcpyDtoH_v2_ptds(dst_host: *mut c_void, src_device: DevicePtr, byte_count: usize);
            memory gate fn cuMemcpyHtoA(dst_array: Array, dst_offset: c_uint, src_host: *const c_void, byte_count: c_uint);
            memory gate fn cuMemcpyHtoAAsync(dst_array: Array, dst_offset: c_uint, src_host: *const c_void, byte_count: c_uint, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpyHtoAAsync_v2(dst_array: Array, dst_offset: usize, src_host: *const c_void, byte_count: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpyHtoAAsync_v2_ptsz(dst_array: Array, dst_offset: usize, src_host: *const c_void, byte_count: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpyHtoA_v2(dst_array: Array, dst_offset: usize, src_host: *const c_void, byte_count: usize);
            memory gate fn cuMemcpyHtoA_v2_ptds(dst_array: Array, dst_offset: usize, src_host: *const c_void, byte_count: usize);
            memory gate fn cuMemcpyHtoD(dst_device: DevicePtrV1, src_host: *const c_void, byte_count: c_uint);
            memory gate fn cuMemcpyHtoDAsync(dst_device: DevicePtrV1, src_host: *const c_void, byte_count: c_uint, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpyHtoDAsync_v2(dst_device: DevicePtr, src_host: *const c_void, byte_count: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpyHtoDAsync_v2_ptsz(dst_device: DevicePtr, src_host: *const c_void, byte_count: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpyHtoD_v2(dst_device: DevicePtr, src_host: *const c_void, byte_count: usize);
            memory gate fn cuMemcpyHtoD_v2_ptds(dst_device: DevicePtr, src_host: *const c_void, byte_count: usize);
            memory gate fn cuMemcpyPeer(dst_device: DevicePtr, dst_context: Context, src_device: DevicePtr, src_context: Context, byte_count: usize);
            memory gate fn cuMemcpyPeerAsync(dst_device: DevicePtr, dst_context: Context, src_device: DevicePtr, src_context: Context, byte_count: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpyPeerAsync_ptsz(dst_device: DevicePtr, dst_context: Context, src_device: DevicePtr, src_context: Context, byte_count: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemcpyPeer_ptds(dst_device: DevicePtr, dst_context: Context, src_device: DevicePtr, src_context: Context, byte_count: usize);
            memory gate fn cuMemcpy_ptds(dst: DevicePtr, src: DevicePtr, byte_count: usize);
            memory gate fn cuMemsetD16(dst_device: DevicePtrV1, us: u16, n: c_uint);
            memory gate fn cuMemsetD16Async(dst_device: DevicePtr, us: u16, n: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemsetD16Async_ptsz(dst_device: DevicePtr, us: u16, n: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemsetD16_v2(dst_device: DevicePtr, us: u16, n: usize);
            memory gate fn cuMemsetD16_v2_ptds(dst_device: DevicePtr, us: u16, n: usize);
            memory gate fn cuMemsetD2D16(dst_device: DevicePtrV1, dst_pitch: c_uint, us: u16, width: c_uint, height: c_uint);
            memory gate fn cuMemsetD2D16Async(dst_device: DevicePtr, dst_pitch: usize, us: u16, width: usize, height: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemsetD2D16Async_ptsz(dst_device: DevicePtr, dst_pitch: usize, us: u16, width: usize, height: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemsetD2D16_v2(dst_device: DevicePtr, dst_pitch: usize, us: u16, width: usize, height: usize);
            memory gate fn cuMemsetD2D16_v2_ptds(dst_device: DevicePtr, dst_pitch: usize, us: u16, width: usize, height: usize);
            memory gate fn cuMemsetD2D32(dst_device: DevicePtrV1, dst_pitch: c_uint, ui: c_uint, width: c_uint, height: c_uint);
            memory gate fn cuMemsetD2D32Async(dst_device: DevicePtr, dst_pitch: usize, ui: c_uint, width: usize, height: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemsetD2D32Async_ptsz(dst_device: DevicePtr, dst_pitch: usize, ui: c_uint, width: usize, height: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemsetD2D32_v2(dst_device: DevicePtr, dst_pitch: usize, ui: c_uint, width: usize, height: usize);
            memory gate fn cuMemsetD2D32_v2_ptds(dst_device: DevicePtr, dst_pitch: usize, ui: c_uint, width: usize, height: usize);
            memory gate fn cuMemsetD2D8(dst_device: DevicePtrV1, dst_pitch: c_uint, uc: u8, width: c_uint, height: c_uint);
            memory gate fn cuMemsetD2D8Async(dst_device: DevicePtr, dst_pitch: usize, uc: u8, width: usize, height: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemsetD2D8Async_ptsz(dst_device: DevicePtr, dst_pitch: usize, uc: u8, width: usize, height: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemsetD2D8_v2(dst_device: DevicePtr, dst_pitch: usize, uc: u8, width: usize, height: usize);
            memory gate fn cuMemsetD2D8_v2_ptds(dst_device: DevicePtr, dst_pitch: usize, uc: u8, width: usize, height: usize);
            memory gate fn cuMemsetD32(dst_device: DevicePtrV1, ui: c_uint, n: c_uint);
            memory gate fn cuMemsetD32Async(dst_device: DevicePtr, ui: c_uint, n: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemsetD32Async_ptsz(dst_device: DevicePtr, ui: c_uint, n: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemsetD32_v2(dst_device: DevicePtr, ui: c_uint, n: usize);
            memory gate fn cuMemsetD32_v2_ptds(dst_device: DevicePtr, ui: c_uint, n: usize);
            memory gate fn cuMemsetD8(dst_device: DevicePtrV1, uc: u8, n: c_uint);
            memory gate fn cuMemsetD8Async(dst_device: DevicePtr, uc: u8, n: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemsetD8Async_ptsz(dst_device: DevicePtr, uc: u8, n: usize, h_stream: Stream) on h_stream;
            memory gate fn cuMemsetD8_v2(dst_device: DevicePtr, uc: u8, n: usize);
            memory gate fn cuMemsetD8_v2_ptds(dst_device: DevicePtr, uc: u8, n: usize);
            memory gate fn cuSignalExternalSemaphoresAsync(ext_sem_array: *const ExternalSemaphore, params_array: *const c_void, num_ext_sems: c_uint, stream: Stream) on stream;
            memory gate fn cuSignalExternalSemaphoresAsync_ptsz(ext_sem_array: *const ExternalSemaphore, params_array: *const c_void, num_ext_sems: c_uint, stream: Stream) on stream;
            memory gate fn cuStreamAttachMemAsync(h_stream: Stream, dptr: DevicePtr, length: usize, flags: c_uint) on h_stream;
            memory gate fn cuStreamAttachMemAsync_ptsz(h_stream: Stream, dptr: DevicePtr, length: usize, flags: c_uint) on h_stream;
            memory gate fn cuStreamBatchMemOp(stream: Stream, count: c_uint, param_array: *mut c_void, flags: c_uint) on stream;
            memory gate fn cuStreamBatchMemOp_ptsz(stream: Stream, count: c_uint, param_array: *mut c_void, flags: c_uint) on stream;
            memory gate fn cuStreamBatchMemOp_v2(stream: Stream, count: c_uint, param_array: *mut c_void, flags: c_uint) on stream;
            memory gate fn cuStreamBatchMemOp_v2_ptsz(stream: Stream, count: c_uint, param_array: *mut c_void, flags: c_uint) on stream;
            memory gate fn cuStreamWaitEvent(h_stream: Stream, h_event: Event, flags: c_uint) on h_stream;
            memory gate fn cuStreamWaitEvent_ptsz(h_stream: Stream, h_event: Event, flags: c_uint) on h_stream;
            memory gate fn cuStreamWaitValue32(stream: Stream, addr: DevicePtr, value: u32, flags: c_uint) on stream;
            memory gate fn cuStreamWaitValue32_ptsz(stream: Stream, addr: DevicePtr, value: u32, flags: c_uint) on stream;
            memory gate fn cuStreamWaitValue32_v2(stream: Stream, addr: DevicePtr, value: u32, flags: c_uint) on stream;
            memory gate fn cuStreamWaitValue32_v2_ptsz(stream: Stream, addr: DevicePtr, value: u32, flags: c_uint) on stream;
            memory gate fn cuStreamWaitValue64(stream: Stream, addr: DevicePtr, value: u64, flags: c_uint) on stream;
            memory gate fn cuStreamWaitValue64_ptsz(stream: Stream, addr: DevicePtr, value: u64, flags: c_uint) on stream;
            memory gate fn cuStreamWaitValue64_v2(stream: Stream, addr: DevicePtr, value: u64, flags: c_uint) on stream;
            memory gate fn cuStreamWaitValue64_v2_ptsz(stream: Stream, addr: DevicePtr, value: u64, flags: c_uint) on stream;
            memory gate fn cuStreamWriteValue32(stream: Stream, addr: DevicePtr, value: u32, flags: c_uint) on stream;
            memory gate fn cuStreamWriteValue32_ptsz(stream: Stream, addr: DevicePtr, value: u32, flags: c_uint) on stream;
            memory gate fn cuStreamWriteValue32_v2(stream: Stream, addr: DevicePtr, value: u32, flags: c_uint) on stream;
            memory gate fn cuStreamWriteValue32_v2_ptsz(stream: Stream, addr: DevicePtr, value: u32, flags: c_uint) on stream;
            memory gate fn cuStreamWriteValue64(stream: Stream, addr: DevicePtr, value: u64, flags: c_uint) on stream;
            memory gate fn cuStreamWriteValue64_ptsz(stream: Stream, addr: DevicePtr, value: u64, flags: c_uint) on stream;
            memory gate fn cuStreamWriteValue64_v2(stream: Stream, addr: DevicePtr, value: u64, flags: c_uint) on stream;
            memory gate fn cuStreamWriteValue64_v2_ptsz(stream: Stream, addr: DevicePtr, value: u64, flags: c_uint) on stream;
            memory gate fn cuWaitExternalSemaphoresAsync(ext_sem_array: *const ExternalSemaphore, params_array: *const c_void, num_ext_sems: c_uint, stream: Stream) on stream;
            memory gate fn cuWaitExternalSemaphoresAsync_ptsz(ext_sem_array: *const ExternalSemaphore, params_array: *const c_void, num_ext_sems: c_uint, stream: Stream) on stream;
            // object
            object gate fn cuArray3DCreate(p_handle: *mut Array, p_allocate_array: *const c_void);
            object gate fn cuArray3DCreate_v2(p_handle: *mut Array, p_allocate_array: *const c_void);
            object gate fn cuArrayCreate(p_handle: *mut Array, p_allocate_array: *const c_void);
            object gate fn cuArrayCreate_v2(p_handle: *mut Array, p_allocate_array: *const c_void);
            object refuse fn cuArrayDestroy(h_array: Array);
            object context fn cuCtxAttach(pctx: *mut Context, flags: c_uint);
            object context fn cuCtxCreate(pctx: *mut Context, flags: c_uint, dev: Device);
            object context fn cuCtxCreate_v2(pctx: *mut Context, flags: c_uint, dev: Device);
            object context fn cuCtxCreate_v3(pctx: *mut Context, params_array: *mut c_void, num_params: c_int, flags: c_uint, dev: Device);
            object context fn cuCtxCreate_v4(pctx: *mut Context, ctx_create_params: *mut c_void, flags: c_uint, dev: Device);
            object context fn cuCtxDestroy(ctx: Context);
            object context fn cuCtxDestroy_v2(ctx: Context);
            object context fn cuCtxDetach(ctx: Context);
            object gate fn cuCtxDisablePeerAccess(peer_context: Context);
            object gate fn cuCtxEnablePeerAccess(peer_context: Context, flags: c_uint);
            object context fn cuCtxFromGreenCtx(p_context: *mut Context, h_ctx: GreenContext);
            object gate fn cuCtxSetFlags(flags: c_uint);
            object gate fn cuCtxSetLimit(limit: c_uint, value: usize);
            object refuse fn cuDestroyExternalMemory(ext_mem: ExternalMemory);
            object refuse fn cuDestroyExternalSemaphore(ext_sem: ExternalSemaphore);
            object context fn cuDevicePrimaryCtxRelease(dev: Device);
            object context fn cuDevicePrimaryCtxRelease_v2(dev: Device);
            object context fn cuDevicePrimaryCtxReset(dev: Device);
            object context fn cuDevicePrimaryCtxReset_v2(dev: Device);
            object context fn cuDevicePrimaryCtxRetain(pctx: *mut Context, dev: Device);
            object gate fn cuDevicePrimaryCtxSetFlags(dev: Device, flags: c_uint);
            object gate fn cuDevicePrimaryCtxSetFlags_v2(dev: Device, flags: c_uint);
            object gate fn cuDeviceSetGraphMemAttribute(device: Device, attr: c_uint, value: *mut c_void);
            object gate fn cuDeviceSetMemPool(dev: Device, pool: MemPool);
            object completion fn cuEventCreate(ph_event: *mut Event, flags: c_uint);
            object completion fn cuEventDestroy(h_event: Event);
            object completion fn cuEventDestroy_v2(h_event: Event);
            object gate fn cuExternalMemoryGetMappedBuffer(dev_ptr: *mut DevicePtr, ext_mem: ExternalMemory, buffer_desc: *const c_void);
            object gate fn cuExternalMemoryGetMappedMipmappedArray(mipmap: *mut MipmappedArray, ext_mem: ExternalMemory, mipmap_desc: *const c_void);
            object gate fn cuFuncLoad(function: Function);
            object gate fn cuGraphAddBatchMemOpNode(ph_graph_node: *mut GraphNode, h_graph: Graph, dependencies: *const GraphNode, num_dependencies: usize, node_params: *const c_void);
            object gate fn cuGraphAddChildGraphNode(ph_graph_node: *mut GraphNode, h_graph: Graph, dependencies: *const GraphNode, num_dependencies: usize, child_graph: Graph);
            object gate fn cuGraphAddDependencies(h_graph: Graph, from: *const GraphNode, to: *const GraphNode, num_dependencies: usize);
            object gate fn cuGraphAddDependencies_v2(h_graph: Graph, from: *const GraphNode, to: *const GraphNode, edge_data: *const c_void, num_dependencies: usize);
            object gate fn cuGraphAddEmptyNode(ph_graph_node: *mut GraphNode, h_graph: Graph, dependencies: *const GraphNode, num_dependencies: usize);
            object gate fn cuGraphAddEventRecordNode(ph_graph_node: *mut GraphNode, h_graph: Graph, dependencies: *const GraphNode, num_dependencies: usize, event: Event);
            object gate fn cuGraphAddEventWaitNode(ph_graph_node: *mut GraphNode, h_graph: Graph, dependencies: *const GraphNode, num_dependencies: usize, event: Event);
            object gate fn cuGraphAddExternalSemaphoresSignalNode(ph_graph_node: *mut GraphNode, h_graph: Graph, dependencies: *const GraphNode, num_dependencies: usize, node_params: *const c_void);
            object gate fn cuGraphAddExternalSemaphoresWaitNode(ph_graph_node: *mut GraphNode, h_graph: Graph, dependencies: *const GraphNode, num_dependencies: usize, node_params: *const c_void);
            object gate fn cuGraphAddHostNode(ph_graph_node: *mut GraphNode, h_graph: Graph, dependencies: *const GraphNode, num_dependencies: usize, node_params: *const c_void);
            object gate fn cuGraphAddKernelNode(ph_graph_node: *mut GraphNode, h_graph: Graph, dependencies: *const GraphNode, num_dependencies: usize, node_params: *const c_void);
            object gate fn cuGraphAddKernelNode_v2(ph_graph_node: *mut GraphNode, h_graph: Graph, dependencies: *const GraphNode, num_dependencies: usize, node_params: *const c_void);
            object gate fn cuGraphAddMemAllocNode(ph_graph_node: *mut GraphNode, h_graph: Graph, dependencies: *const GraphNode, num_dependencies: usize, node_params: *mut c_void);
            object gate fn cuGraphAddMemFreeNode(ph_graph_node: *mut GraphNode, h_graph: Graph, dependencies: *const GraphNode, num_dependencies: usize, dptr: DevicePtr);
            object gate fn cuGraphAddMemcpyNode(ph_graph_node: *mut GraphNode, h_graph: Graph, dependencies: *const GraphNode, num_dependencies: usize, copy_params: *const c_void, ctx: Context);
            object gate fn cuGraphAddMemsetNode(ph_graph_node: *mut GraphNode, h_graph: Graph, dependencies: *const GraphNode, num_dependencies: usize, memset_params: *const c_void, ctx: Context);
            object gate fn cuGraphAddNode(ph_graph_node: *mut GraphNode, h_graph: Graph, dependencies: *const GraphNode, num_dependencies: usize, node_params: *mut c_void);
            object gate fn cuGraphAddNode_v2(ph_graph_node: *mut GraphNode, h_graph: Graph, dependencies: *const GraphNode, dependency_data: *const c_void, num_dependencies: usize, node_params: *mut c_void);
            object gate fn cuGraphBatchMemOpNodeSetParams(h_node: GraphNode, node_params: *const c_void);
            object gate fn cuGraphClone(ph_graph_clone: *mut Graph, original_graph: Graph);
            object gate fn cuGraphConditionalHandleCreate(p_handle_out: *mut u64, h_graph: Graph, ctx: Context, default_launch_value: c_uint, flags: c_uint);
            object gate fn cuGraphCreate(ph_graph: *mut Graph, flags: c_uint);
            object gate fn cuGraphDestroy(h_graph: Graph);
            object gate fn cuGraphDestroyNode(h_node: GraphNode);
            object gate fn cuGraphEventRecordNodeSetEvent(h_node: GraphNode, event: Event);
            object gate fn cuGraphEventWaitNodeSetEvent(h_node: GraphNode, event: Event);
            object gate fn cuGraphExecBatchMemOpNodeSetParams(h_graph_exec: GraphExec, h_node: GraphNode, node_params: *const c_void);
            object gate fn cuGraphExecChildGraphNodeSetParams(h_graph_exec: GraphExec, h_node: GraphNode, child_graph: Graph);
            object gate fn cuGraphExecDestroy(h_graph_exec: GraphExec);
            object gate fn cuGraphExecEventRecordNodeSetEvent(h_graph_exec: GraphExec, h_node: GraphNode, event: Event);
            object gate fn cuGraphExecEventWaitNodeSetEvent(h_graph_exec: GraphExec, h_node: GraphNode, event: Event);
            object gate fn cuGraphExecExternalSemaphoresSignalNodeSetParams(h_graph_exec: GraphExec, h_node: GraphNode, node_params: *const c_void);
            object gate fn cuGraphExecExternalSemaphoresWaitNodeSetParams(h_graph_exec: GraphExec, h_node: GraphNode, node_params: *const c_void);
            object gate fn cuGraphExecHostNodeSetParams(h_graph_exec: GraphExec, h_node: GraphNode, node_params: *const c_void);
            object gate fn cuGraphExecKernelNodeSetParams(h_graph_exec: GraphExec, h_node: GraphNode, node_params: *const c_void);
            object gate fn cuGraphExecKernelNodeSetParams_v2(h_graph_exec: GraphExec, h_node: GraphNode, node_params: *const c_void);
            object gate fn cuGraphExecMemcpyNodeSetParams(h_graph_exec: GraphExec, h_node: GraphNode, copy_params: *const c_void, ctx: Context);
            object gate fn cuGraphExecMemsetNodeSetParams(h_graph_exec: GraphExec, h_node: GraphNode, memset_params: *const c_void, ctx: Context);
            object gate fn cuGraphExecNodeSetParams(h_graph_exec: GraphExec, h_node: GraphNode, node_params: *mut c_void);
            object gate fn cuGraphExecUpdate(h_graph_exec: GraphExec, h_graph: Graph, h_error_node_out: *mut GraphNode, update_result_out: *mut c_uint);
            object gate fn cuGraphExecUpdate_v2(h_graph_exec: GraphExec, h_graph: Graph, result_info: *mut c_void);
            object gate fn cuGraphExternalSemaphoresSignalNodeSetParams(h_node: GraphNode, node_params: *const c_void);
            object gate fn cuGraphExternalSemaphoresWaitNodeSetParams(h_node: GraphNode, node_params: *const c_void);
            object gate fn cuGraphHostNodeSetParams(h_node: GraphNode, node_params: *const c_void);
            object gate fn cuGraphInstantiate(ph_graph_exec: *mut GraphExec, h_graph: Graph, ph_error_node: *mut GraphNode, log_buffer: *mut c_char, buffer_size: usize);
            object gate fn cuGraphInstantiateWithFlags(ph_graph_exec: *mut GraphExec, h_graph: Graph, flags: u64);
            object gate fn cuGraphInstantiateWithParams(ph_graph_exec: *mut GraphExec, h_graph: Graph, instantiate_params: *mut c_void);
            object gate fn cuGraphInstantiateWithParams_ptsz(ph_graph_exec: *mut GraphExec, h_graph: Graph, instantiate_params: *mut c_void);
            object gate fn cuGraphInstantiate_v2(ph_graph_exec: *mut GraphExec, h_graph: Graph, ph_error_node: *mut GraphNode, log_buffer: *mut c_char, buffer_size: usize);
            object gate fn cuGraphKernelNodeCopyAttributes(dst: GraphNode, src: GraphNode);
            object gate fn cuGraphKernelNodeSetAttribute(h_node: GraphNode, attr: c_uint, value: *const c_void);
            object gate fn cuGraphKernelNodeSetParams(h_node: GraphNode, node_params: *const c_void);
            object gate fn cuGraphKernelNodeSetParams_v2(h_node: GraphNode, node_params: *const c_void);
            object gate fn cuGraphMemcpyNodeSetParams(h_node: GraphNode, node_params: *const c_void);
            object gate fn cuGraphMemsetNodeSetParams(h_node: GraphNode, node_params: *const c_void);
            object gate fn cuGraphNodeSetEnabled(h_graph_exec: GraphExec, h_node: GraphNode, is_enabled: c_uint);
            object gate fn cuGraphNodeSetParams(h_node: GraphNode, node_params: *mut c_void);
            object gate fn cuGraphReleaseUserObject(graph: Graph, object: UserObject, count: c_uint);
            object gate fn cuGraphRemoveDependencies(h_graph: Graph, from: *const GraphNode, to: *const GraphNode, num_dependencies: usize);
            object gate fn cuGraphRemoveDependencies_v2(h_graph: Graph, from: *const GraphNode, to: *const GraphNode, edge_data: *const c_void, num_dependencies: usize);
            object gate fn cuGraphRetainUserObject(graph: Graph, object: UserObject, count: c_uint, flags: c_uint);
            object gate fn cuGraphicsUnregisterResource(resource: GraphicsResource);
            object context fn cuGreenCtxCreate(ph_ctx: *mut GreenContext, desc: DevResourceDesc, dev: Device, flags: c_uint);
            object context fn cuGreenCtxDestroy(h_ctx: GreenContext);
            object completion fn cuGreenCtxStreamCreate(ph_stream: *mut Stream, green_ctx: GreenContext, flags: c_uint, priority: c_int);
            object refuse fn cuImportExternalMemory(ext_mem_out: *mut ExternalMemory, mem_handle_desc: *const c_void);
            object refuse fn cuImportExternalSemaphore(ext_sem_out: *mut ExternalSemaphore, sem_handle_desc: *const c_void);
            object entry fn cuInit(flags: c_uint);
            object ipc fn cuIpcCloseMemHandle(dptr: DevicePtr);
            object gate fn cuIpcGetEventHandle(p_handle: *mut IpcEventHandle, event: Event);
            object ipc fn cuIpcGetMemHandle(p_handle: *mut IpcMemHandle, dptr: DevicePtr);
            object completion fn cuIpcOpenEventHandle(ph_event: *mut Event, handle: IpcEventHandle);
            object ipc fn cuIpcOpenMemHandle(pdptr: *mut DevicePtr, handle: IpcMemHandle, flags: c_uint);
            object ipc fn cuIpcOpenMemHandle_v2(pdptr: *mut DevicePtr, handle: IpcMemHandle, flags: c_uint);
            object gate fn cuKernelGetFunction(p_func: *mut Function, kernel: Kernel);
            object gate fn cuLibraryGetKernel(p_kernel: *mut Kernel, library: Library, name: *const c_char);
            object gate fn cuLibraryGetModule(p_mod: *mut Module, library: Library);
            object gate fn cuLibraryLoadData(library: *mut Library, code: *const c_void, jit_options: *mut c_void, jit_options_values: *mut *mut c_void, num_jit_options: c_uint, library_options: *mut c_void, library_option_values: *mut *mut c_void, num_library_options: c_uint);
            object gate fn cuLibraryLoadFromFile(library: *mut Library, file_name: *const c_char, jit_options: *mut c_void, jit_options_values: *mut *mut c_void, num_jit_options: c_uint, library_options: *mut c_void, library_option_values: *mut *mut c_void, num_library_options: c_uint);
            object gate fn cuLibraryUnload(library: Library);
            object gate fn cuLinkAddData(state: LinkState, kind: c_uint, data: *mut c_void, size: usize, name: *const c_char, num_options: c_uint, options: *mut c_void, option_values: *mut *mut c_void);
            object gate fn cuLinkAddData_v2(state: LinkState, kind: c_uint, data: *mut c_void, size: usize, name: *const c_char, num_options: c_uint, options: *mut c_void, option_values: *mut *mut c_void);
            object gate fn cuLinkAddFile(state: LinkState, kind: c_uint, path: *const c_char, num_options: c_uint, options: *mut c_void, option_values: *mut *mut c_void);
            object gate fn cuLinkAddFile_v2(state: LinkState, kind: c_uint, path: *const c_char, num_options: c_uint, options: *mut c_void, option_values: *mut *mut c_void);
            object gate fn cuLinkComplete(state: LinkState, cubin_out: *mut *mut c_void, size_out: *mut usize);
            object gate fn cuLinkCreate(num_options: c_uint, options: *mut c_void, option_values: *mut *mut c_void, state_out: *mut LinkState);
            object gate fn cuLinkCreate_v2(num_options: c_uint, options: *mut c_void, option_values: *mut *mut c_void, state_out: *mut LinkState);
            object gate fn cuLinkDestroy(state: LinkState);
            object vmm fn cuMemAddressFree(ptr: DevicePtr, size: usize);
            object vmm fn cuMemAddressReserve(ptr: *mut DevicePtr, size: usize, alignment: usize, addr: DevicePtr, flags: u64);
            object gate fn cuMemAlloc(dptr: *mut DevicePtrV1, bytesize: c_uint);
            object gate fn cuMemAllocHost(pp: *mut *mut c_void, bytesize: c_uint);
            object malloc fn cuMemAllocHost_v2(pp: *mut *mut c_void, bytesize: usize);
            object refuse fn cuMemAllocManaged(dptr: *mut DevicePtr, bytesize: usize, flags: c_uint);
            object gate fn cuMemAllocPitch(dptr: *mut DevicePtrV1, p_pitch: *mut c_uint, width_in_bytes: c_uint, height: c_uint, element_size_bytes: c_uint);
            object malloc fn cuMemAllocPitch_v2(dptr: *mut DevicePtr, p_pitch: *mut usize, width_in_bytes: usize, height: usize, element_size_bytes: c_uint);
            object malloc fn cuMemAlloc_v2(dptr: *mut DevicePtr, bytesize: usize);
            object vmm fn cuMemCreate(handle: *mut MemHandle, size: usize, prop: *const AllocationProp, flags: u64);
            object vmm fn cuMemExportToShareableHandle(shareable_handle: *mut c_void, handle: MemHandle, handle_type: HandleType, flags: u64);
            object refuse fn cuMemFree(dptr: DevicePtrV1);
            object malloc fn cuMemFreeHost(p: *mut c_void);
            object malloc fn cuMemFree_v2(dptr: DevicePtr);
            object refuse fn cuMemGetHandleForAddressRange(handle: *mut c_void, dptr: DevicePtr, size: usize, handle_type: c_uint, flags: u64);
            object malloc fn cuMemHostAlloc(pp: *mut *mut c_void, bytesize: usize, flags: c_uint);
            object gate fn cuMemHostRegister(p: *mut c_void, bytesize: usize, flags: c_uint);
            object gate fn cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, flags: c_uint);
            object gate fn cuMemHostUnregister(p: *mut c_void);
            object vmm fn cuMemImportFromShareableHandle(handle: *mut MemHandle, os_handle: *mut c_void, sh_handle_type: HandleType);
            object vmm fn cuMemMap(ptr: DevicePtr, size: usize, offset: usize, handle: MemHandle, flags: u64);
            object refuse fn cuMemPoolCreate(pool: *mut MemPool, pool_props: *const c_void);
            object refuse fn cuMemPoolDestroy(pool: MemPool);
            object refuse fn cuMemPoolExportPointer(share_data_out: *mut c_void, ptr: DevicePtr);
            object refuse fn cuMemPoolExportToShareableHandle(handle_out: *mut c_void, pool: MemPool, handle_type: HandleType, flags: u64);
            object refuse fn cuMemPoolImportFromShareableHandle(pool_out: *mut MemPool, handle: *mut c_void, handle_type: HandleType, flags: u64);
            object refuse fn cuMemPoolImportPointer(ptr_out: *mut DevicePtr, pool: MemPool, share_data: *mut c_void);
            object gate fn cuMemPoolSetAccess(pool: MemPool, map: *const AccessDesc, count: usize);
            object gate fn cuMemPoolSetAttribute(pool: MemPool, attr: c_uint, value: *mut c_void);
            object vmm fn cuMemRelease(handle: MemHandle);
            object vmm fn cuMemRetainAllocationHandle(handle: *mut MemHandle, addr: *mut c_void);
            object vmm fn cuMemSetAccess(ptr: DevicePtr, size: usize, desc: *const AccessDesc, count: usize);
            object gate fn cuMemSetMemPool(location: *mut MemLocation, kind: c_uint, pool: MemPool);
            object vmm fn cuMemUnmap(ptr: DevicePtr, size: usize);
            object gate fn cuMipmappedArrayCreate(p_handle: *mut MipmappedArray, p_mipmapped_array_desc: *const c_void, num_mipmap_levels: c_uint);
            object refuse fn cuMipmappedArrayDestroy(h_mipmapped_array: MipmappedArray);
            object gate fn cuModuleGetFunction(hfunc: *mut Function, hmod: Module, name: *const c_char);
            object gate fn cuModuleLoad(module: *mut Module, fname: *const c_char);
            object gate fn cuModuleLoadData(module: *mut Module, image: *const c_void);
            object gate fn cuModuleLoadDataEx(module: *mut Module, image: *const c_void, num_options: c_uint, options: *mut c_void, option_values: *mut *mut c_void);
            object gate fn cuModuleLoadFatBinary(module: *mut Module, fat_cubin: *const c_void);
            object gate fn cuModuleUnload(hmod: Module);
            object multicast fn cuMulticastAddDevice(mc_handle: MemHandle, dev: Device);
            object multicast fn cuMulticastBindAddr(mc_handle: MemHandle, mc_offset: usize, memptr: DevicePtr, size: usize, flags: u64);
            object multicast fn cuMulticastBindAddr_v2(mc_handle: MemHandle, dev: Device, mc_offset: usize, memptr: DevicePtr, size: usize, flags: u64);
            object multicast fn cuMulticastBindMem(mc_handle: MemHandle, mc_offset: usize, mem_handle: MemHandle, mem_offset: usize, size: usize, flags: u64);
            object multicast fn cuMulticastBindMem_v2(mc_handle: MemHandle, dev: Device, mc_offset: usize, mem_handle: MemHandle, mem_offset: usize, size: usize, flags: u64);
            object multicast fn cuMulticastCreate(mc_handle: *mut MemHandle, prop: *const MulticastObjectProp);
            object multicast fn cuMulticastUnbind(mc_handle: MemHandle, dev: Device, mc_offset: usize, size: usize);
            object malloc fn cuPointerSetAttribute(value: *const c_void, attribute: c_uint, ptr: DevicePtr);
            object capture fn cuStreamBeginCapture(h_stream: Stream);
            object capture fn cuStreamBeginCaptureToGraph(h_stream: Stream, h_graph: Graph, dependencies: *const GraphNode, dependency_data: *const c_void, num_dependencies: usize, mode: c_uint);
            object capture fn cuStreamBeginCaptureToGraph_ptsz(h_stream: Stream, h_graph: Graph, dependencies: *const GraphNode, dependency_data: *const c_void, num_dependencies: usize, mode: c_uint);
            object capture fn cuStreamBeginCapture_ptsz(h_stream: Stream);
            object capture fn cuStreamBeginCapture_v2(h_stream: Stream, mode: c_uint);
            object capture fn cuStreamBeginCapture_v2_ptsz(h_stream: Stream, mode: c_uint);
            object gate fn cuStreamCopyAttributes(dst_stream: Stream, src_stream: Stream);
            object gate fn cuStreamCopyAttributes_ptsz(dst: Stream, src: Stream);
            object completion fn cuStreamCreate(ph_stream: *mut Stream, flags: c_uint);
            object completion fn cuStreamCreateWithPriority(ph_stream: *mut Stream, flags: c_uint, priority: c_int);
            object capture fn cuStreamDestroy(h_stream: Stream);
            object capture fn cuStreamDestroy_v2(h_stream: Stream);
            object gate fn cuStreamSetAttribute(h_stream: Stream, attr: c_uint, param: *const c_void);
            object gate fn cuStreamSetAttribute_ptsz(h_stream: Stream, attr: c_uint, value: *const c_void);
            object gate fn cuSurfObjectCreate(p_surf_object: *mut u64, p_res_desc: *const c_void);
            object gate fn cuSurfObjectDestroy(surf_object: u64);
            object gate fn cuTexObjectCreate(p_tex_object: *mut u64, p_res_desc: *const c_void, p_tex_desc: *const c_void, p_res_view_desc: *const c_void);
            object gate fn cuTexObjectDestroy(tex_object: u64);
            object gate fn cuUserObjectCreate(object_out: *mut UserObject, ptr: *mut c_void, destroy: HostFn, initial_refcount: c_uint, flags: c_uint);
            object gate fn cuUserObjectRelease(object: UserObject, count: c_uint);
            object gate fn cuUserObjectRetain(object: UserObject, count: c_uint);
            object gate fn cuFuncGetAttribute(pi: *mut c_int, attrib: c_uint, hfunc: Function);
            object gate fn cuFuncGetModule(hmod: *mut Module, hfunc: Function);
            object gate fn cuFuncSetAttribute(hfunc: Function, attrib: c_uint, value: c_int);
            object gate fn cuFuncSetCacheConfig(hfunc: Function, config: c_uint);
            object gate fn cuKernelGetAttribute(pi: *mut c_int, attrib: c_uint, kernel: Kernel, dev: Device);
            object gate fn cuKernelSetAttribute(attrib: c_uint, val: c_int, kernel: Kernel, dev: Device);
            object gate fn cuKernelSetCacheConfig(kernel: Kernel, config: c_uint, dev: Device);
            object gate fn cuOccupancyAvailableDynamicSMemPerBlock(dynamic_smem_size: *mut usize, func: Function, num_blocks: c_int, block_size: c_int);
            object gate fn cuOccupancyMaxActiveBlocksPerMultiprocessor(num_blocks: *mut c_int, func: Function, block_size: c_int, dynamic_smem_size: usize);
            object gate fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(num_blocks: *mut c_int, func: Function, block_size: c_int, dynamic_smem_size: usize, flags: c_uint);
            object gate fn cuOccupancyMaxActiveClusters(num_clusters: *mut c_int, func: Function, config: *const LaunchConfig);
            object gate fn cuOccupancyMaxPotentialBlockSize(min_grid_size: *mut c_int, block_size: *mut c_int, func: Function, block_size_to_dynamic_smem_size: BlockSizeToDynamicMemory, dynamic_smem_size: usize, block_size_limit: c_int);
            object gate fn cuOccupancyMaxPotentialBlockSizeWithFlags(min_grid_size: *mut c_int, block_size: *mut c_int, func: Function, block_size_to_dynamic_smem_size: BlockSizeToDynamicMemory, dynamic_smem_size: usize, block_size_limit: c_int, flags: c_uint);
            object gate fn cuOccupancyMaxPotentialClusterSize(cluster_size: *mut c_int, func: Function, config: *const LaunchConfig);
            // completion
            completion completion fn cuCtxSynchronize();
            completion completion fn cuCtxSynchronize_v2(ctx: Context);
            completion completion fn cuEventQuery(h_event: Event);
            completion completion fn cuEventSynchronize(h_event: Event);
            completion completion fn cuStreamQuery(h_stream: Stream);
            completion completion fn cuStreamQuery_ptsz(h_stream: Stream);
            completion completion fn cuStreamSynchronize(h_stream: Stream);
            completion completion fn cuStreamSynchronize_ptsz(h_stream: Stream);
            // information
            information gate fn cuArray3DGetDescriptor(p_array_descriptor: *mut c_void, h_array: Array);
            information gate fn cuArray3DGetDescriptor_v2(p_array_descriptor: *mut c_void, h_array: Array);
            information gate fn cuArrayGetDescriptor(p_array_descriptor: *mut c_void, h_array: Array);
            information gate fn cuArrayGetDescriptor_v2(p_array_descriptor: *mut c_void, h_array: Array);
            information gate fn cuArrayGetMemoryRequirements(memory_requirements: *mut c_void, array: Array, device: Device);
            information gate fn cuArrayGetPlane(p_plane_array: *mut Array, h_array: Array, plane_idx: c_uint);
            information gate fn cuArrayGetSparseProperties(sparse_properties: *mut c_void, array: Array);
            information gate fn cuDeviceGetDefaultMemPool(pool_out: *mut MemPool, dev: Device);
            information gate fn cuDeviceGetGraphMemAttribute(device: Device, attr: c_uint, value: *mut c_void);
            information gate fn cuDeviceGetName(name: *mut c_char, len: c_int, dev: Device);
            information gate fn cuDeviceGetMemPool(pool: *mut MemPool, dev: Device);
            information completion fn cuEventElapsedTime(p_milliseconds: *mut f32, h_start: Event, h_end: Event);
            information completion fn cuEventElapsedTime_v2(p_milliseconds: *mut f32, h_start: Event, h_end: Event);
            information gate fn cuGraphicsResourceGetMappedMipmappedArray(p_mipmapped_array: *mut MipmappedArray, resource: GraphicsResource);
            information gate fn cuGraphicsResourceGetMappedPointer(p_dev_ptr: *mut DevicePtrV1, p_size: *mut c_uint, resource: GraphicsResource);
            information gate fn cuGraphicsResourceGetMappedPointer_v2(p_dev_ptr: *mut DevicePtr, p_size: *mut usize, resource: GraphicsResource);
            information gate fn cuGraphicsSubResourceGetMappedArray(p_array: *mut Array, resource: GraphicsResource, array_index: c_uint, mip_level: c_uint);
            information gate fn cuLibraryGetGlobal(dptr: *mut DevicePtr, bytes: *mut usize, library: Library, name: *const c_char);
            information gate fn cuLibraryGetManaged(dptr: *mut DevicePtr, bytes: *mut usize, library: Library, name: *const c_char);
            information gate fn cuLibraryGetUnifiedFunction(fptr: *mut *mut c_void, library: Library, symbol: *const c_char);
            information vmm fn cuMemGetAccess(flags: *mut u64, location: *const MemLocation, ptr: DevicePtr);
            information gate fn cuMemGetAddressRange(pbase: *mut DevicePtrV1, psize: *mut c_uint, dptr: DevicePtrV1);
            information malloc fn cuMemGetAddressRange_v2(pbase: *mut DevicePtr, psize: *mut usize, dptr: DevicePtr);
            information vmm fn cuMemGetAllocationPropertiesFromHandle(prop: *mut AllocationProp, handle: MemHandle);
            information gate fn cuMemGetDefaultMemPool(pool_out: *mut MemPool, location: *mut MemLocation, kind: c_uint);
            information gate fn cuMemGetInfo(free: *mut c_uint, total: *mut c_uint);
            information completion fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
            information gate fn cuMemGetMemPool(pool: *mut MemPool, location: *mut MemLocation, kind: c_uint);
            information gate fn cuMemHostGetDevicePointer(pdptr: *mut DevicePtrV1, p: *mut c_void, flags: c_uint);
            information gate fn cuMemHostGetDevicePointer_v2(pdptr: *mut DevicePtr, p: *mut c_void, flags: c_uint);
            information gate fn cuMemHostGetFlags(p_flags: *mut c_uint, p: *mut c_void);
            information gate fn cuMemPoolGetAccess(flags: *mut c_uint, mem_pool: MemPool, location: *mut MemLocation);
            information gate fn cuMemPoolGetAttribute(pool: MemPool, attr: c_uint, value: *mut c_void);
            information gate fn cuMemRangeGetAttribute(data: *mut c_void, data_size: usize, attribute: c_uint, dev_ptr: DevicePtr, count: usize);
            information gate fn cuMemRangeGetAttributes(data: *mut *mut c_void, data_sizes: *mut usize, attributes: *mut c_uint, num_attributes: usize, dev_ptr: DevicePtr, count: usize);
            information gate fn cuMipmappedArrayGetLevel(p_level_array: *mut Array, h_mipmapped_array: MipmappedArray, level: c_uint);
            information gate fn cuMipmappedArrayGetMemoryRequirements(memory_requirements: *mut c_void, mipmap: MipmappedArray, device: Device);
            information gate fn cuMipmappedArrayGetSparseProperties(sparse_properties: *mut c_void, mipmap: MipmappedArray);
            information gate fn cuModuleGetGlobal(dptr: *mut DevicePtrV1, bytes: *mut c_uint, hmod: Module, name: *const c_char);
            information gate fn cuModuleGetGlobal_v2(dptr: *mut DevicePtr, bytes: *mut usize, hmod: Module, name: *const c_char);
            information malloc fn cuPointerGetAttribute(data: *mut c_void, attribute: c_uint, ptr: DevicePtr);
            information malloc fn cuPointerGetAttributes(num_attributes: c_uint, attributes: *mut c_uint, data: *mut *mut c_void, ptr: DevicePtr);
            information capture fn cuStreamEndCapture(h_stream: Stream, ph_graph: *mut Graph);
            information capture fn cuStreamEndCapture_ptsz(h_stream: Stream, ph_graph: *mut Graph);
            information gate fn cuStreamGetAttribute(h_stream: Stream, attr: c_uint, value: *mut c_void);
            information gate fn cuStreamGetAttribute_ptsz(h_stream: Stream, attr: c_uint, value_out: *mut c_void);
            information gate fn cuStreamGetCaptureInfo(h_stream: Stream, capture_status_out: *mut c_uint, id_out: *mut u64);
            information gate fn cuStreamGetCaptureInfo_ptsz(h_stream: Stream, capture_status_out: *mut c_uint, id_out: *mut u64);
            information gate fn cuStreamGetCaptureInfo_v2(h_stream: Stream, capture_status_out: *mut c_uint, id_out: *mut u64, graph_out: *mut Graph, dependencies_out: *mut *const GraphNode, num_dependencies_out: *mut usize);
            information gate fn cuStreamGetCaptureInfo_v2_ptsz(h_stream: Stream, capture_status_out: *mut c_uint, id_out: *mut u64, graph_out: *mut Graph, dependencies_out: *mut *const GraphNode, num_dependencies_out: *mut usize);
            information gate fn cuStreamGetCaptureInfo_v3(h_stream: Stream, capture_status_out: *mut c_uint, id_out: *mut u64, graph_out: *mut Graph, dependencies_out: *mut *const GraphNode, edge_data_out: *mut *const c_void, num_dependencies_out: *mut usize);
            information gate fn cuStreamGetCaptureInfo_v3_ptsz(h_stream: Stream, capture_status_out: *mut c_uint, id_out: *mut u64, graph_out: *mut Graph, dependencies_out: *mut *const GraphNode, edge_data_out: *mut *const c_void, num_dependencies_out: *mut usize);
            information gate fn cuStreamGetCtx(h_stream: Stream, pctx: *mut Context);
            information gate fn cuStreamGetCtx_ptsz(h_stream: Stream, pctx: *mut Context);
            information gate fn cuStreamGetCtx_v2(h_stream: Stream, p_ctx: *mut Context, p_green_ctx: *mut GreenContext);
            information gate fn cuStreamGetCtx_v2_ptsz(h_stream: Stream, p_ctx: *mut Context, p_green_ctx: *mut GreenContext);
            information gate fn cuStreamGetDevResource(h_stream: Stream, resource: *mut c_void, kind: c_uint);
            information gate fn cuStreamGetDevResource_ptsz(h_stream: Stream, resource: *mut c_void, kind: c_uint);
            information gate fn cuStreamGetDevice(h_stream: Stream, device: *mut Device);
            information gate fn cuStreamGetDevice_ptsz(h_stream: Stream, device: *mut Device);
            information gate fn cuStreamGetGreenCtx(h_stream: Stream, ph_ctx: *mut GreenContext);
            information gate fn cuStreamGetId(h_stream: Stream, stream_id: *mut u64);
            information gate fn cuStreamGetId_ptsz(h_stream: Stream, stream_id: *mut u64);
            information gate fn cuStreamGetPriority(h_stream: Stream, priority: *mut c_int);
            information gate fn cuStreamGetPriority_ptsz(h_stream: Stream, priority: *mut c_int);
            information gate fn cuStreamUpdateCaptureDependencies(h_stream: Stream, dependencies: *mut GraphNode, num_dependencies: usize, flags: c_uint);
            information gate fn cuStreamUpdateCaptureDependencies_ptsz(h_stream: Stream, dependencies: *mut GraphNode, num_dependencies: usize, flags: c_uint);
            information gate fn cuStreamUpdateCaptureDependencies_v2(h_stream: Stream, dependencies: *mut GraphNode, dependency_data: *const c_void, num_dependencies: usize, flags: c_uint);
            information gate fn cuStreamUpdateCaptureDependencies_v2_ptsz(h_stream: Stream, dependencies: *mut GraphNode, dependency_data: *const c_void, num_dependencies: usize, flags: c_uint);
            pass gate fn cuCtxGetCurrent(pctx: *mut Context);
            pass gate fn cuCtxGetDevice(device: *mut Device);
            pass gate fn cuCtxGetDevice_v2(device: *mut Device, ctx: Context);
            pass gate fn cuCtxGetId(ctx: Context, ctx_id: *mut u64);
            pass gate fn cuCtxPopCurrent(pctx: *mut Context);
            pass gate fn cuCtxPopCurrent_v2(pctx: *mut Context);
            pass gate fn cuCtxPushCurrent(ctx: Context);
            pass gate fn cuCtxPushCurrent_v2(ctx: Context);
            pass gate fn cuCtxSetCurrent(ctx: Context);
            pass gate fn cuDevicePrimaryCtxGetState(dev: Device, flags: *mut c_uint, active: *mut c_int);
            pass gate fn cuStreamGetFlags(h_stream: Stream, flags: *mut c_uint);
            pass gate fn cuStreamGetFlags_ptsz(h_stream: Stream, flags: *mut c_uint);
            pass gate fn cuStreamIsCapturing(h_stream: Stream, capture_status: *mut c_uint);
            pass gate fn cuStreamIsCapturing_ptsz(h_stream: Stream, capture_status: *mut c_uint);
            pass gate fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
            pass fabric fn cuDeviceGetAttribute(value: *mut c_int, attribute: DeviceAttribute, dev: Device);
            pass entry fn cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, cuda_version: c_int, flags: u64);
            pass entry fn cuGetProcAddress_v2(symbol: *const c_char, pfn: *mut *mut c_void, cuda_version: c_int, flags: u64, symbol_status: *mut c_uint);
        }
    };
}

/// Functions that touch neither the objects of a program nor its work on a GPU, so that nobody stands in
/// front of them: versions, error texts, attributes of devices, parameters of graph nodes.
#[rustfmt::skip]
pub const PASS: &[&str] = &[
    "cuCheckpointProcessCheckpoint", "cuCheckpointProcessGetRestoreThreadId",
    "cuCheckpointProcessGetState", "cuCheckpointProcessLock", "cuCheckpointProcessRestore",
    "cuCheckpointProcessUnlock", "cuCoredumpGetAttribute", "cuCoredumpGetAttributeGlobal",
    "cuCoredumpSetAttribute", "cuCoredumpSetAttributeGlobal", "cuCtxGetApiVersion",
    "cuCtxGetCacheConfig", "cuCtxGetDevResource", "cuCtxGetExecAffinity", "cuCtxGetFlags",
    "cuCtxGetLimit", "cuCtxGetSharedMemConfig", "cuCtxGetStreamPriorityRange", "cuCtxSetCacheConfig",
    "cuCtxSetSharedMemConfig", "cuDevResourceGenerateDesc", "cuDevSmResourceSplit",
    "cuDevSmResourceSplitByCount", "cuDeviceCanAccessPeer", "cuDeviceComputeCapability", "cuDeviceGet",
    "cuDeviceGetByPCIBusId", "cuDeviceGetCount", "cuDeviceGetDevResource",
    "cuDeviceGetExecAffinitySupport", "cuDeviceGetHostAtomicCapabilities", "cuDeviceGetLuid",
    "cuDeviceGetNvSciSyncAttributes", "cuDeviceGetP2PAtomicCapabilities", "cuDeviceGetP2PAttribute",
    "cuDeviceGetPCIBusId", "cuDeviceGetProperties", "cuDeviceGetTexture1DLinearMaxWidth",
    "cuDeviceGetUuid", "cuDeviceGetUuid_v2", "cuDeviceRegisterAsyncNotification", "cuDeviceTotalMem",
    "cuDeviceTotalMem_v2", "cuDeviceUnregisterAsyncNotification", "cuDriverGetVersion", "cuFuncGetName",
    "cuFuncGetParamInfo", "cuFuncIsLoaded", "cuFuncSetBlockShape", "cuFuncSetSharedMemConfig",
    "cuFuncSetSharedSize", "cuGetErrorName", "cuGetErrorString", "cuGetExportTable",
    "cuGraphBatchMemOpNodeGetParams", "cuGraphChildGraphNodeGetGraph", "cuGraphDebugDotPrint",
    "cuGraphEventRecordNodeGetEvent", "cuGraphEventWaitNodeGetEvent", "cuGraphExecGetFlags",
    "cuGraphExecGetId", "cuGraphExternalSemaphoresSignalNodeGetParams",
    "cuGraphExternalSemaphoresWaitNodeGetParams", "cuGraphGetEdges", "cuGraphGetEdges_v2",
    "cuGraphGetId", "cuGraphGetNodes", "cuGraphGetRootNodes", "cuGraphHostNodeGetParams",
    "cuGraphKernelNodeGetAttribute", "cuGraphKernelNodeGetParams", "cuGraphKernelNodeGetParams_v2",
    "cuGraphMemAllocNodeGetParams", "cuGraphMemFreeNodeGetParams", "cuGraphMemcpyNodeGetParams",
    "cuGraphMemsetNodeGetParams", "cuGraphNodeFindInClone", "cuGraphNodeGetContainingGraph",
    "cuGraphNodeGetDependencies", "cuGraphNodeGetDependencies_v2", "cuGraphNodeGetDependentNodes",
    "cuGraphNodeGetDependentNodes_v2", "cuGraphNodeGetEnabled", "cuGraphNodeGetLocalId",
    "cuGraphNodeGetToolsId", "cuGraphNodeGetType", "cuGraphicsResourceSetMapFlags",
    "cuGraphicsResourceSetMapFlags_v2", "cuGreenCtxGetDevResource", "cuGreenCtxGetId",
    "cuKernelGetLibrary", "cuKernelGetName", "cuKernelGetParamInfo", "cuLibraryEnumerateKernels",
    "cuLibraryGetKernelCount", "cuLogsCurrent", "cuLogsDumpToFile", "cuLogsDumpToMemory",
    "cuLogsRegisterCallback", "cuLogsUnregisterCallback", "cuMemGetAllocationGranularity",
    "cuModuleEnumerateFunctions", "cuModuleGetFunctionCount", "cuModuleGetLoadingMode",
    "cuModuleGetSurfRef", "cuModuleGetTexRef", "cuMulticastGetGranularity", "cuParamSetSize",
    "cuParamSetTexRef", "cuParamSetf", "cuParamSeti", "cuParamSetv", "cuSurfObjectGetResourceDesc",
    "cuSurfRefGetArray", "cuSurfRefSetArray", "cuTensorMapEncodeIm2col", "cuTensorMapEncodeIm2colWide",
    "cuTensorMapEncodeTiled", "cuTensorMapReplaceAddress", "cuTexObjectGetResourceDesc",
    "cuTexObjectGetResourceViewDesc", "cuTexObjectGetTextureDesc", "cuTexRefCreate", "cuTexRefDestroy",
    "cuTexRefGetAddress", "cuTexRefGetAddressMode", "cuTexRefGetAddress_v2", "cuTexRefGetArray",
    "cuTexRefGetBorderColor", "cuTexRefGetFilterMode", "cuTexRefGetFlags", "cuTexRefGetFormat",
    "cuTexRefGetMaxAnisotropy", "cuTexRefGetMipmapFilterMode", "cuTexRefGetMipmapLevelBias",
    "cuTexRefGetMipmapLevelClamp", "cuTexRefGetMipmappedArray", "cuTexRefSetAddress",
    "cuTexRefSetAddress2D", "cuTexRefSetAddress2D_v2", "cuTexRefSetAddress2D_v3",
    "cuTexRefSetAddressMode", "cuTexRefSetAddress_v2", "cuTexRefSetArray", "cuTexRefSetBorderColor",
    "cuTexRefSetFilterMode", "cuTexRefSetFlags", "cuTexRefSetFormat", "cuTexRefSetMaxAnisotropy",
    "cuTexRefSetMipmapFilterMode", "cuTexRefSetMipmapLevelBias", "cuTexRefSetMipmapLevelClamp",
    "cuTexRefSetMipmappedArray",
];
