//! Descriptions of copies of rows and of slices.

use core::ffi::c_void;

use super::{Array, ArrayFormat, DevicePtr, MemoryType};

/// `CUDA_ARRAY_DESCRIPTOR`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
#[allow(missing_docs, reason = "the header's own names")]
pub struct ArrayDescriptor {
    pub width: usize,
    /// 0 for an array of one dimension.
    pub height: usize,
    pub format: ArrayFormat,
    pub num_channels: u32,
}

/// `CUDA_MEMCPY2D`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the header's own names")]
pub struct Memcpy2D {
    pub src_x: usize,
    pub src_y: usize,
    pub src_kind: MemoryType,
    pub src_host: *const c_void,
    pub src_device: DevicePtr,
    pub src_array: Array,
    pub src_pitch: usize,
    pub dst_x: usize,
    pub dst_y: usize,
    pub dst_kind: MemoryType,
    pub dst_host: *mut c_void,
    pub dst_device: DevicePtr,
    pub dst_array: Array,
    pub dst_pitch: usize,
    pub width: usize,
    pub height: usize,
}

/// `CUDA_MEMCPY3D`, and [`Memcpy3DPeer`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the header's own names")]
pub struct Memcpy3D {
    pub src_x: usize,
    pub src_y: usize,
    pub src_z: usize,
    pub src_lod: usize,
    pub src_kind: MemoryType,
    pub src_host: *const c_void,
    pub src_device: DevicePtr,
    pub src_array: Array,
    /// Zero, or the context of a copy between two.
    pub src_context: *mut c_void,
    pub src_pitch: usize,
    pub src_height: usize,
    pub dst_x: usize,
    pub dst_y: usize,
    pub dst_z: usize,
    pub dst_lod: usize,
    pub dst_kind: MemoryType,
    pub dst_host: *mut c_void,
    pub dst_device: DevicePtr,
    pub dst_array: Array,
    /// As `src_context`.
    pub dst_context: *mut c_void,
    pub dst_pitch: usize,
    pub dst_height: usize,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// `CUDA_MEMCPY3D_PEER`: with a context for each side where the other has a reserved field, else alike.
pub type Memcpy3DPeer = Memcpy3D;
