//! A context for a thread that makes driver calls for a verb.

use cuda_sys::{Context, Device};

use super::TransferError;
use crate::contexts;
use crate::driver::real;

/// A context of one device, current on this thread until dropped; then the thread's stack is as it was.
#[derive(Debug)]
pub(crate) struct Current {
    /// The primary context, held by us because the program has none on this device.
    retained: Option<Device>,
}

impl Current {
    /// A context of the program on `device`. Where it has none, the primary one for the time being: the gates are
    /// closed, so nobody sees it come and go.
    pub(super) fn on(device: Device) -> Result<Self, TransferError> {
        let known = contexts::all().into_iter().find(|known| known.device == device);
        let (context, retained) = match known {
            Some(known) => (known.context, None),
            None => (retain(device)?, Some(device)),
        };
        Self::push(context, retained)
    }

    /// A context of the program.
    pub(crate) fn of(context: Context) -> Result<Self, TransferError> {
        Self::push(context, None)
    }

    fn push(context: Context, retained: Option<Device>) -> Result<Self, TransferError> {
        // Before the push: should that fail, what was retained goes back.
        let current = Self { retained };
        // SAFETY: a context that lives: the program's, which cannot destroy it now, or one that we hold.
        match unsafe { real::cuCtxPushCurrent_v2(context) } {
            Ok(()) => Ok(current),
            Err(error) => {
                current.give_back();
                core::mem::forget(current);
                Err(TransferError::Driver { call: "cuCtxPushCurrent_v2", error })
            }
        }
    }

    /// The device of some context of the program, or the first one: for memory that any device can reach.
    pub(super) fn any_device() -> Device {
        contexts::all().first().map_or(Device(0), |known| known.device)
    }

    fn give_back(&self) {
        let Some(device) = self.retained else { return };
        // SAFETY: retained by `on`.
        if let Err(error) = unsafe { real::cuDevicePrimaryCtxRelease_v2(device) } {
            log!("cuDevicePrimaryCtxRelease_v2 of device {}: {error}", device.0);
        }
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let mut popped = Context::NULL;
        // SAFETY: `popped` is writable; the context on top is the one `on` pushed.
        if let Err(error) = unsafe { real::cuCtxPopCurrent_v2(&raw mut popped) } {
            log!("cuCtxPopCurrent_v2: {error}");
        }
        self.give_back();
    }
}

fn retain(device: Device) -> Result<Context, TransferError> {
    let mut context = Context::NULL;
    // SAFETY: `context` is writable.
    unsafe { real::cuDevicePrimaryCtxRetain(&raw mut context, device) }
        .map_err(TransferError::driver("cuDevicePrimaryCtxRetain"))?;
    Ok(context)
}
