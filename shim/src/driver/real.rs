//! Typed calls of the driver's own functions, never through our exports.
//!
//! Every call answers `CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER` where the driver lacks the function.
#![allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's own names and signatures")]
#![allow(dead_code, reason = "the list is complete; not every call is one we make")]

use core::ffi::{c_char, c_int, c_uint, c_void};

use cuda_sys::{for_each_call, *};
use shim_core::calls::CallId;

macro_rules! real {
    ($($class:ident $family:ident fn $name:ident($($arg:ident: $ty:ty),*) $(on $stream:ident $(.$field:ident)?)?;)+) => {$(
        /// # Safety
        /// As the driver's function of this name.
        #[inline]
        pub(crate) unsafe fn $name($($arg: $ty),*) -> CuResult {
            let Some(address) = super::address(CallId::$name) else {
                return Err(CuError::CALL_REQUIRES_NEWER_DRIVER);
            };
            // SAFETY: `address` is the driver's function of this name, whose signature this is.
            let function = unsafe {
                core::mem::transmute::<usize, unsafe extern "C" fn($($ty),*) -> CuResult>(address)
            };
            // SAFETY: the caller's arguments, unchanged.
            unsafe { function($($arg),*) }
        }
    )+};
}

for_each_call!(real);

macro_rules! asked {
    ($(fn $name:ident($($arg:ident: $ty:ty),*);)+) => {$(
        /// # Safety
        /// As the driver's function of this name.
        pub(crate) unsafe fn $name($($arg: $ty),*) -> CuResult {
            let _ = ($($arg,)*);
            Err(CuError::CALL_REQUIRES_NEWER_DRIVER)
        }
    )+};
}

// Functions nobody stands in front of, but which we call ourselves.
asked! {
    fn cuDriverGetVersion(version: *mut c_int);
    fn cuDeviceGetCount(count: *mut c_int);
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: DeviceAttribute, device: Device);
    fn cuDeviceGetUuid(uuid: *mut Uuid, device: Device);
    fn cuDeviceGetUuid_v2(uuid: *mut Uuid, device: Device);
    fn cuMemGetAllocationGranularity(granularity: *mut usize, prop: *const AllocationProp, option: GranularityFlags);
}
