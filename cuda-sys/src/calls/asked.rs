//! Calls that ask: of classes completion, information, and those of class pass that have a hook.

/// A part of [`for_each_call!`](crate::for_each_call).
#[doc(hidden)]
#[macro_export]
macro_rules! with_asked_calls {
    ($then:path { $($before:tt)* }) => {
        $then! {
            $($before)*
            completion completion fn cuCtxSynchronize();
            completion completion fn cuCtxSynchronize_v2(ctx: Context);
            completion completion fn cuEventQuery(h_event: Event);
            completion completion fn cuEventSynchronize(h_event: Event);
            completion completion fn cuStreamQuery(h_stream: Stream);
            completion completion fn cuStreamQuery_ptsz(h_stream: Stream);
            completion completion fn cuStreamSynchronize(h_stream: Stream);
            completion completion fn cuStreamSynchronize_ptsz(h_stream: Stream);
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
            information refuse fn cuMemGetDefaultMemPool(pool_out: *mut MemPool, location: *mut MemLocation, kind: c_uint);
            information gate fn cuMemGetInfo(free: *mut c_uint, total: *mut c_uint);
            information completion fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
            information refuse fn cuMemGetMemPool(pool: *mut MemPool, location: *mut MemLocation, kind: c_uint);
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
