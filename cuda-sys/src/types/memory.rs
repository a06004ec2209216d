//! Memory: where it is, what it is made with, who may access it.

use core::ffi::{c_int, c_uint, c_void};

use super::{AccessFlags, AllocationType, HandleType, LocationType, MemHandle};

/// `CUmemLocation`
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(C)]
pub struct MemLocation {
    /// How `id` is meant.
    pub kind: LocationType,
    /// A device ordinal or a NUMA node.
    pub id: c_int,
}

/// `CUmemAllocationProp`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AllocationProp {
    /// Pinned.
    pub kind: AllocationType,
    /// The set of ways it may be exported.
    pub requested_handle_types: HandleType,
    /// Where the memory is.
    pub location: MemLocation,
    /// Zero on Linux.
    pub win32_handle_meta_data: *mut c_void,
    /// The flags of the allocation.
    pub alloc_flags: AllocFlags,
}

impl Default for AllocationProp {
    fn default() -> Self {
        Self {
            kind: AllocationType::default(),
            requested_handle_types: HandleType::NONE,
            location: MemLocation::default(),
            win32_handle_meta_data: core::ptr::null_mut(),
            alloc_flags: AllocFlags::default(),
        }
    }
}

// SAFETY: the pointer is zero on Linux and never followed here.
unsafe impl Send for AllocationProp {}
// SAFETY: as above.
unsafe impl Sync for AllocationProp {}

/// `allocFlags` of `CUmemAllocationProp`
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(C)]
pub struct AllocFlags {
    /// `CUmemAllocationCompType`
    pub compression_type: u8,
    /// Whether NICs may reach the memory.
    pub gpu_direct_rdma_capable: u8,
    /// `CU_MEM_CREATE_USAGE_*`
    pub usage: u16,
    /// Zero.
    pub reserved: [u8; 4],
}

/// `CUmemAccessDesc`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct AccessDesc {
    /// Who may access.
    pub location: MemLocation,
    /// How.
    pub flags: AccessFlags,
}

/// `CUmemPoolProps`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MemPoolProps {
    /// What the pool hands out.
    pub alloc_type: AllocationType,
    /// The set of ways the pool may be exported.
    pub handle_types: HandleType,
    /// Where its memory is.
    pub location: MemLocation,
    /// Zero on Linux.
    pub win32_security_attributes: *mut c_void,
    /// The most bytes it may hold; 0 is without bound.
    pub max_size: usize,
    /// `CU_MEM_CREATE_USAGE_*`
    pub usage: u16,
    /// Zero.
    pub reserved: [u8; 54],
}

/// `CUarrayMapInfo`: one step of `cuMemMapArrayAsync`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct ArrayMapInfo {
    /// Whether `resource` is an array or a mipmapped one.
    pub resource_type: c_uint,
    /// The array.
    pub resource: u64,
    /// How `subresource` is meant.
    pub subresource_type: c_uint,
    /// The part of the array.
    pub subresource: [u64; 4],
    /// [`MEM_OPERATION_MAP`] or [`MEM_OPERATION_UNMAP`].
    pub mem_operation_type: c_uint,
    /// [`MEM_HANDLE_TYPE_GENERIC`]
    pub mem_handle_type: c_uint,
    /// The memory.
    pub mem_handle: MemHandle,
    /// Where in the memory.
    pub offset: u64,
    /// For which devices.
    pub device_bit_mask: c_uint,
    /// Zero.
    pub flags: c_uint,
    /// Zero.
    pub reserved: [c_uint; 2],
}

/// `CU_MEM_OPERATION_TYPE_MAP`
pub const MEM_OPERATION_MAP: c_uint = 1;
/// `CU_MEM_OPERATION_TYPE_UNMAP`
pub const MEM_OPERATION_UNMAP: c_uint = 2;
/// `CU_MEM_HANDLE_TYPE_GENERIC`
pub const MEM_HANDLE_TYPE_GENERIC: c_uint = 0;

/// `CUmulticastObjectProp`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct MulticastObjectProp {
    /// Devices of the team.
    pub num_devices: c_uint,
    /// Bytes that can be bound per device.
    pub size: usize,
    /// The set of ways it may be exported.
    pub handle_types: u64,
    /// Zero.
    pub flags: u64,
}
