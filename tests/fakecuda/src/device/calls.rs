//! `cuDevice*`: what devices there are and what they can do.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::{c_char, c_int, c_uint};

use cuda_sys::{CuError, CuResult, Device, DeviceAttribute, Uuid};

use super::{attributes, uuid};
use crate::args;
use crate::config::config;
use crate::driver::{Driver, driver};

/// The ordinal in a `CUdevice`, if there is such a device.
pub(crate) fn ordinal(driver: &Driver, device: Device) -> CuResult<usize> {
    let ordinal = usize::try_from(device.0).map_err(|_| CuError::INVALID_DEVICE)?;
    driver.physical(ordinal).map(|_| ordinal)
}

fn physical(device: Device) -> CuResult<usize> {
    let driver = driver()?;
    driver.physical(ordinal(driver, device)?)
}

pub(crate) unsafe fn cuDeviceGetCount(count: *mut c_int) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    unsafe { args::out(count) }?.write(c_int::try_from(driver.ordinals()).unwrap_or(0));
    Ok(())
}

pub(crate) unsafe fn cuDeviceGet(device: *mut Device, number: c_int) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(device) }?;
    ordinal(driver, Device(number))?;
    place.write(Device(number));
    Ok(())
}

pub(crate) unsafe fn cuDeviceGetName(name: *mut c_char, len: c_int, dev: Device) -> CuResult {
    physical(dev)?;
    let length = usize::try_from(len).map_err(|_| CuError::INVALID_VALUE)?;
    // SAFETY: the caller's promise.
    unsafe { args::write_text(name, length, "NVIDIA H200 (stand-in)") }
}

pub(crate) unsafe fn cuDeviceGetUuid(place: *mut Uuid, dev: Device) -> CuResult {
    let physical = physical(dev)?;
    // SAFETY: the caller's promise.
    unsafe { args::out(place) }?.write(uuid(physical));
    Ok(())
}

pub(crate) unsafe fn cuDeviceGetUuid_v2(place: *mut Uuid, dev: Device) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { cuDeviceGetUuid(place, dev) }
}

pub(crate) unsafe fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: Device) -> CuResult {
    physical(dev)?;
    // SAFETY: the caller's promise.
    unsafe { args::out(bytes) }?.write(driver()?.machine.memory());
    Ok(())
}

pub(crate) unsafe fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: DeviceAttribute,
    dev: Device,
) -> CuResult {
    let physical = physical(dev)?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(value) }?;
    let value = attributes::value(attribute.0, physical).ok_or(CuError::INVALID_VALUE)?;
    // A driver without these calls reports a device without them.
    let vmm = attribute == DeviceAttribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    place.write(if vmm && config().lacks("cuMemCreate") { 0 } else { value });
    Ok(())
}

pub(crate) unsafe fn cuDeviceComputeCapability(
    major: *mut c_int,
    minor: *mut c_int,
    dev: Device,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { cuDeviceGetAttribute(major, DeviceAttribute::COMPUTE_CAPABILITY_MAJOR, dev) }?;
    // SAFETY: the caller's promise.
    unsafe { cuDeviceGetAttribute(minor, DeviceAttribute::COMPUTE_CAPABILITY_MINOR, dev) }
}

fn bus_id(physical: usize) -> String {
    format!("0000:{:02x}:00.0", physical + 1)
}

pub(crate) unsafe fn cuDeviceGetPCIBusId(pci_bus_id: *mut c_char, len: c_int, dev: Device) -> CuResult {
    let physical = physical(dev)?;
    let length = usize::try_from(len).map_err(|_| CuError::INVALID_VALUE)?;
    // SAFETY: the caller's promise.
    unsafe { args::write_text(pci_bus_id, length, &bus_id(physical)) }
}

pub(crate) unsafe fn cuDeviceGetByPCIBusId(dev: *mut Device, pci_bus_id: *const c_char) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(dev) }?;
    // SAFETY: the caller's promise.
    let wanted = unsafe { args::name(pci_bus_id) }?.to_ascii_lowercase();
    let named = |ordinal: &usize| driver.physical(*ordinal).is_ok_and(|physical| bus_id(physical) == wanted);
    let found = (0..driver.ordinals()).find(named).ok_or(CuError::INVALID_DEVICE)?;
    place.write(Device(c_int::try_from(found).unwrap_or(0)));
    Ok(())
}

/// Every device reaches every other.
pub(crate) unsafe fn cuDeviceCanAccessPeer(
    can_access_peer: *mut c_int,
    dev: Device,
    peer_dev: Device,
) -> CuResult {
    let (own, peer) = (physical(dev)?, physical(peer_dev)?);
    // SAFETY: the caller's promise.
    unsafe { args::out(can_access_peer) }?.write(c_int::from(own != peer));
    Ok(())
}

pub(crate) unsafe fn cuDeviceGetP2PAttribute(
    value: *mut c_int,
    attribute: c_uint,
    src: Device,
    dst: Device,
) -> CuResult {
    let (own, peer) = (physical(src)?, physical(dst)?);
    if own == peer {
        return Err(CuError::INVALID_DEVICE);
    }
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(value) }?;
    match attribute {
        // Performance rank.
        1 => place.write(0),
        // Access, native atomics, array access.
        2..=4 => place.write(1),
        5 => place.write(0),
        _ => return Err(CuError::INVALID_VALUE),
    };
    Ok(())
}
