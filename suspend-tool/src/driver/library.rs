//! The real driver: `libcuda.so.1`, loaded when it is needed.
//!
//! `cuInit` is called once, when the library is opened. All calls may be made from any thread.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::time::Duration;

use cuda_sys::{
    CheckpointCheckpointArgs, CheckpointGpuPair, CheckpointLockArgs, CheckpointRestoreArgs,
    CheckpointUnlockArgs, Context, CuError, CuResult, Device, ProcessState, Uuid,
};

use super::limit::within;
use super::nvml::Nvml;
use super::{CheckpointCall, Driver, DriverError, Gpu};
use crate::pid::Pid;

/// Names another file to load in place of `libcuda.so.1`.
pub const LIBRARY_VARIABLE: &str = "NVSNAP_GPU_SUSPEND_LIBCUDA";

/// A loaded shared library. It is never unloaded: the driver keeps threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Library(NonNull<c_void>);

// SAFETY: a handle of the loader may be used from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Loads a library; the error is the loader's own text.
    pub(super) fn open(name: &CStr) -> Result<Self, String> {
        // SAFETY: `name` is a C string. The constructors of a driver's library do nothing that this program,
        // which has no state of its own they could touch, would have to guard against.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(Self).ok_or_else(|| {
            // SAFETY: no argument; the answer is null or a C string that lives until the next call of the loader.
            let text = unsafe { libc::dlerror() };
            if text.is_null() {
                return "the loader gave no reason".to_owned();
            }
            // SAFETY: not null, hence a C string.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        })
    }

    /// The address of a symbol as a function of type `F`, which must be a function pointer.
    ///
    /// # Safety
    /// The symbol must be a function of that type.
    pub(super) unsafe fn symbol<F: Copy>(self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: the handle is open and `name` is a C string.
        let address = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        if address.is_null() {
            return None;
        }
        // SAFETY: `F` has the size of an address, and the caller says that the address is such a function.
        Some(unsafe { std::mem::transmute_copy(&address) })
    }
}

macro_rules! calls {
    ($($name:ident = $symbol:literal: fn($($argument:ty),*);)+) => {
        /// What we call of the driver; each may be missing in an older one.
        #[derive(Clone, Copy, Debug)]
        struct Calls {
            $($name: Option<unsafe extern "C" fn($($argument),*) -> CuResult>,)+
        }

        impl Calls {
            fn of(library: Library) -> Self {
                Self {
                    // SAFETY: the driver's function of this name has this type (`cuda.h`).
                    $($name: unsafe { library.symbol($symbol) },)+
                }
            }
        }
    };
}

calls! {
    init = c"cuInit": fn(c_uint);
    driver_version = c"cuDriverGetVersion": fn(*mut c_int);
    device_count = c"cuDeviceGetCount": fn(*mut c_int);
    device = c"cuDeviceGet": fn(*mut Device, c_int);
    device_name = c"cuDeviceGetName": fn(*mut c_char, c_int, Device);
    device_uuid = c"cuDeviceGetUuid_v2": fn(*mut Uuid, Device);
    device_uuid_v1 = c"cuDeviceGetUuid": fn(*mut Uuid, Device);
    total_mem = c"cuDeviceTotalMem_v2": fn(*mut usize, Device);
    retain = c"cuDevicePrimaryCtxRetain": fn(*mut Context, Device);
    release = c"cuDevicePrimaryCtxRelease_v2": fn(Device);
    push = c"cuCtxPushCurrent_v2": fn(Context);
    pop = c"cuCtxPopCurrent_v2": fn(*mut Context);
    mem_info = c"cuMemGetInfo_v2": fn(*mut usize, *mut usize);
    get_state = c"cuCheckpointProcessGetState": fn(c_int, *mut ProcessState);
    lock = c"cuCheckpointProcessLock": fn(c_int, *mut CheckpointLockArgs);
    checkpoint = c"cuCheckpointProcessCheckpoint": fn(c_int, *mut CheckpointCheckpointArgs);
    restore = c"cuCheckpointProcessRestore": fn(c_int, *mut CheckpointRestoreArgs);
    unlock = c"cuCheckpointProcessUnlock": fn(c_int, *mut CheckpointUnlockArgs);
    restore_thread = c"cuCheckpointProcessGetRestoreThreadId": fn(c_int, *mut c_int);
}

