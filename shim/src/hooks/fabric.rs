//! Fabric handles, by which processes of different nodes share memory: hidden unless the user asks for them.
//!
//! Nobody could carry what was shared that way, and an engine that finds them takes them without being told. So the
//! devices say that they have none, and whatever asks for one is refused as by such a device: on every rank alike, since engines
//! agree on a way and hang where one rank takes another. With `NVSNAP_GPUSHARE_FABRIC=1` all goes through, and `check` refuses a
//! process that holds such memory.

use core::ffi::c_int;

use cuda_sys::{CuError, CuResult, Device, DeviceAttribute, HandleType};

use crate::config;
use crate::driver::real;

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: DeviceAttribute,
    dev: Device,
) -> CuResult {
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuDeviceGetAttribute(value, attribute, dev) }?;
    if attribute == DeviceAttribute::HANDLE_TYPE_FABRIC_SUPPORTED && !config::fabric() {
        // SAFETY: the driver has just written there.
        unsafe { value.write(0) };
    }
    Ok(())
}

/// Whether memory may be made for these ways of sharing it, or shared in one of them.
pub(crate) fn permitted(types: HandleType) -> CuResult {
    let fabric = types.0 & HandleType::FABRIC.0 != 0;
    if fabric && !config::fabric() { Err(CuError::NOT_SUPPORTED) } else { Ok(()) }
}
