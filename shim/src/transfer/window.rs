//! A private address range through which the shim looks at memory, whatever the program has mapped.

use core::ptr;
use std::sync::{Mutex, PoisonError};

use cuda_sys::{
    AccessDesc, AccessFlags, AllocationProp, Device, DevicePtr, LocationType, MemHandle, MemLocation,
};

use super::{Current, Memory, Shown, TransferError};
use crate::driver::real;

/// The range. Shows one allocation at a time.
#[derive(Debug)]
pub(super) struct Window {
    base: DevicePtr,
    len: usize,
    /// How much of it is mapped.
    shown: usize,
}

/// A window that the driver would not take back, and the process it belongs to. The next one to be opened is it.
static LEFT: Mutex<Option<(u32, Window)>> = Mutex::new(None);

impl Window {
    /// Opens a window for allocations of up to `len` bytes.
    pub(super) fn open(len: u64) -> Result<Self, TransferError> {
        let len = fit(len)?;
        let left = LEFT.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((_, mut left)) = left.filter(|(owner, _)| *owner == std::process::id()) {
            left.hide()?;
            if left.len >= len {
                return Ok(left);
            }
            left.free()?;
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
        size: u64,
    ) -> Result<Shown, TransferError> {
        let size = fit(size)?;
        // SAFETY: our own range, of at least that size, in which nothing is mapped.
        unsafe { real::cuMemMap(self.base, size, 0, real, 0) }.map_err(TransferError::driver("cuMemMap"))?;
        self.shown = size;
        match self.grant(prop) {
            Ok(None) => {
                let start =
                    usize::try_from(self.base.0).map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut);
                Ok(Shown::Processor(Memory { start, len: size }))
            }
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
        // SAFETY: our own range; no copy of ours is under way in it.
        unsafe { real::cuMemUnmap(self.base, self.shown) }.map_err(TransferError::driver("cuMemUnmap"))?;
        self.shown = 0;
        Ok(())
    }

    /// Gives the range back.
    fn free(&mut self) -> Result<(), TransferError> {
        if self.len > 0 {
            // SAFETY: our own reservation, in which nothing is mapped.
            unsafe { real::cuMemAddressFree(self.base, self.len) }
                .map_err(TransferError::driver("cuMemAddressFree"))?;
            self.len = 0;
        }
        Ok(())
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if let Err(error) = self.hide().and_then(|()| self.free()) {
            log!("a private window stays: {error}; it is tried again with the next one");
            let left = Self { base: self.base, len: self.len, shown: self.shown };
            let owner = std::process::id();
            let before = LEFT.lock().unwrap_or_else(PoisonError::into_inner).replace((owner, left));
            // Another one would be dropped here, and come back here: there is at most one at a time.
            core::mem::forget(before);
        }
    }
}

fn fit(len: u64) -> Result<usize, TransferError> {
    usize::try_from(len)
        .map_err(|_| TransferError::System { call: "cuMemAddressReserve", errno: libc::EOVERFLOW })
}