/// How long the driver may take to begin: it wakes GPUs that sleep.
const BEGINNING: Duration = Duration::from_secs(120);
/// How long a question about all GPUs may take; free memory may need a context on each.
const QUESTION: Duration = Duration::from_secs(60);

/// The driver of this machine.
#[derive(Clone, Copy, Debug)]
pub struct LibCuda {
    calls: Calls,
    version: i32,
    nvml: Option<Nvml>,
}

/// Asks a function that may be missing.
macro_rules! ask {
    ($self:ident.$name:ident($($argument:expr),*), $symbol:literal) => {{
        let function = $self
            .calls
            .$name
            .ok_or_else(|| DriverError::NoDriver { reason: concat!("it has no ", $symbol).to_owned() })?;
        // SAFETY: the driver's function; every pointer among the arguments is to a live variable of the right
        // type, which the driver may write until it returns.
        unsafe { function($($argument),*) }.map_err(|error| DriverError::Call { call: $symbol, error })?
    }};
}

impl LibCuda {
    /// Loads the driver and initialises it.
    pub fn open() -> Result<Self, DriverError> {
        within(BEGINNING, "cuInit", Self::begin)
    }

    fn begin() -> Result<Self, DriverError> {
        let replacement = std::env::var_os(LIBRARY_VARIABLE);
        let name = match &replacement {
            Some(path) => CString::new(path.as_encoded_bytes())
                .map_err(|_| DriverError::NoDriver { reason: format!("{LIBRARY_VARIABLE} is no path") })?,
            None => c"libcuda.so.1".to_owned(),
        };
        let library = Library::open(&name).map_err(|reason| DriverError::NoDriver { reason })?;
        let mut driver = Self { calls: Calls::of(library), version: 0, nvml: None };
        ask!(driver.init(0), "cuInit");
        let mut version = 0;
        ask!(driver.driver_version(&raw mut version), "cuDriverGetVersion");
        driver.version = version;
        // The management library tells about memory without a context, which costs time and memory itself.
        driver.nvml = Nvml::open();
        Ok(driver)
    }

    fn device_at(&self, ordinal: c_int) -> Result<Device, DriverError> {
        let mut device = Device::default();
        ask!(self.device(&raw mut device, ordinal), "cuDeviceGet");
        Ok(device)
    }

    fn count(&self) -> Result<c_int, DriverError> {
        let mut count = 0;
        ask!(self.device_count(&raw mut count), "cuDeviceGetCount");
        Ok(count)
    }

    fn uuid_of(&self, device: Device) -> Result<Uuid, DriverError> {
        let mut uuid = Uuid::default();
        if self.calls.device_uuid.is_some() {
            ask!(self.device_uuid(&raw mut uuid, device), "cuDeviceGetUuid_v2");
        } else {
            ask!(self.device_uuid_v1(&raw mut uuid, device), "cuDeviceGetUuid");
        }
        Ok(uuid)
    }

    fn gpus_now(&self) -> Result<Vec<Gpu>, DriverError> {
        (0..self.count()?)
            .map(|ordinal| {
                let device = self.device_at(ordinal)?;
                let mut name = [0_u8; 256];
                ask!(self.device_name(name.as_mut_ptr().cast(), 256, device), "cuDeviceGetName");
                let mut total = 0_usize;
                ask!(self.total_mem(&raw mut total, device), "cuDeviceTotalMem_v2");
                let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
                Ok(Gpu {
                    uuid: self.uuid_of(device)?,
                    name: name.to_string_lossy().into_owned(),
                    total: total as u64,
                })
            })
            .collect()
    }

    fn free_now(&self) -> Result<Vec<u64>, DriverError> {
        (0..self.count()?)
            .map(|ordinal| {
                let device = self.device_at(ordinal)?;
                let uuid = self.uuid_of(device)?;
                match self.nvml.as_ref().and_then(|nvml| nvml.free(uuid)) {
                    Some(free) => Ok(free),
                    None => self.free_by_context(device),
                }
            })
            .collect()
    }

    /// Free bytes of a device by way of a context, where the management library does not know the device.
    fn free_by_context(&self, device: Device) -> Result<u64, DriverError> {
        let mut context = Context::NULL;
        ask!(self.retain(&raw mut context, device), "cuDevicePrimaryCtxRetain");
        let free = self.free_in(context);
        ask!(self.release(device), "cuDevicePrimaryCtxRelease_v2");
        free
    }

