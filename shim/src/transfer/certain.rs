//! Taking things apart so that afterwards it is certain what the driver has.
//!
//! A call that answers with an error may have done its work all the same. All of these may be asked twice: a range
//! without mappings is unmapped without complaint, a handle that was given back is refused with `INVALID_VALUE`, and
//! host memory that is not registered with an error of its own (580.159.04). Handles are given back by one thread, while
//! nobody makes any, so the handle's value has not come back to life; a range belongs to one lane.

use core::ffi::c_void;

use cuda_sys::{CuError, Device, DevicePtr, MemHandle, Stream};

use super::TransferError;
use crate::driver::real;

/// Unmaps whole mappings. After an error they are still there.
pub(crate) fn unmap(address: DevicePtr, len: usize) -> Result<(), TransferError> {
    // SAFETY: the caller's range, in which no work is under way.
    let ask = || unsafe { real::cuMemUnmap(address, len) };
    // The first error is the cause.
    ask().or_else(|error| ask().map_err(|_| error)).map_err(TransferError::driver("cuMemUnmap"))
}

/// Gives a real handle back. After an error the driver still has it.
pub(crate) fn release(handle: MemHandle) -> Result<(), TransferError> {
    // SAFETY: the caller's handle, which nobody uses.
    let ask = || unsafe { real::cuMemRelease(handle) };
    match ask() {
        Err(error) if error != CuError::INVALID_VALUE => match ask() {
            Ok(()) | Err(CuError::INVALID_VALUE) => Ok(()),
            Err(_) => Err(error),
        },
        outcome => outcome,
    }
    .map_err(TransferError::driver("cuMemRelease"))
}

/// Waits until the work of a stream of ours has ended, also where the driver says that something went wrong: what is done
/// next takes the memory away that the work uses.
pub(super) fn wait(stream: Stream) -> Result<(), TransferError> {
    // SAFETY: a stream of the caller's, or the default one.
    let ask = || unsafe { real::cuStreamSynchronize(stream) };
    let waited = ask();
    if waited.is_err() {
        // The first error is the cause.
        let _ = ask();
    }
    waited.map_err(TransferError::driver("cuStreamSynchronize"))
}

/// Ends a binding of memory to a multicast object. After an error it is still there.
pub(crate) fn unbind(object: MemHandle, device: Device, at: usize, len: usize) -> Result<(), TransferError> {
    // SAFETY: the caller's handle, and a range in which no work is under way.
    let ask = || unsafe { real::cuMulticastUnbind(object, device, at, len) };
    match ask() {
        Ok(()) => Ok(()),
        // Where nothing is bound any more the driver says so.
        Err(error) => match ask() {
            Ok(()) | Err(CuError::INVALID_VALUE) => Ok(()),
            Err(_) => Err(error),
        },
    }
    .map_err(TransferError::driver("cuMulticastUnbind"))
}

/// Ends a registration of host memory, made in the current context. After an error it is still there. `false` where
/// there was none.
pub(crate) fn unregister(start: *mut c_void) -> Result<bool, TransferError> {
    // SAFETY: the caller's range, which no work uses.
    let ask = || unsafe { real::cuMemHostUnregister(start) };
    match ask() {
        Ok(()) => Ok(true),
        Err(CuError::HOST_MEMORY_NOT_REGISTERED) => Ok(false),
        Err(error) => match ask() {
            Ok(()) | Err(CuError::HOST_MEMORY_NOT_REGISTERED) => Ok(true),
            Err(_) => Err(error),
        },
    }
    .map_err(TransferError::driver("cuMemHostUnregister"))
}
