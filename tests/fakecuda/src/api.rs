//! The body behind each exported name: the families that are implemented, and NOT_SUPPORTED for all others.
//!
//! An explicit `use` shadows the glob, so to implement a function is to write it in its family and to name it here.

#![allow(non_snake_case, reason = "the driver's own names")]

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
pub(crate) use crate::memory::vmm::{
    cuMemAddressFree, cuMemAddressReserve, cuMemCreate, cuMemExportToShareableHandle, cuMemGetAccess,
    cuMemGetAllocationGranularity, cuMemGetAllocationPropertiesFromHandle, cuMemImportFromShareableHandle,
    cuMemMap, cuMemRelease, cuMemRetainAllocationHandle, cuMemSetAccess, cuMemUnmap,
};