    fn free_in(&self, context: Context) -> Result<u64, DriverError> {
        ask!(self.push(context), "cuCtxPushCurrent_v2");
        let (mut free, mut total) = (0_usize, 0_usize);
        let asked = (|| {
            ask!(self.mem_info(&raw mut free, &raw mut total), "cuMemGetInfo_v2");
            Ok(())
        })();
        let mut popped = Context::NULL;
        ask!(self.pop(&raw mut popped), "cuCtxPopCurrent_v2");
        asked.map(|()| free as u64)
    }

    fn about<A>(
        &self,
        call: CheckpointCall,
        function: Option<unsafe extern "C" fn(c_int, *mut A) -> CuResult>,
        pid: Pid,
        arguments: &mut A,
    ) -> Result<(), DriverError> {
        let function =
            function.ok_or(DriverError::TooOld { symbol: call.symbol(), version: self.version })?;
        // SAFETY: the driver's function of this name; `arguments` is the structure it takes and outlives the call.
        unsafe { function(pid.number(), arguments) }.map_err(|error| DriverError::Checkpoint {
            call,
            pid,
            error,
        })
    }
}

impl Driver for LibCuda {
    fn version(&self) -> i32 {
        self.version
    }

    fn can_checkpoint(&self) -> Result<(), DriverError> {
        let there = [
            (CheckpointCall::GetState, self.calls.get_state.is_some()),
            (CheckpointCall::Lock, self.calls.lock.is_some()),
            (CheckpointCall::Checkpoint, self.calls.checkpoint.is_some()),
            (CheckpointCall::Restore, self.calls.restore.is_some()),
            (CheckpointCall::Unlock, self.calls.unlock.is_some()),
            (CheckpointCall::RestoreThread, self.calls.restore_thread.is_some()),
        ];
        match there.iter().find(|(_, there)| !there) {
            Some((call, _)) => Err(DriverError::TooOld { symbol: call.symbol(), version: self.version }),
            None => Ok(()),
        }
    }

    fn gpus(&self) -> Result<Vec<Gpu>, DriverError> {
        let driver = *self;
        within(QUESTION, "cuDeviceGetName", move || driver.gpus_now())
    }

    fn free(&self) -> Result<Vec<u64>, DriverError> {
        let driver = *self;
        within(QUESTION, "cuMemGetInfo_v2", move || driver.free_now())
    }

    fn state(&self, pid: Pid) -> Result<ProcessState, DriverError> {
        let mut state = ProcessState::RUNNING;
        self.about(CheckpointCall::GetState, self.calls.get_state, pid, &mut state)?;
        Ok(state)
    }

    fn lock(&self, pid: Pid, timeout_ms: u32) -> Result<(), DriverError> {
        // Zero would wait without bound.
        let mut arguments = CheckpointLockArgs { timeout_ms: timeout_ms.max(1), ..Default::default() };
        self.about(CheckpointCall::Lock, self.calls.lock, pid, &mut arguments)
    }

    fn checkpoint(&self, pid: Pid) -> Result<(), DriverError> {
        let mut arguments = CheckpointCheckpointArgs::default();
        self.about(CheckpointCall::Checkpoint, self.calls.checkpoint, pid, &mut arguments)
    }

    fn restore(&self, pid: Pid, pairs: &[CheckpointGpuPair]) -> Result<(), DriverError> {
        let mut pairs = pairs.to_vec();
        let mut arguments = CheckpointRestoreArgs::default();
        if !pairs.is_empty() {
            arguments.gpu_pairs = pairs.as_mut_ptr();
            arguments.gpu_pairs_count = c_uint::try_from(pairs.len()).map_err(|_| {
                DriverError::Checkpoint { call: CheckpointCall::Restore, pid, error: CuError::INVALID_VALUE }
            })?;
        }
        self.about(CheckpointCall::Restore, self.calls.restore, pid, &mut arguments)
    }

    fn unlock(&self, pid: Pid) -> Result<(), DriverError> {
        let mut arguments = CheckpointUnlockArgs::default();
        self.about(CheckpointCall::Unlock, self.calls.unlock, pid, &mut arguments)
    }

    fn restore_thread(&self, pid: Pid) -> Result<i32, DriverError> {
        let mut tid = 0;
        self.about(CheckpointCall::RestoreThread, self.calls.restore_thread, pid, &mut tid)?;
        Ok(tid)
    }
}
