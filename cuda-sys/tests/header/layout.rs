//! Sizes, offsets and numbers, against what a C compiler makes of the real header and against generated bindings.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::mem::{align_of, offset_of, size_of};
use std::path::Path;

use cuda_sys::*;
use cudarc::driver::sys;

use super::compiler;

/// The size of a field, from a function that picks it.
const fn field<S, F>(_: fn(&S) -> &F) -> u64 {
    size_of::<F>() as u64
}

macro_rules! structs {
    ($($ours:ident: $theirs:literal { $($field:ident: $name:literal),+ })+) => {
        /// Sizes and offsets as they are here.
        fn ours() -> BTreeMap<String, u64> {
            let mut numbers = BTreeMap::new();
            $(
                // A field that the table forgets does not compile.
                let _ = |value: $ours| { let $ours { $($field: _),+ } = value; };
                numbers.insert(concat!("size ", stringify!($ours)).to_owned(), size_of::<$ours>() as u64);
                numbers.insert(concat!("align ", stringify!($ours)).to_owned(), align_of::<$ours>() as u64);
                $(
                    let name = concat!(stringify!($ours), ".", $name);
                    numbers.insert(format!("offset {name}"), offset_of!($ours, $field) as u64);
                    numbers.insert(format!("size {name}"), field::<$ours, _>(|value| &value.$field));
                )+
            )+
            numbers
        }

        /// A program that prints them as they are in the header.
        fn theirs() -> String {
            let mut body = String::new();
            $(
                let (ours, theirs) = (stringify!($ours), $theirs);
                // A name for types that have none.
                write!(body, "{{ typedef {theirs} T;").unwrap();
                write!(body, "printf(\"size {ours} %zu\\n\", sizeof(T));").unwrap();
                write!(body, "printf(\"align {ours} %zu\\n\", _Alignof(T));").unwrap();
                $(
                    let name = $name;
                    write!(body, "printf(\"offset {ours}.{name} %zu\\n\", offsetof(T, {name}));").unwrap();
                    write!(body, "printf(\"size {ours}.{name} %zu\\n\", sizeof(((T *)0)->{name}));").unwrap();
                )+
                writeln!(body, "}}").unwrap();
            )+
            body
        }

        const STRUCTS: &[&str] = &[$(stringify!($ours)),+];
    };
}

