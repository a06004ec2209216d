//! The built library, loaded in this process, with its functions under their own names.

#![allow(non_snake_case, reason = "the driver's own names")]
#![allow(clippy::too_many_arguments, reason = "the driver's own signatures")]

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use cuda_sys::*;

/// The variable that tells the processes of a test which library to load.
pub(crate) const LIBRARY: &str = "FAKECUDA_TEST_LIBRARY";

/// The library: that of the folder `NVSNAP_ARTIFACTS`, laid out as `make dist` does it, or else cargo's, which is built
/// first: cargo does not build a library for tests that are not linked with it.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        if let Some(dist) = std::env::var_os("NVSNAP_ARTIFACTS") {
            return Path::new(&dist).join("fakecuda/libcuda.so.1");
        }
        let built = Command::new(env!("CARGO"))
            .args([
                "build",
                "--quiet",
                "--lib",
                "--manifest-path",
                concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
            ])
            .status();
        assert!(built.unwrap().success());
        let program = std::env::current_exe().unwrap();
        program.ancestors().nth(2).unwrap().join("libcuda.so")
    })
}

fn handle() -> *mut c_void {
    static HANDLE: OnceLock<usize> = OnceLock::new();
    let handle = HANDLE.get_or_init(|| {
        let path = std::env::var(LIBRARY).map_or_else(|_| library().to_owned(), PathBuf::from);
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a library of our own without constructors.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{path:?} does not load");
        handle.expose_provenance()
    });
    std::ptr::with_exposed_provenance_mut(*handle)
}

/// The address of an exported symbol, or null.
pub(crate) fn symbol(name: &str) -> *mut c_void {
    let name = CString::new(name).unwrap();
    // SAFETY: an open library and a C string.
    unsafe { libc::dlsym(handle(), name.as_ptr()) }
}

macro_rules! functions {
    ($($class:ident $family:ident fn $name:ident($($arg:ident: $ty:ty),*) $(on $($on:ident).+)?;)*) => {$(
        /// The library's function. Pointers are the test's own, or ones that have to be refused.
        pub(crate) fn $name($($arg: $ty),*) -> CuResult {
            let address = symbol(stringify!($name));
            assert!(!address.is_null(), concat!(stringify!($name), " is not exported"));
            // SAFETY: the exported function of this name has this signature.
            let function: unsafe extern "C" fn($($ty),*) -> CuResult = unsafe { std::mem::transmute(address) };
            // SAFETY: see above.
            unsafe { function($($arg),*) }
        }
    )*};
}

#[allow(dead_code, reason = "every function of the list has its caller here")]
mod all {
    use super::*;
    cuda_sys::for_each_call!(functions);
    functions! {
        pass pass fn cuCheckpointProcessCheckpoint(pid: c_int, args: *mut CheckpointCheckpointArgs);
        pass pass fn cuCheckpointProcessGetRestoreThreadId(pid: c_int, tid: *mut c_int);
        pass pass fn cuCheckpointProcessGetState(pid: c_int, state: *mut ProcessState);
        pass pass fn cuCheckpointProcessLock(pid: c_int, args: *mut CheckpointLockArgs);
        pass pass fn cuCheckpointProcessRestore(pid: c_int, args: *mut CheckpointRestoreArgs);
        pass pass fn cuCheckpointProcessUnlock(pid: c_int, args: *mut CheckpointUnlockArgs);
        pass pass fn cuDeviceGet(device: *mut Device, ordinal: c_int);
        pass pass fn cuDeviceGetCount(count: *mut c_int);
        pass pass fn cuDeviceGetUuid(uuid: *mut Uuid, dev: Device);
        pass pass fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: Device);
        pass pass fn cuDriverGetVersion(version: *mut c_int);
        pass pass fn cuFuncGetParamInfo(function: Function, index: usize, offset: *mut usize, size: *mut usize);
        pass pass fn cuGetErrorName(error: c_uint, text: *mut *const c_char);
        pass pass fn cuGetExportTable(table: *mut *const c_void, id: *const Uuid);
        pass pass fn cuGraphGetNodes(graph: Graph, nodes: *mut GraphNode, count: *mut usize);
        pass pass fn cuMemGetAllocationGranularity(granularity: *mut usize, prop: *const AllocationProp, option: GranularityFlags);
        pass pass fn cuTensorMapReplaceAddress();
    }
}

pub(crate) use all::*;
