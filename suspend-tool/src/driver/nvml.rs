//! Free memory of a GPU from the management library, which needs no context on it.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::null_mut;

use cuda_sys::Uuid;

use super::library::Library;

type Init = unsafe extern "C" fn() -> c_int;
type ByUuid = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
type MemoryInfo = unsafe extern "C" fn(*mut c_void, *mut Memory) -> c_int;

/// `nvmlMemory_t`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// The management library, where it is installed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nvml {
    by_uuid: ByUuid,
    memory_info: MemoryInfo,
}

impl Nvml {
    /// Loads and initialises it; without it there is another way.
    pub(super) fn open() -> Option<Self> {
        let library = Library::open(c"libnvidia-ml.so.1").ok()?;
        // SAFETY: the function of this name has this type (`nvml.h`).
        let init: Init = unsafe { library.symbol(c"nvmlInit_v2") }?;
        // SAFETY: as above.
        let by_uuid: ByUuid = unsafe { library.symbol(c"nvmlDeviceGetHandleByUUID") }?;
        // SAFETY: as above.
        let memory_info: MemoryInfo = unsafe { library.symbol(c"nvmlDeviceGetMemoryInfo") }?;
        // SAFETY: takes nothing.
        let answer = unsafe { init() };
        (answer == 0).then_some(Self { by_uuid, memory_info })
    }

    /// Free bytes of the GPU with this UUID, or `None` where the library does not know it.
    pub(super) fn free(&self, uuid: Uuid) -> Option<u64> {
        let name = CString::new(uuid.to_string()).ok()?;
        let mut device = null_mut();
        // SAFETY: a C string, and a place for the handle.
        let found = unsafe { (self.by_uuid)(name.as_ptr(), &raw mut device) };
        if found != 0 {
            return None;
        }
        let mut memory = Memory::default();
        // SAFETY: a handle the library just gave, and the structure it fills.
        let answer = unsafe { (self.memory_info)(device, &raw mut memory) };
        (answer == 0).then_some(memory.free)
    }
}