structs! {
    MemLocation: "CUmemLocation" { kind: "type", id: "id" }
    AllocationProp: "CUmemAllocationProp" {
        kind: "type", requested_handle_types: "requestedHandleTypes", location: "location",
        win32_handle_meta_data: "win32HandleMetaData", alloc_flags: "allocFlags"
    }
    AllocFlags: "__typeof__(((CUmemAllocationProp *)0)->allocFlags)" {
        compression_type: "compressionType", gpu_direct_rdma_capable: "gpuDirectRDMACapable", usage: "usage",
        reserved: "reserved"
    }
    AccessDesc: "CUmemAccessDesc" { location: "location", flags: "flags" }
    MemPoolProps: "CUmemPoolProps" {
        alloc_type: "allocType", handle_types: "handleTypes", location: "location",
        win32_security_attributes: "win32SecurityAttributes", max_size: "maxSize", usage: "usage", reserved: "reserved"
    }
    ArrayMapInfo: "CUarrayMapInfo" {
        resource_type: "resourceType", resource: "resource", subresource_type: "subresourceType",
        subresource: "subresource", mem_operation_type: "memOperationType", mem_handle_type: "memHandleType",
        mem_handle: "memHandle", offset: "offset", device_bit_mask: "deviceBitMask", flags: "flags",
        reserved: "reserved"
    }
    MulticastObjectProp: "CUmulticastObjectProp" {
        num_devices: "numDevices", size: "size", handle_types: "handleTypes", flags: "flags"
    }
    LaunchConfig: "CUlaunchConfig" {
        grid_dim_x: "gridDimX", grid_dim_y: "gridDimY", grid_dim_z: "gridDimZ", block_dim_x: "blockDimX",
        block_dim_y: "blockDimY", block_dim_z: "blockDimZ", shared_mem_bytes: "sharedMemBytes", stream: "hStream",
        attrs: "attrs", num_attrs: "numAttrs"
    }
    ArrayDescriptor: "CUDA_ARRAY_DESCRIPTOR" {
        width: "Width", height: "Height", format: "Format", num_channels: "NumChannels"
    }
    Memcpy2D: "CUDA_MEMCPY2D" {
        src_x: "srcXInBytes", src_y: "srcY", src_kind: "srcMemoryType", src_host: "srcHost",
        src_device: "srcDevice", src_array: "srcArray", src_pitch: "srcPitch", dst_x: "dstXInBytes", dst_y: "dstY",
        dst_kind: "dstMemoryType", dst_host: "dstHost", dst_device: "dstDevice", dst_array: "dstArray",
        dst_pitch: "dstPitch", width: "WidthInBytes", height: "Height"
    }
    Memcpy3D: "CUDA_MEMCPY3D" {
        src_x: "srcXInBytes", src_y: "srcY", src_z: "srcZ", src_lod: "srcLOD", src_kind: "srcMemoryType",
        src_host: "srcHost", src_device: "srcDevice", src_array: "srcArray", src_context: "reserved0", src_pitch: "srcPitch",
        src_height: "srcHeight", dst_x: "dstXInBytes", dst_y: "dstY", dst_z: "dstZ", dst_lod: "dstLOD",
        dst_kind: "dstMemoryType", dst_host: "dstHost", dst_device: "dstDevice", dst_array: "dstArray",
        dst_context: "reserved1", dst_pitch: "dstPitch", dst_height: "dstHeight", width: "WidthInBytes", height: "Height",
        depth: "Depth"
    }
    Memcpy3DPeer: "CUDA_MEMCPY3D_PEER" {
        src_x: "srcXInBytes", src_y: "srcY", src_z: "srcZ", src_lod: "srcLOD", src_kind: "srcMemoryType",
        src_host: "srcHost", src_device: "srcDevice", src_array: "srcArray", src_context: "srcContext", src_pitch: "srcPitch",
        src_height: "srcHeight", dst_x: "dstXInBytes", dst_y: "dstY", dst_z: "dstZ", dst_lod: "dstLOD",
        dst_kind: "dstMemoryType", dst_host: "dstHost", dst_device: "dstDevice", dst_array: "dstArray",
        dst_context: "dstContext", dst_pitch: "dstPitch", dst_height: "dstHeight", width: "WidthInBytes", height: "Height",
        depth: "Depth"
    }
    IpcMemHandle: "CUipcMemHandle" { reserved: "reserved" }
    IpcEventHandle: "CUipcEventHandle" { reserved: "reserved" }
    Uuid: "CUuuid" { bytes: "bytes" }
    CheckpointLockArgs: "CUcheckpointLockArgs" {
        timeout_ms: "timeoutMs", reserved0: "reserved0", reserved1: "reserved1"
    }
    CheckpointCheckpointArgs: "CUcheckpointCheckpointArgs" { reserved: "reserved" }
    CheckpointGpuPair: "CUcheckpointGpuPair" { old: "oldUuid", new: "newUuid" }
    CheckpointRestoreArgs: "CUcheckpointRestoreArgs" {
        gpu_pairs: "gpuPairs", gpu_pairs_count: "gpuPairsCount", reserved: "reserved", reserved1: "reserved1"
    }
    CheckpointUnlockArgs: "CUcheckpointUnlockArgs" { reserved: "reserved" }
}

/// One enumeration of the header: its numbers here, by the header's names, and in the bindings.
struct Enumeration {
    name: &'static str,
    values: &'static [(&'static str, &'static str, u32)],
    bindings: fn() -> Vec<u32>,
}

