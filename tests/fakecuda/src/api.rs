//! The body behind each exported name: the families that are implemented, and NOT_SUPPORTED for all others.
//!
//! An explicit `use` shadows the glob, so to implement a function is to write it in its family and to name it here.

#![allow(non_snake_case, reason = "the driver's own names")]
#![allow(clippy::too_many_arguments, reason = "the driver's own signatures")]

use core::ffi::{c_char, c_int, c_uint, c_void};

use cuda_sys::*;

macro_rules! not_supported {
    ($($class:ident $family:ident fn $name:ident($($arg:ident: $ty:ty),*) $(on $($on:ident).+)?;)*) => {$(
        #[allow(dead_code, reason = "shadowed where the function is implemented")]
        pub(crate) unsafe fn $name($(_: $ty),*) -> CuResult {
            Err(CuError::NOT_SUPPORTED)
        }
    )*};
}

mod absent {
    use super::*;
    cuda_sys::for_each_call!(not_supported);
    crate::pass::for_each_pass!(not_supported);
}

#[allow(unused_imports, reason = "most are shadowed")]
pub(crate) use absent::*;

pub(crate) use crate::checkpoint::calls::{
    cuCheckpointProcessCheckpoint, cuCheckpointProcessGetRestoreThreadId, cuCheckpointProcessGetState,
    cuCheckpointProcessLock, cuCheckpointProcessRestore, cuCheckpointProcessUnlock,
};
pub(crate) use crate::context::calls::{
    cuCtxCreate_v2, cuCtxCreate_v3, cuCtxCreate_v4, cuCtxDestroy_v2, cuCtxDisablePeerAccess,
    cuCtxEnablePeerAccess, cuCtxGetApiVersion, cuCtxGetCacheConfig, cuCtxGetCurrent, cuCtxGetDevice,
    cuCtxGetDevice_v2, cuCtxGetFlags, cuCtxGetId, cuCtxGetLimit, cuCtxGetStreamPriorityRange,
    cuCtxPopCurrent_v2, cuCtxPushCurrent_v2, cuCtxSetCacheConfig, cuCtxSetCurrent, cuCtxSetFlags,
    cuCtxSetLimit, cuCtxSynchronize, cuCtxSynchronize_v2, cuDevicePrimaryCtxGetState,
    cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxRetain,
    cuDevicePrimaryCtxSetFlags_v2,
};
pub(crate) use crate::device::calls::{
    cuDeviceCanAccessPeer, cuDeviceComputeCapability, cuDeviceGet, cuDeviceGetAttribute,
    cuDeviceGetByPCIBusId, cuDeviceGetCount, cuDeviceGetName, cuDeviceGetP2PAttribute, cuDeviceGetPCIBusId,
    cuDeviceGetUuid, cuDeviceGetUuid_v2, cuDeviceTotalMem_v2,
};
pub(crate) use crate::entry::{
    cuDriverGetVersion, cuGetErrorName, cuGetErrorString, cuGetExportTable, cuGetProcAddress,
    cuGetProcAddress_v2, cuInit,
};
pub(crate) use crate::memory::array::{cuArrayCreate_v2, cuArrayDestroy, cuArrayGetDescriptor_v2};
pub(crate) use crate::memory::host::{
    cuMemAllocHost_v2, cuMemFreeHost, cuMemHostAlloc, cuMemHostGetDevicePointer_v2, cuMemHostGetFlags,
    cuMemHostRegister_v2, cuMemHostUnregister,
};
pub(crate) use crate::memory::interop::{
    cuDestroyExternalMemory, cuGraphicsMapResources, cuGraphicsUnmapResources, cuImportExternalMemory,
    cuMemGetHandleForAddressRange, cuMemMapArrayAsync,
};
pub(crate) use crate::memory::ipc::{
    cuIpcCloseMemHandle, cuIpcGetMemHandle, cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2,
};
pub(crate) use crate::memory::managed::cuMemAllocManaged;
pub(crate) use crate::memory::multicast::{
    cuMulticastAddDevice, cuMulticastBindAddr, cuMulticastBindAddr_v2, cuMulticastBindMem,
    cuMulticastBindMem_v2, cuMulticastCreate, cuMulticastGetGranularity, cuMulticastUnbind,
};
pub(crate) use crate::memory::native::{cuMemAlloc_v2, cuMemAllocPitch_v2, cuMemFree_v2, cuMemGetInfo_v2};
pub(crate) use crate::memory::pointer::{
    cuMemGetAddressRange_v2, cuPointerGetAttribute, cuPointerGetAttributes, cuPointerSetAttribute,
};
pub(crate) use crate::memory::pools::sharing::{
    cuMemPoolExportPointer, cuMemPoolExportToShareableHandle, cuMemPoolImportFromShareableHandle,
    cuMemPoolImportPointer,
};
pub(crate) use crate::memory::pools::{
    cuDeviceGetDefaultMemPool, cuDeviceGetMemPool, cuDeviceSetMemPool, cuMemAllocAsync,
    cuMemAllocFromPoolAsync, cuMemFreeAsync, cuMemGetDefaultMemPool, cuMemGetMemPool, cuMemPoolCreate,
    cuMemPoolDestroy, cuMemPoolGetAttribute, cuMemPoolSetAttribute, cuMemPoolTrimTo,
};
pub(crate) use crate::memory::vmm::handles::{
    cuMemCreate, cuMemGetAllocationGranularity, cuMemGetAllocationPropertiesFromHandle, cuMemRelease,
    cuMemRetainAllocationHandle,
};
pub(crate) use crate::memory::vmm::mappings::{cuMemGetAccess, cuMemMap, cuMemSetAccess, cuMemUnmap};
pub(crate) use crate::memory::vmm::ranges::{cuMemAddressFree, cuMemAddressReserve};
pub(crate) use crate::memory::vmm::sharing::{cuMemExportToShareableHandle, cuMemImportFromShareableHandle};
pub(crate) use crate::work::capture::calls::{
    cuStreamBeginCapture, cuStreamBeginCapture_v2, cuStreamBeginCaptureToGraph, cuStreamEndCapture,
    cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v3, cuStreamIsCapturing,
    cuStreamUpdateCaptureDependencies, cuThreadExchangeStreamCaptureMode,
};
pub(crate) use crate::work::event::{
    cuEventCreate, cuEventDestroy_v2, cuEventElapsedTime, cuEventElapsedTime_v2, cuEventQuery, cuEventRecord,
    cuEventRecordWithFlags, cuEventSynchronize, cuIpcGetEventHandle, cuIpcOpenEventHandle, cuStreamWaitEvent,
};
pub(crate) use crate::work::forms::{
    cuMemcpy, cuMemcpy_ptds, cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, cuMemcpy2DAsync_v2, cuMemcpy2DUnaligned_v2,
    cuMemcpy2DUnaligned_v2_ptds, cuMemcpy3D_v2, cuMemcpy3D_v2_ptds, cuMemcpy3DAsync_v2, cuMemcpy3DPeer,
    cuMemcpy3DPeer_ptds, cuMemcpy3DPeerAsync, cuMemcpyAsync, cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds,
    cuMemcpyAtoH_v2, cuMemcpyAtoH_v2_ptds, cuMemcpyAtoHAsync_v2, cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds,
    cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds, cuMemcpyDtoDAsync_v2, cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds,
    cuMemcpyDtoHAsync_v2, cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds, cuMemcpyHtoAAsync_v2, cuMemcpyHtoD_v2,
    cuMemcpyHtoD_v2_ptds, cuMemcpyHtoDAsync_v2, cuMemcpyPeer, cuMemcpyPeer_ptds, cuMemcpyPeerAsync,
    cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds, cuMemsetD2D8Async, cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds,
    cuMemsetD2D16Async, cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds, cuMemsetD2D32Async, cuMemsetD8_v2,
    cuMemsetD8_v2_ptds, cuMemsetD8Async, cuMemsetD16_v2, cuMemsetD16_v2_ptds, cuMemsetD16Async,
    cuMemsetD32_v2, cuMemsetD32_v2_ptds, cuMemsetD32Async,
};
pub(crate) use crate::work::graph::{
    cuGraphClone, cuGraphCreate, cuGraphDestroy, cuGraphExecDestroy, cuGraphExecUpdate_v2,
    cuGraphInstantiate, cuGraphInstantiate_v2, cuGraphInstantiateWithFlags, cuGraphInstantiateWithParams,
    cuGraphLaunch, cuGraphUpload,
};
pub(crate) use crate::work::graph_nodes::{
    cuGraphAddChildGraphNode, cuGraphAddDependencies, cuGraphAddDependencies_v2, cuGraphAddEmptyNode,
    cuGraphAddHostNode, cuGraphAddKernelNode, cuGraphAddKernelNode_v2, cuGraphAddMemcpyNode,
    cuGraphAddMemsetNode, cuGraphDestroyNode, cuGraphGetNodes, cuGraphGetRootNodes,
    cuGraphKernelNodeSetParams_v2, cuGraphNodeGetType,
};
pub(crate) use crate::work::launch::{cuLaunchCooperativeKernel, cuLaunchKernel, cuLaunchKernelEx};
pub(crate) use crate::work::memory_ops::{
    cuStreamBatchMemOp_v2, cuStreamWaitValue32_v2, cuStreamWaitValue64_v2, cuStreamWriteValue32_v2,
    cuStreamWriteValue64_v2,
};
pub(crate) use crate::work::module::functions::{
    cuFuncGetAttribute, cuFuncGetName, cuFuncGetParamInfo, cuFuncIsLoaded, cuFuncLoad, cuFuncSetAttribute,
    cuFuncSetCacheConfig, cuKernelGetAttribute, cuKernelGetName, cuKernelGetParamInfo, cuKernelSetAttribute,
    cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
};
pub(crate) use crate::work::module::{
    cuFuncGetModule, cuKernelGetFunction, cuKernelGetLibrary, cuLibraryGetKernel, cuLibraryGetKernelCount,
    cuLibraryGetModule, cuLibraryLoadData, cuLibraryUnload, cuModuleGetFunction, cuModuleGetFunctionCount,
    cuModuleGetGlobal_v2, cuModuleGetLoadingMode, cuModuleLoad, cuModuleLoadData, cuModuleLoadDataEx,
    cuModuleLoadFatBinary, cuModuleUnload,
};
pub(crate) use crate::work::per_thread::{
    cuEventRecord_ptsz, cuEventRecordWithFlags_ptsz, cuGraphInstantiateWithParams_ptsz, cuGraphLaunch_ptsz,
    cuGraphUpload_ptsz, cuLaunchCooperativeKernel_ptsz, cuLaunchHostFunc_ptsz, cuLaunchKernel_ptsz,
    cuLaunchKernelEx_ptsz, cuMemAllocAsync_ptsz, cuMemAllocFromPoolAsync_ptsz, cuMemFreeAsync_ptsz,
    cuMemcpy2DAsync_v2_ptsz, cuMemcpy3DAsync_v2_ptsz, cuMemcpy3DPeerAsync_ptsz, cuMemcpyAsync_ptsz,
    cuMemcpyAtoHAsync_v2_ptsz, cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoHAsync_v2_ptsz,
    cuMemcpyHtoAAsync_v2_ptsz, cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyPeerAsync_ptsz, cuMemsetD2D8Async_ptsz,
    cuMemsetD2D16Async_ptsz, cuMemsetD2D32Async_ptsz, cuMemsetD8Async_ptsz, cuMemsetD16Async_ptsz,
    cuMemsetD32Async_ptsz, cuStreamAddCallback_ptsz, cuStreamBatchMemOp_v2_ptsz, cuStreamBeginCapture_ptsz,
    cuStreamBeginCapture_v2_ptsz, cuStreamBeginCaptureToGraph_ptsz, cuStreamEndCapture_ptsz,
    cuStreamGetCaptureInfo_ptsz, cuStreamGetCaptureInfo_v2_ptsz, cuStreamGetCaptureInfo_v3_ptsz,
    cuStreamGetCtx_ptsz, cuStreamGetDevice_ptsz, cuStreamGetFlags_ptsz, cuStreamGetId_ptsz,
    cuStreamGetPriority_ptsz, cuStreamIsCapturing_ptsz, cuStreamQuery_ptsz, cuStreamSynchronize_ptsz,
    cuStreamUpdateCaptureDependencies_ptsz, cuStreamWaitEvent_ptsz, cuStreamWaitValue32_v2_ptsz,
    cuStreamWaitValue64_v2_ptsz, cuStreamWriteValue32_v2_ptsz, cuStreamWriteValue64_v2_ptsz,
};
pub(crate) use crate::work::stream_calls::{
    cuLaunchHostFunc, cuStreamAddCallback, cuStreamCreate, cuStreamCreateWithPriority, cuStreamDestroy_v2,
    cuStreamGetCtx, cuStreamGetDevice, cuStreamGetFlags, cuStreamGetId, cuStreamGetPriority, cuStreamQuery,
    cuStreamSynchronize,
};
