//! Typed calls of the driver's own functions, never through our exports.
//!
//! Every call answers `CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER` where the driver lacks the function.
#![allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's own names and signatures")]
#![allow(dead_code, reason = "the list is complete; not every call is one we make")]

use core::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use cuda_sys::{for_each_call, *};
use shim_core::calls::CallId;

use super::Object;

macro_rules! real {
    ($($class:ident $family:ident fn $name:ident($($arg:ident: $ty:ty),*) $(on $stream:ident $(.$field:ident)?)?;)+) => {$(
        /// # Safety
        /// As the driver's function of this name.
        #[inline]
        pub(crate) unsafe fn $name($($arg: $ty),*) -> CuResult {
            let address = super::address(CallId::$name)?;
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
    ($(fn $name:ident($($arg:ident: $ty:ty),*);)+) => {
        /// The functions below, as places in `ASKED`.
        #[allow(non_camel_case_types, reason = "the driver's own names")]
        enum Asked {
            $($name),+
        }

        const NAMES: &[&str] = &[$(stringify!($name)),+];
        /// Their addresses; zero where unknown or lacking.
        static ASKED: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

        $(
            /// # Safety
            /// As the driver's function of this name.
            pub(crate) unsafe fn $name($($arg: $ty),*) -> CuResult {
                let address = asked(Asked::$name)?;
                // SAFETY: `address` is the driver's function of this name, whose signature this is.
                let function = unsafe {
                    core::mem::transmute::<usize, unsafe extern "C" fn($($ty),*) -> CuResult>(address)
                };
                // SAFETY: the caller's arguments, unchanged.
                unsafe { function($($arg),*) }
            }
        )+
    };
}

// Functions nobody stands in front of, but which we call ourselves.
asked! {
    fn cuDriverGetVersion(version: *mut c_int);
    fn cuDeviceGetCount(count: *mut c_int);
    fn cuDeviceCanAccessPeer(can: *mut c_int, device: Device, peer: Device);
    fn cuDeviceGetUuid(uuid: *mut Uuid, device: Device);
    fn cuDeviceGetUuid_v2(uuid: *mut Uuid, device: Device);
    fn cuMemGetAllocationGranularity(granularity: *mut usize, prop: *const AllocationProp, option: GranularityFlags);
}

/// The address of a function we call ourselves. The driver has been seen by then: we call it only after the
/// program's own `cuInit`.
fn asked(function: Asked) -> Result<usize, CuError> {
    match ASKED.get(function as usize).map_or(0, |address| address.load(Ordering::Acquire)) {
        0 => Err(CuError::CALL_REQUIRES_NEWER_DRIVER),
        address => Ok(address),
    }
}

/// Stores where these functions are in this libcuda.
pub(super) fn adopt(object: &Object) {
    for (name, address) in NAMES.iter().zip(&ASKED) {
        address.store(object.function(name).unwrap_or(0), Ordering::Release);
    }
}
