//! Short forms of what many tests do.

use std::ffi::{CString, c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use cuda_sys::*;

use crate::cuda::*;

pub(crate) const MIB: usize = 1 << 20;
/// The granularity of `cuMemCreate`.
pub(crate) const GRANULE: usize = 2 * MIB;

static MODULE: OnceLock<Module> = OnceLock::new();

/// Initialises the driver and makes the primary context of a device current.
pub(crate) fn start_on(device: c_int) -> Context {
    cuInit(0).unwrap();
    let mut context = Context::NULL;
    cuDevicePrimaryCtxRetain(&raw mut context, Device(device)).unwrap();
    cuCtxSetCurrent(context).unwrap();
    MODULE.get_or_init(load);
    context
}

pub(crate) fn start() -> Context {
    start_on(0)
}

pub(crate) fn on(kind: LocationType, id: c_int) -> AllocationProp {
    AllocationProp {
        kind: AllocationType::PINNED,
        location: MemLocation { kind, id },
        ..AllocationProp::default()
    }
}

/// Properties of memory on a device.
pub(crate) fn device(id: c_int) -> AllocationProp {
    on(LocationType::DEVICE, id)
}

/// The same, exportable.
pub(crate) fn exportable(id: c_int) -> AllocationProp {
    AllocationProp { requested_handle_types: HandleType::POSIX_FD, ..device(id) }
}

pub(crate) fn create(size: usize, prop: AllocationProp) -> CuResult<MemHandle> {
    let mut handle = MemHandle::NONE;
    cuMemCreate(&raw mut handle, size, &raw const prop, 0).map(|()| handle)
}

pub(crate) fn reserve(size: usize) -> DevicePtr {
    let mut at = DevicePtr(0);
    cuMemAddressReserve(&raw mut at, size, 0, DevicePtr(0), 0).unwrap();
    at
}

/// Gives a device access.
pub(crate) fn grant(at: DevicePtr, size: usize, device: c_int, flags: AccessFlags) -> CuResult {
    let desc = AccessDesc { location: MemLocation { kind: LocationType::DEVICE, id: device }, flags };
    cuMemSetAccess(at, size, &raw const desc, 1)
}

/// Maps memory somewhere, for one device to read and write.
pub(crate) fn map(handle: MemHandle, size: usize, device: c_int) -> DevicePtr {
    let at = reserve(size);
    cuMemMap(at, size, 0, handle, 0).unwrap();
    grant(at, size, device, AccessFlags::READ_WRITE).unwrap();
    at
}

pub(crate) fn unmap(at: DevicePtr, size: usize) {
    cuMemUnmap(at, size).unwrap();
    cuMemAddressFree(at, size).unwrap();
}

pub(crate) fn export(handle: MemHandle) -> CuResult<OwnedFd> {
    let mut descriptor: c_int = -1;
    cuMemExportToShareableHandle((&raw mut descriptor).cast(), handle, HandleType::POSIX_FD, 0)?;
    // SAFETY: the library made it for the caller.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

pub(crate) fn import(descriptor: BorrowedFd<'_>) -> CuResult<MemHandle> {
    let mut handle = MemHandle::NONE;
    let number = usize::try_from(descriptor.as_raw_fd()).unwrap();
    cuMemImportFromShareableHandle(
        &raw mut handle,
        std::ptr::without_provenance_mut(number),
        HandleType::POSIX_FD,
    )
    .map(|()| handle)
}

pub(crate) fn alloc(size: usize) -> CuResult<DevicePtr> {
    let mut at = DevicePtr(0);
    cuMemAlloc_v2(&raw mut at, size).map(|()| at)
}

/// Bytes in use on the device of the current context.
pub(crate) fn used() -> usize {
    let (mut free, mut total) = (0, 0);
    cuMemGetInfo_v2(&raw mut free, &raw mut total).unwrap();
    total - free
}

pub(crate) fn write(at: DevicePtr, words: &[u32]) -> CuResult {
    cuMemcpyHtoD_v2(at, words.as_ptr().cast(), size_of_val(words))
}

pub(crate) fn read(at: DevicePtr, count: usize) -> CuResult<Vec<u32>> {
    let mut words = vec![0_u32; count];
    cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), at, count * 4).map(|()| words)
}

