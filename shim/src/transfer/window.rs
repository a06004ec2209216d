//! A private address range through which the shim looks at memory, whatever the program has mapped.

use std::sync::{Mutex, PoisonError};

use cuda_sys::{
    AccessDesc, AccessFlags, AllocationProp, Device, DevicePtr, LocationType, MemHandle, MemLocation,
};

use super::{Current, Memory, Shown, TransferError, certain};
use crate::driver::real;

/// The range. Shows one allocation at a time.
#[derive(Debug)]
pub(super) struct Window {
    base: DevicePtr,
    len: usize,
    /// How much of it is mapped.
    shown: usize,
}

/// Windows in which the driver would not unmap, and the process they belong to. They are in the way of the next one.
static LEFT: Mutex<(u32, Vec<Window>)> = Mutex::new((0, Vec::new()));

impl Window {
    /// Opens a window for allocations of up to `len` bytes.
    pub(super) fn open(len: u64) -> Result<Self, TransferError> {
        let len = fit(len)?;
        // Dropped here, and freed, or left again.
        for mut left in left_behind() {
            left.hide()?;
        }
        let mut base = DevicePtr(0);
        // SAFETY: `base` is writable.
        unsafe { real::cuMemAddressReserve(&raw mut base, len, 0, DevicePtr(0), 0) }
            .map_err(TransferError::driver("cuMemAddressReserve"))?;
        Ok(Self { base, len, shown: 0 })
    }

    /// Maps an allocation and makes it accessible, to the processor if it is on the host.
    pub(super) fn show(
        &mut self,
        real: MemHandle,
        prop: &AllocationProp,
        wide: u64,
    ) -> Result<Shown, TransferError> {
        let size = fit(wide)?;
        self.shown = size;
        // SAFETY: our own range, of at least that size, in which nothing is mapped.
        let mapped = unsafe { real::cuMemMap(self.base, size, 0, real, 0) };
        match mapped.map_err(TransferError::driver("cuMemMap")).and_then(|()| self.grant(prop)) {
            Ok(None) => Ok(Shown::Processor(Memory::at(self.base.0, wide)?)),
            Ok(Some(device)) => Ok(Shown::Device(device, self.base.0)),
            Err(error) => {
                // What comes back is the cause; a mapping that stays is tried again with the next window.
                if let Err(error) = self.hide() {
                    log!("{error}");
                }
                Err(error)
            }
        }
    }

    /// Grants access to what is shown. `None` is the processor.
    fn grant(&self, prop: &AllocationProp) -> Result<Option<Device>, TransferError> {
        let MemLocation { kind, id } = prop.location;
        let host = matches!(kind, LocationType::HOST | LocationType::HOST_NUMA);
        if host && self.grant_to(prop.location).is_ok() {
            return Ok(None);
        }
        // Host memory that the driver does not show to the processor can be copied by any device.
        let device = if kind == LocationType::DEVICE { Device(id) } else { Current::any_device() };
        self.grant_to(MemLocation { kind: LocationType::DEVICE, id: device.0 })?;
        Ok(Some(device))
    }

    fn grant_to(&self, location: MemLocation) -> Result<(), TransferError> {
        let grant = AccessDesc { location, flags: AccessFlags::READ_WRITE };
        // SAFETY: one descriptor; the range is ours and wholly mapped.
        unsafe { real::cuMemSetAccess(self.base, self.shown, &raw const grant, 1) }
            .map_err(TransferError::driver("cuMemSetAccess"))
    }

    /// Unmaps what is shown.
    pub(super) fn hide(&mut self) -> Result<(), TransferError> {
        if self.shown == 0 {
            return Ok(());
        }
        certain::unmap(self.base, self.shown)?;
        self.shown = 0;
        Ok(())
    }

    /// Gives the range back. Where the driver refuses, addresses are lost and nothing else.
    fn free(&self) {
        // SAFETY: our own reservation, in which nothing is mapped.
        if let Err(error) = unsafe { real::cuMemAddressFree(self.base, self.len) } {
            log!("cuMemAddressFree of a private window: {error}");
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        match self.hide() {
            Ok(()) => self.free(),
            Err(error) => {
                log!("a private window stays: {error}; it is tried again before the next one");
                let left = Self { base: self.base, len: self.len, shown: self.shown };
                let mut all = left_behind();
                all.push(left);
                let mut kept = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
                kept.0 = std::process::id();
                kept.1.append(&mut all);
            }
        }
    }
}

/// The windows that this process has left, which are the caller's from here on.
fn left_behind() -> Vec<Window> {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    let all = core::mem::take(&mut left.1);
    if left.0 == std::process::id() {
        return all;
    }
    // The parent's, which this process does not have.
    core::mem::forget(all);
    Vec::new()
}

fn fit(len: u64) -> Result<usize, TransferError> {
    usize::try_from(len)
        .map_err(|_| TransferError::System { call: "cuMemAddressReserve", errno: libc::EOVERFLOW })
}
