//! Types of the driver API. Values that a driver (or a program) may invent stay representable: what the header
//! calls an enum is a transparent number here, with the values we know as constants.

mod checkpoint;
mod copies;
mod memory;

use core::ffi::{c_int, c_uint, c_void};
use core::fmt;

pub use checkpoint::*;
pub use copies::*;
pub use memory::*;

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
    /// `CUarray_format`, the plain ones.
    ArrayFormat(u32) {
        /// Bytes.
        UNSIGNED_INT8 = 1,
        /// Words of 16 bits.
        UNSIGNED_INT16 = 2,
        /// Words of 32 bits.
        UNSIGNED_INT32 = 3,
        /// Floating point numbers of 32 bits.
        FLOAT = 0x20,
    }
    /// `CUmemorytype`
    MemoryType(u32) {
        /// Memory of the host.
        HOST = 1,
        /// Memory of a device.
        DEVICE = 2,
        /// An array.
        ARRAY = 3,
        /// Whatever the address is.
        UNIFIED = 4,
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
