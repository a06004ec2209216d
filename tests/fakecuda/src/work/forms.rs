//! The functions whose forms differ only in the stream they mean and in when they return: copies and fills, once for the default
//! stream of all threads, once for that of the calling thread (`_ptds`), once for a stream that is named.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::{c_uint, c_void};

use cuda_sys::{Array, Context, CuResult, DevicePtr, Stream};

use super::array_copies::{array_to_device, array_to_host, device_to_array, host_to_array};
use super::copy_calls::Return::{Completed, Queued};
use super::copy_calls::{
    LEGACY, copy_2d, copy_3d, copy_3d_peer, device_to_device, device_to_host, host_to_device, peer, set,
    unified,
};
use super::per_thread::OWN;

macro_rules! forms {
    (fn $legacy:ident / $own:ident / $named:ident($($arg:ident: $ty:ty),*) = $how:ident($($given:expr),*)) => {
        forms! { fn $legacy/$own($($arg: $ty),*) = $how($($given),*) }

        pub(crate) unsafe fn $named($($arg: $ty,)* h_stream: Stream) -> CuResult {
            $how($($given,)* h_stream, Queued)
        }
    };
    (fn $legacy:ident / $own:ident($($arg:ident: $ty:ty),*) = $how:ident($($given:expr),*)) => {
        pub(crate) unsafe fn $legacy($($arg: $ty),*) -> CuResult {
            $how($($given,)* LEGACY, Completed)
        }

        pub(crate) unsafe fn $own($($arg: $ty),*) -> CuResult {
            $how($($given,)* OWN, Completed)
        }
    };
}

forms! { fn cuMemcpyHtoA_v2/cuMemcpyHtoA_v2_ptds/cuMemcpyHtoAAsync_v2(dst_array: Array, dst_offset: usize, src_host: *const c_void, byte_count: usize) = host_to_array((dst_array, dst_offset), src_host, byte_count) }
forms! { fn cuMemcpyAtoH_v2/cuMemcpyAtoH_v2_ptds/cuMemcpyAtoHAsync_v2(dst_host: *mut c_void, src_array: Array, src_offset: usize, byte_count: usize) = array_to_host(dst_host, (src_array, src_offset), byte_count) }
forms! { fn cuMemcpyDtoA_v2/cuMemcpyDtoA_v2_ptds(dst_array: Array, dst_offset: usize, src_device: DevicePtr, byte_count: usize) = device_to_array((dst_array, dst_offset), src_device, byte_count) }
forms! { fn cuMemcpyAtoD_v2/cuMemcpyAtoD_v2_ptds(dst_device: DevicePtr, src_array: Array, src_offset: usize, byte_count: usize) = array_to_device(dst_device, (src_array, src_offset), byte_count) }
forms! { fn cuMemcpyHtoD_v2/cuMemcpyHtoD_v2_ptds/cuMemcpyHtoDAsync_v2(dst_device: DevicePtr, src_host: *const c_void, byte_count: usize) = host_to_device(dst_device, src_host, byte_count) }
forms! { fn cuMemcpyDtoH_v2/cuMemcpyDtoH_v2_ptds/cuMemcpyDtoHAsync_v2(dst_host: *mut c_void, src_device: DevicePtr, byte_count: usize) = device_to_host(dst_host, src_device, byte_count) }
forms! { fn cuMemcpyDtoD_v2/cuMemcpyDtoD_v2_ptds/cuMemcpyDtoDAsync_v2(dst_device: DevicePtr, src_device: DevicePtr, byte_count: usize) = device_to_device(dst_device, src_device, byte_count) }
forms! { fn cuMemcpy/cuMemcpy_ptds/cuMemcpyAsync(dst: DevicePtr, src: DevicePtr, byte_count: usize) = unified(dst, src, byte_count) }
forms! { fn cuMemcpyPeer/cuMemcpyPeer_ptds/cuMemcpyPeerAsync(dst_device: DevicePtr, dst_context: Context, src_device: DevicePtr, src_context: Context, byte_count: usize) = peer((dst_device, dst_context), (src_device, src_context), byte_count) }

