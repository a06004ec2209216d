//! Types of the driver API. Values that a driver (or a program) may invent stay representable: what the header
//! calls an enum is a transparent number here, with the values we know as constants.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::fmt;

macro_rules! pointers {
    ($($(#[$doc:meta])* $name:ident)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $name(pub *mut c_void);

        impl $name {
            /// The null handle.
            pub const NULL: Self = Self(core::ptr::null_mut());

            /// Whether this is the null handle.
            pub fn is_null(self) -> bool {
                self.0.is_null()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:p})"), self.0)
            }
        }

        // SAFETY: a name for an object of the driver, which may be used from any thread; nobody here follows it.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}
    )+};
}

pointers! {
    /// `CUcontext`
    Context
    /// `CUstream`; null, 1 and 2 are the default streams.
    Stream
    /// `CUevent`
    Event
    /// `CUmodule`
    Module
    /// `CUfunction`
    Function
    /// `CUlibrary`
    Library
    /// `CUkernel`
    Kernel
    /// `CUgraph`
    Graph
    /// `CUgraphNode`
    GraphNode
    /// `CUgraphDeviceNode`
    GraphDeviceNode
    /// `CUgraphExec`
    GraphExec
    /// `CUarray`
    Array
    /// `CUmipmappedArray`
    MipmappedArray
    /// `CUmemoryPool`
    MemPool
    /// `CUlinkState`
    LinkState
    /// `CUexternalMemory`
    ExternalMemory
    /// `CUexternalSemaphore`
    ExternalSemaphore
    /// `CUgraphicsResource`
    GraphicsResource
    /// `CUgreenCtx`
    GreenContext
    /// `CUdevResourceDesc`
    DevResourceDesc
    /// `CUuserObject`
    UserObject
    /// `CUtexref`
    TexRef
    /// `CUsurfref`
    SurfRef
    /// `CUasyncCallbackHandle`
    AsyncCallbackHandle
}

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident($repr:ty) { $($(#[$vdoc:meta])* $value:ident = $number:expr,)* })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        #[repr(transparent)]
        pub struct $name(pub $repr);

        impl $name {
            $($(#[$vdoc])* pub const $value: Self = Self($number);)*
        }
    )+};
}

numbers! {
    /// `CUdevice`: the ordinal of a device.
    Device(c_int) {}
    /// `CUdeviceptr`: an address in the unified address space.
    DevicePtr(u64) {}
    /// The 32-bit `CUdeviceptr` of the oldest ABI.
    DevicePtrV1(c_uint) {}
    /// `CUmemGenericAllocationHandle` as a number. Whether it is a real or a virtual one is a matter of who holds it.
    MemHandle(u64) {
        /// No handle.
        NONE = 0,
    }
    /// `CUmemAllocationType`
    AllocationType(u32) {
        /// Memory that does not move.
        PINNED = 1,
        /// Memory of a managed pool.
        MANAGED = 2,
    }
    /// `CUmemAllocationHandleType`: one kind of shareable handle, or a set of them.
    HandleType(u32) {
        /// Cannot be exported.
        NONE = 0,
        /// A file descriptor.
        POSIX_FD = 1,
        /// A handle for other nodes of a fabric.
        FABRIC = 8,
    }
    /// `CUmemLocationType`
    LocationType(u32) {
        /// No location.
        NONE = 0,
        /// A device; the id is its ordinal.
        DEVICE = 1,
        /// The host; the id is ignored.
        HOST = 2,
        /// A NUMA node of the host; the id is the node.
        HOST_NUMA = 3,
        /// The NUMA node of the calling thread; the id is ignored.
        HOST_NUMA_CURRENT = 4,
    }
    /// `CUmemAccess_flags`
    AccessFlags(u32) {
        /// No access.
        NONE = 0,
        /// Reads only.
        READ = 1,
        /// Reads and writes.
        READ_WRITE = 3,
    }
    /// `CUmemAllocationGranularity_flags`
    GranularityFlags(u32) {
        /// The smallest that works.
        MINIMUM = 0,
        /// The one that performs best.
        RECOMMENDED = 1,
    }
    /// `CUprocessState` of the checkpoint API.
    ProcessState(u32) {
        /// Runs as usual.
        RUNNING = 0,
        /// Driver calls wait.
        LOCKED = 1,
        /// The GPU holds nothing of the process.
        CHECKPOINTED = 2,
        /// A checkpoint or restore failed.
        FAILED = 3,
    }
    /// `CUdevice_attribute`, those we ask for.
    DeviceAttribute(u32) {
        /// Unified addressing.
        UNIFIED_ADDRESSING = 41,
        /// Major compute capability.
        COMPUTE_CAPABILITY_MAJOR = 75,
        /// Minor compute capability.
        COMPUTE_CAPABILITY_MINOR = 76,
        /// `cuMemCreate` and its family.
        VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
        /// Export to file descriptors.
        HANDLE_TYPE_POSIX_FD_SUPPORTED = 103,
        /// GPUDirect RDMA for `cuMemCreate` memory.
        GPU_DIRECT_RDMA_WITH_VMM_SUPPORTED = 110,
        /// Memory pools.
        MEMORY_POOLS_SUPPORTED = 115,
        /// Export to fabric handles.
        HANDLE_TYPE_FABRIC_SUPPORTED = 128,
        /// Multicast objects.
        MULTICAST_SUPPORTED = 132,
        /// The NUMA node next to the device, or -1.
        HOST_NUMA_ID = 134,
        /// `cuMemCreate` on a NUMA node.
        HOST_NUMA_VMM_SUPPORTED = 141,
        /// `cuMemCreate` on the host.
        HOST_VMM_SUPPORTED = 145,
    }
}

/// `CUstreamCaptureStatus`: the stream is not capturing.
pub const CAPTURE_STATUS_NONE: c_uint = 0;
/// `CUstreamCaptureStatus`: the stream is capturing.
pub const CAPTURE_STATUS_ACTIVE: c_uint = 1;
/// `CU_GET_PROC_ADDRESS_LEGACY_STREAM`
pub const GET_PROC_ADDRESS_LEGACY_STREAM: u64 = 1;
/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`
pub const GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM: u64 = 2;
/// `CU_IPC_HANDLE_SIZE`
pub const IPC_HANDLE_SIZE: usize = 64;

/// `CUhostFn`
pub type HostFn = Option<unsafe extern "C" fn(*mut c_void)>;
/// `CUoccupancyB2DSize`
pub type BlockSizeToDynamicMemory = Option<unsafe extern "C" fn(c_int) -> usize>;
/// `CUstreamCallback`
pub type StreamCallback = Option<unsafe extern "C" fn(Stream, c_uint, *mut c_void)>;

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

/// `CUlaunchConfig`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the header's own names")]
pub struct LaunchConfig {
    pub grid_dim_x: c_uint,
    pub grid_dim_y: c_uint,
    pub grid_dim_z: c_uint,
    pub block_dim_x: c_uint,
    pub block_dim_y: c_uint,
    pub block_dim_z: c_uint,
    pub shared_mem_bytes: c_uint,
    pub stream: Stream,
    pub attrs: *mut c_void,
    pub num_attrs: c_uint,
}

/// `CUipcMemHandle`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct IpcMemHandle {
    /// Opaque bytes.
    pub reserved: [u8; IPC_HANDLE_SIZE],
}

/// `CUipcEventHandle`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct IpcEventHandle {
    /// Opaque bytes.
    pub reserved: [u8; IPC_HANDLE_SIZE],
}

/// `CUuuid`
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(C)]
pub struct Uuid {
    /// The 16 bytes in order of print.
    pub bytes: [u8; 16],
}

impl fmt::Display for Uuid {
    /// As `nvidia-smi` prints it: `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU-")?;
        for (at, byte) in self.bytes.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// `CUcheckpointLockArgs`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CheckpointLockArgs {
    /// Milliseconds to try; 0 is without bound.
    pub timeout_ms: c_uint,
    /// Zero.
    pub reserved0: c_uint,
    /// Zero.
    pub reserved1: [u64; 7],
}

/// `CUcheckpointCheckpointArgs`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CheckpointCheckpointArgs {
    /// Zero.
    pub reserved: [u64; 8],
}

/// `CUcheckpointGpuPair`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct CheckpointGpuPair {
    /// The GPU the process was on.
    pub old: Uuid,
    /// The GPU it comes back on.
    pub new: Uuid,
}

/// `CUcheckpointRestoreArgs`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CheckpointRestoreArgs {
    /// The pairs, or null: every GPU stays itself.
    pub gpu_pairs: *mut CheckpointGpuPair,
    /// How many pairs.
    pub gpu_pairs_count: c_uint,
    /// Zero.
    pub reserved: [c_char; 52 - size_of::<*mut CheckpointGpuPair>()],
    /// Zero.
    pub reserved1: u64,
}

impl Default for CheckpointRestoreArgs {
    fn default() -> Self {
        Self {
            gpu_pairs: core::ptr::null_mut(),
            gpu_pairs_count: 0,
            reserved: [0; 52 - size_of::<*mut CheckpointGpuPair>()],
            reserved1: 0,
        }
    }
}

/// `CUcheckpointUnlockArgs`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CheckpointUnlockArgs {
    /// Zero.
    pub reserved: [u64; 8],
}