pub(crate) fn stream(flags: c_uint) -> Stream {
    let mut stream = Stream::NULL;
    cuStreamCreate(&raw mut stream, flags).unwrap();
    stream
}

/// A stream that the default stream does not wait for.
pub(crate) fn own_stream() -> Stream {
    stream(1)
}

pub(crate) fn event(flags: c_uint) -> Event {
    let mut event = Event::NULL;
    cuEventCreate(&raw mut event, flags).unwrap();
    event
}

pub(crate) fn load() -> Module {
    let mut module = Module::NULL;
    cuModuleLoadData(&raw mut module, c"image".as_ptr().cast()).unwrap();
    module
}

/// A kernel of the module that [`start`] loaded: to load one waits for work.
pub(crate) fn kernel(name: &str) -> Function {
    let module = *MODULE.get().unwrap();
    let mut function = Function::NULL;
    let name = CString::new(name).unwrap();
    cuModuleGetFunction(&raw mut function, module, name.as_ptr()).unwrap();
    function
}

/// Launches a kernel with arguments that each stand in 64 bits, of which a kernel reads what it wants.
pub(crate) fn launch(function: Function, stream: Stream, arguments: &[u64]) -> CuResult {
    let mut places: Vec<*mut c_void> =
        arguments.iter().map(|argument| std::ptr::from_ref(argument).cast_mut().cast()).collect();
    cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, places.as_mut_ptr(), std::ptr::null_mut())
}

/// The attribute of a pointer: operations on its memory that name no stream wait for their end.
pub(crate) const SYNC_MEMOPS: c_uint = 6;

/// Insists that operations of the default stream on `memory` return before they are done, and afterwards once it is memory whose
/// operations are to be waited for.
pub(crate) fn returns_early_unless_to_be_waited_for(memory: DevicePtr, operations: &[&dyn Fn() -> CuResult]) {
    let (flag, other) = (alloc(4).unwrap(), own_stream());
    for operation in operations {
        write(flag, &[0]).unwrap();
        launch(kernel("wait_flag"), Stream::NULL, &[flag.0, 1]).unwrap();
        operation().unwrap();
        assert_eq!(cuStreamQuery(Stream::NULL), Err(CuError::NOT_READY));
        cuStreamWriteValue32_v2(other, flag, 1, 0).unwrap();
        cuCtxSynchronize().unwrap();
    }
    let on = 1_u32;
    cuPointerSetAttribute((&raw const on).cast(), SYNC_MEMOPS, memory).unwrap();
    for operation in operations {
        launch(kernel("spin"), Stream::NULL, &[20_000_000]).unwrap();
        operation().unwrap();
        cuStreamQuery(Stream::NULL).unwrap();
    }
}

pub(crate) fn state(pid: c_int) -> CuResult<ProcessState> {
    let mut state = ProcessState(u32::MAX);
    cuCheckpointProcessGetState(pid, &raw mut state).map(|()| state)
}

pub(crate) fn lock(pid: c_int, timeout_ms: c_uint) -> CuResult {
    let mut args = CheckpointLockArgs { timeout_ms, ..CheckpointLockArgs::default() };
    cuCheckpointProcessLock(pid, &raw mut args)
}

pub(crate) fn checkpoint(pid: c_int) -> CuResult {
    cuCheckpointProcessCheckpoint(pid, std::ptr::null_mut())
}

pub(crate) fn restore(pid: c_int) -> CuResult {
    cuCheckpointProcessRestore(pid, std::ptr::null_mut())
}

pub(crate) fn unlock(pid: c_int) -> CuResult {
    cuCheckpointProcessUnlock(pid, std::ptr::null_mut())
}