macro_rules! unsafe_forms {
    (fn $legacy:ident / $own:ident / $named:ident = $how:ident) => {
        pub(crate) unsafe fn $legacy(p_copy: *const c_void) -> CuResult {
            // SAFETY: the caller's promise.
            unsafe { $how(p_copy, LEGACY, Completed) }
        }

        pub(crate) unsafe fn $own(p_copy: *const c_void) -> CuResult {
            // SAFETY: the caller's promise.
            unsafe { $how(p_copy, OWN, Completed) }
        }

        pub(crate) unsafe fn $named(p_copy: *const c_void, h_stream: Stream) -> CuResult {
            // SAFETY: the caller's promise.
            unsafe { $how(p_copy, h_stream, Queued) }
        }
    };
}

unsafe_forms! { fn cuMemcpy2D_v2/cuMemcpy2D_v2_ptds/cuMemcpy2DAsync_v2 = copy_2d }
unsafe_forms! { fn cuMemcpy3D_v2/cuMemcpy3D_v2_ptds/cuMemcpy3DAsync_v2 = copy_3d }
unsafe_forms! { fn cuMemcpy3DPeer/cuMemcpy3DPeer_ptds/cuMemcpy3DPeerAsync = copy_3d_peer }

pub(crate) unsafe fn cuMemcpy2DUnaligned_v2(p_copy: *const c_void) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { cuMemcpy2D_v2(p_copy) }
}

pub(crate) unsafe fn cuMemcpy2DUnaligned_v2_ptds(p_copy: *const c_void) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { cuMemcpy2D_v2_ptds(p_copy) }
}

macro_rules! fills {
    ($(fn $legacy:ident / $own:ident / $named:ident($value:ty) of $unit:literal;)*) => {$(
        pub(crate) unsafe fn $legacy(dst_device: DevicePtr, value: $value, n: usize) -> CuResult {
            set((dst_device, 0), value.into(), $unit, (n, 1), LEGACY, Completed)
        }

        pub(crate) unsafe fn $own(dst_device: DevicePtr, value: $value, n: usize) -> CuResult {
            set((dst_device, 0), value.into(), $unit, (n, 1), OWN, Completed)
        }

        pub(crate) unsafe fn $named(dst_device: DevicePtr, value: $value, n: usize, h_stream: Stream) -> CuResult {
            set((dst_device, 0), value.into(), $unit, (n, 1), h_stream, Queued)
        }
    )*};
}

fills! {
    fn cuMemsetD8_v2/cuMemsetD8_v2_ptds/cuMemsetD8Async(u8) of 1;
    fn cuMemsetD16_v2/cuMemsetD16_v2_ptds/cuMemsetD16Async(u16) of 2;
    fn cuMemsetD32_v2/cuMemsetD32_v2_ptds/cuMemsetD32Async(c_uint) of 4;
}

macro_rules! fills_of_rows {
    ($(fn $legacy:ident / $own:ident / $named:ident($value:ty) of $unit:literal;)*) => {$(
        pub(crate) unsafe fn $legacy(
            dst_device: DevicePtr,
            dst_pitch: usize,
            value: $value,
            width: usize,
            height: usize,
        ) -> CuResult {
            set((dst_device, dst_pitch), value.into(), $unit, (width, height), LEGACY, Completed)
        }

        pub(crate) unsafe fn $own(
            dst_device: DevicePtr,
            dst_pitch: usize,
            value: $value,
            width: usize,
            height: usize,
        ) -> CuResult {
            set((dst_device, dst_pitch), value.into(), $unit, (width, height), OWN, Completed)
        }

        pub(crate) unsafe fn $named(
            dst_device: DevicePtr,
            dst_pitch: usize,
            value: $value,
            width: usize,
            height: usize,
            h_stream: Stream,
        ) -> CuResult {
            set((dst_device, dst_pitch), value.into(), $unit, (width, height), h_stream, Queued)
        }
    )*};
}

fills_of_rows! {
    fn cuMemsetD2D8_v2/cuMemsetD2D8_v2_ptds/cuMemsetD2D8Async(u8) of 1;
    fn cuMemsetD2D16_v2/cuMemsetD2D16_v2_ptds/cuMemsetD2D16Async(u16) of 2;
    fn cuMemsetD2D32_v2/cuMemsetD2D32_v2_ptds/cuMemsetD2D32Async(c_uint) of 4;
}