macro_rules! enumerations {
    ($($ours:ident: $theirs:ident { $($value:ident = $name:ident),+ $(,)? })+) => {
        const ENUMERATIONS: &[Enumeration] = &[$(
            Enumeration {
                name: stringify!($ours),
                values: &[$((stringify!($value), stringify!($name), $ours::$value.0)),+],
                bindings: || vec![$(number(sys::$theirs::$name)),+],
            },
        )+];
    };
}

/// A number of the bindings, which are enumerations of Rust or transparent numbers.
fn number<T>(value: T) -> u32 {
    assert_eq!(size_of::<T>(), 4);
    // SAFETY: four bytes that make a valid number, whatever they are.
    unsafe { std::mem::transmute_copy(&value) }
}

enumerations! {
    AllocationType: CUmemAllocationType {
        PINNED = CU_MEM_ALLOCATION_TYPE_PINNED,
        MANAGED = CU_MEM_ALLOCATION_TYPE_MANAGED,
    }
    HandleType: CUmemAllocationHandleType {
        NONE = CU_MEM_HANDLE_TYPE_NONE,
        POSIX_FD = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        FABRIC = CU_MEM_HANDLE_TYPE_FABRIC,
    }
    LocationType: CUmemLocationType {
        NONE = CU_MEM_LOCATION_TYPE_NONE,
        DEVICE = CU_MEM_LOCATION_TYPE_DEVICE,
        HOST = CU_MEM_LOCATION_TYPE_HOST,
        HOST_NUMA = CU_MEM_LOCATION_TYPE_HOST_NUMA,
        HOST_NUMA_CURRENT = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT,
    }
    AccessFlags: CUmemAccess_flags {
        NONE = CU_MEM_ACCESS_FLAGS_PROT_NONE,
        READ = CU_MEM_ACCESS_FLAGS_PROT_READ,
        READ_WRITE = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    }
    GranularityFlags: CUmemAllocationGranularity_flags {
        MINIMUM = CU_MEM_ALLOC_GRANULARITY_MINIMUM,
        RECOMMENDED = CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
    }
    ArrayFormat: CUarray_format {
        UNSIGNED_INT8 = CU_AD_FORMAT_UNSIGNED_INT8,
        UNSIGNED_INT16 = CU_AD_FORMAT_UNSIGNED_INT16,
        UNSIGNED_INT32 = CU_AD_FORMAT_UNSIGNED_INT32,
        FLOAT = CU_AD_FORMAT_FLOAT,
    }
    MemoryType: CUmemorytype {
        HOST = CU_MEMORYTYPE_HOST,
        DEVICE = CU_MEMORYTYPE_DEVICE,
        ARRAY = CU_MEMORYTYPE_ARRAY,
        UNIFIED = CU_MEMORYTYPE_UNIFIED,
    }
    DeviceAttribute: CUdevice_attribute {
        UNIFIED_ADDRESSING = CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING,
        COMPUTE_CAPABILITY_MAJOR = CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
        COMPUTE_CAPABILITY_MINOR = CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        HANDLE_TYPE_POSIX_FD_SUPPORTED = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
        GPU_DIRECT_RDMA_WITH_VMM_SUPPORTED = CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
        MEMORY_POOLS_SUPPORTED = CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
        HANDLE_TYPE_FABRIC_SUPPORTED = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
        MULTICAST_SUPPORTED = CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
        HOST_NUMA_ID = CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID,
        HOST_NUMA_VMM_SUPPORTED = CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        HOST_VMM_SUPPORTED = CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    }
}

macro_rules! values {
    ($($ours:ident $(::$member:ident)? = $theirs:ident;)+) => {
        /// Constants that stand for themselves, and those that the bindings lack.
        const VALUES: &[(&str, &str, u64)] = &[$(
            (
                concat!(stringify!($ours) $(, "::", stringify!($member))?),
                stringify!($theirs),
                values!(@ $ours $(::$member)?),
            ),
        )+];
    };
    (@ $ours:ident::$member:ident) => { $ours::$member.0 as u64 };
    (@ $ours:ident) => { $ours as u64 };
}

