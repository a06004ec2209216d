//! Calls that nobody stands in front of and the programs use: written out here, since the list has only their names.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use cuda_sys::*;

use super::call::functions;
use super::road::find;

functions! {
    pass plain fn cuDriverGetVersion(version: *mut c_int);
    pass plain fn cuDeviceGetCount(count: *mut c_int);
    pass plain fn cuDeviceGet(device: *mut Device, ordinal: c_int);
    pass plain fn cuDeviceCanAccessPeer(can: *mut c_int, device: Device, peer: Device);
    pass plain fn cuMemGetAllocationGranularity(size: *mut usize, prop: *const AllocationProp, flags: GranularityFlags);
    pass plain fn cuCheckpointProcessLock(pid: c_int, args: *mut CheckpointLockArgs);
    pass plain fn cuCheckpointProcessCheckpoint(pid: c_int, args: *mut CheckpointCheckpointArgs);
    pass plain fn cuCheckpointProcessRestore(pid: c_int, args: *mut CheckpointRestoreArgs);
    pass plain fn cuCheckpointProcessUnlock(pid: c_int, args: *mut CheckpointUnlockArgs);
    pass plain fn cuCheckpointProcessGetState(pid: c_int, state: *mut ProcessState);
}