values! {
    ProcessState::RUNNING = CU_PROCESS_STATE_RUNNING;
    ProcessState::LOCKED = CU_PROCESS_STATE_LOCKED;
    ProcessState::CHECKPOINTED = CU_PROCESS_STATE_CHECKPOINTED;
    ProcessState::FAILED = CU_PROCESS_STATE_FAILED;
    CAPTURE_STATUS_NONE = CU_STREAM_CAPTURE_STATUS_NONE;
    CAPTURE_STATUS_ACTIVE = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    GET_PROC_ADDRESS_LEGACY_STREAM = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    IPC_HANDLE_SIZE = CU_IPC_HANDLE_SIZE;
    MEM_OPERATION_MAP = CU_MEM_OPERATION_TYPE_MAP;
    MEM_OPERATION_UNMAP = CU_MEM_OPERATION_TYPE_UNMAP;
    MEM_HANDLE_TYPE_GENERIC = CU_MEM_HANDLE_TYPE_GENERIC;
}

/// Our own mark for "no handle": the driver has no name for it.
const WITHOUT_A_NAME: &[&str] = &["MemHandle::NONE"];

#[test]
fn every_struct_has_the_layout_of_the_header() {
    let (ours, theirs) = (ours(), compiler::numbers(&theirs()));
    for (name, number) in &ours {
        assert_eq!(theirs.get(name), Some(number), "{name}");
    }
    assert_eq!(ours.len(), theirs.len());
}

/// Every constant here, and the header's name of it.
fn constants() -> Vec<(String, &'static str, u64)> {
    let plain = VALUES.iter().map(|(ours, theirs, number)| ((*ours).to_owned(), *theirs, *number));
    let enumerated = ENUMERATIONS.iter().flat_map(|enumeration| {
        let named = |(ours, theirs, number): &(&str, &'static str, u32)| {
            (format!("{}::{ours}", enumeration.name), *theirs, u64::from(*number))
        };
        enumeration.values.iter().map(named)
    });
    plain.chain(enumerated).collect()
}

#[test]
fn every_constant_has_the_number_of_the_header() {
    let mut body = String::new();
    for (_, theirs, _) in constants() {
        writeln!(body, "printf(\"{theirs} %lld\\n\", (long long)({theirs}));").unwrap();
    }
    let numbers = compiler::numbers(&body);
    for (ours, theirs, number) in constants() {
        assert_eq!(numbers.get(theirs), Some(&number), "{ours} is {theirs}");
    }
}

#[test]
fn every_enumeration_has_the_numbers_of_the_bindings() {
    for enumeration in ENUMERATIONS {
        let ours: Vec<u32> = enumeration.values.iter().map(|(.., number)| *number).collect();
        assert_eq!(ours, (enumeration.bindings)(), "{}", enumeration.name);
    }
}

/// What the tables above leave out would be held against nothing.
#[test]
fn every_struct_and_constant_of_the_crate_is_in_the_tables() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/types");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    let sources: Vec<String> = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let mut of_type = None;
    for line in sources.iter().flat_map(|source| source.lines()) {
        let words: Vec<&str> = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
        match words.as_slice() {
            // A struct with fields, at the left margin.
            ["pub", "struct", name, ..] if line.ends_with('{') => {
                assert!(STRUCTS.contains(name), "the layout of {name} is held against nothing");
            }
            ["pub", "const", name, ..] => check_constant(name),
            // `    HandleType(u32) {` and below it `        POSIX_FD = 1,`
            ["", "", "", "", name, ..] if line.ends_with(") {") => of_type = Some(*name),
            ["", "", "", "", "", "", "", "", name, ..] if line.contains(" = ") && line.ends_with(',') => {
                check_constant(&format!("{}::{name}", of_type.expect("a value belongs to a type")));
            }
            _ => {}
        }
    }
}

fn check_constant(name: &str) {
    let known = constants().iter().any(|(ours, ..)| ours == name) || WITHOUT_A_NAME.contains(&name);
    assert!(known, "the number of {name} is held against nothing");
}

/// `CUDA_SUCCESS` is no error.
#[test]
fn the_errors_are_those_of_the_header() {
    let text = compiler::declarations();
    let (before, _) = text.split_once("} CUresult;").expect("the header has the errors");
    let (_, list) = before.rsplit_once('{').expect("an enumeration begins");
    let mut theirs = BTreeMap::new();
    for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let (name, number) = item.split_once('=').expect("each error has its number");
        theirs.insert(name.trim(), number.trim().parse::<u32>().expect("a number"));
    }
    assert_eq!(theirs.remove("CUDA_SUCCESS"), Some(0));
    let ours: BTreeMap<&str, u32> = ERRORS.iter().copied().collect();
    assert_eq!(ours, theirs);
    assert_eq!(ours.len(), ERRORS.len());
}

macro_rules! bindings {
    ($($ours:ident: $theirs:ident { $($field:ident: $name:ident),+ })+) => {
        #[test]
        fn the_layouts_are_those_of_the_bindings() {
            $(
                assert_eq!(size_of::<$ours>(), size_of::<sys::$theirs>(), stringify!($ours));
                assert_eq!(align_of::<$ours>(), align_of::<sys::$theirs>(), stringify!($ours));
                $(
                    let name = concat!(stringify!($ours), ".", stringify!($field));
                    assert_eq!(offset_of!($ours, $field), offset_of!(sys::$theirs, $name), "{name}");
                    let (our, their) =
                        (field::<$ours, _>(|value| &value.$field), field::<sys::$theirs, _>(|value| &value.$name));
                    assert_eq!(our, their, "{name}");
                )+
            )+
        }
    };
}

// The bindings lack the structs of the checkpoint API, but for the pairs.
bindings! {
    MemLocation: CUmemLocation { kind: type_, id: id }
    AllocationProp: CUmemAllocationProp {
        kind: type_, requested_handle_types: requestedHandleTypes, location: location,
        win32_handle_meta_data: win32HandleMetaData, alloc_flags: allocFlags
    }
    AccessDesc: CUmemAccessDesc { location: location, flags: flags }
    MemPoolProps: CUmemPoolProps {
        alloc_type: allocType, handle_types: handleTypes, location: location,
        win32_security_attributes: win32SecurityAttributes, max_size: maxSize, usage: usage, reserved: reserved
    }
    ArrayMapInfo: CUarrayMapInfo {
        resource_type: resourceType, resource: resource, subresource_type: subresourceType,
        subresource: subresource, mem_operation_type: memOperationType, mem_handle_type: memHandleType,
        mem_handle: memHandle, offset: offset, device_bit_mask: deviceBitMask, flags: flags, reserved: reserved
    }
    MulticastObjectProp: CUmulticastObjectProp {
        num_devices: numDevices, size: size, handle_types: handleTypes, flags: flags
    }
    LaunchConfig: CUlaunchConfig {
        grid_dim_x: gridDimX, grid_dim_y: gridDimY, grid_dim_z: gridDimZ, block_dim_x: blockDimX,
        block_dim_y: blockDimY, block_dim_z: blockDimZ, shared_mem_bytes: sharedMemBytes, stream: hStream,
        attrs: attrs, num_attrs: numAttrs
    }
    IpcMemHandle: CUipcMemHandle { reserved: reserved }
    IpcEventHandle: CUipcEventHandle { reserved: reserved }
    Uuid: CUuuid { bytes: bytes }
    CheckpointGpuPair: CUcheckpointGpuPair { old: oldUuid, new: newUuid }
}

#[test]
fn an_error_knows_its_name() {
    for (name, value) in ERRORS {
        let error = CuError::from_raw(*value).expect("an error");
        assert_eq!(error.name(), Some(*name));
    }
    assert_eq!(CuError::from_raw(0), None);
}
