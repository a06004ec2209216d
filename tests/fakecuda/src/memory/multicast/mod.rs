//! Multicast objects: what is written through a mapping of one goes to the memory that every member has bound there.
//!
//! Nothing of this was measured: on the machine that was measured it was switched off (docs/DRIVER-VERSIONS.md), and
//! so it is in the stand-in unless `FAKECUDA_MULTICAST=1`. What it does follows the driver's documentation: a device
//! is added for the life of the object; binding memory and mapping the object wait until all devices have been added.
//! What the documentation leaves open is strict here: a device added twice, a range bound twice and an unbind of
//! another range than was bound are INVALID_VALUE, and an object that is there at a checkpoint makes the restore fail
//! as an import does. A read gives the bytes of one's own device.
//!
//! Public reports (docs/DRIVER-VERSIONS.md): on drivers older than r610 a process that was restored cannot add its device to an
//! object. The reports do not tell the error.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use cuda_sys::{CuError, CuResult, Device, DevicePtr, HandleType, MemHandle, MulticastObjectProp};

use super::GRANULE;
use super::physical::{Physical, Place};
use super::token;
use super::vmm::{Object, named};
use crate::args;
use crate::config::config;
use crate::driver::{Driver, driver};
use crate::machine::shares::Kind;

pub(crate) mod team;

use team::{Team, Wish};

/// The descriptor names a multicast object.
const TOKEN: u64 = u64::from_le_bytes(*b"fakemc01");

/// The first version on which a restored process can join again: that of r610.
const REJOINS: i32 = 13030;

/// The object behind a handle.
fn team_of(driver: &Driver, handle: MemHandle, call: &str) -> CuResult<Arc<Physical>> {
    let (_, memory) = named(driver, handle, call)?;
    if memory.team.is_some() { Ok(memory) } else { Err(CuError::INVALID_VALUE) }
}

fn device_of(driver: &Driver, device: Device) -> CuResult<usize> {
    driver.physical(usize::try_from(device.0).map_err(|_| CuError::INVALID_DEVICE)?)
}

pub(crate) unsafe fn cuMulticastCreate(
    mc_handle: *mut MemHandle,
    prop: *const MulticastObjectProp,
) -> CuResult {
    let driver = driver()?;
    if !config().multicast {
        return Err(CuError::NOT_SUPPORTED);
    }
    // SAFETY: the caller's promise.
    let result = unsafe { args::out(mc_handle) }?;
    // SAFETY: the caller's promise.
    let prop = unsafe { args::read(prop) }?;
    let too_many = usize::try_from(prop.num_devices).map_or(true, |count| count > driver.machine.devices());
    let unknown_type = prop.handle_types & !u64::from(HandleType::POSIX_FD.0) != 0;
    if prop.num_devices == 0
        || too_many
        || prop.size == 0
        || !prop.size.is_multiple_of(GRANULE)
        || unknown_type
        || prop.flags != 0
    {
        return Err(CuError::INVALID_VALUE);
    }
    let held = driver.machine.new_share(Kind::Multicast, None, 0)?;
    let team = Team::new(prop.num_devices)?;
    let memory = Physical::team(driver, team, prop.size, HandleType(narrow(prop.handle_types)), held);
    result.write(Object::create(driver, memory));
    Ok(())
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

pub(crate) unsafe fn cuMulticastAddDevice(mc_handle: MemHandle, dev: Device) -> CuResult {
    let driver = driver()?;
    let object = team_of(driver, mc_handle, "cuMulticastAddDevice")?;
    let device = device_of(driver, dev)?;
    if config().version < REJOINS && driver.saved.was_restored() {
        return Err(CuError::UNKNOWN);
    }
    object.team.as_ref().ok_or(CuError::INVALID_VALUE)?.add(device)?;
    driver.machine.changed();
    Ok(())
}

/// Waits until all devices have been added, if the memory is a multicast object.
pub(super) fn wait_for_members(driver: &Driver, memory: &Physical) {
    if let Some(team) = &memory.team {
        driver.machine.wait_until(|| team.is_complete());
    }
}

/// Binds memory of its own device, or of the one named, which has to be the same.
fn bind(driver: &Driver, object: &Physical, device: Option<Device>, wish: Wish, flags: u64) -> CuResult {
    let team = object.team.as_ref().ok_or(CuError::INVALID_VALUE)?;
    let Wish { memory, memory_offset, offset, size } = &wish;
    let fits = |offset: usize, whole: usize| {
        offset.is_multiple_of(GRANULE) && offset.checked_add(*size).is_some_and(|end| end <= whole)
    };
    let sound = *size > 0 && size.is_multiple_of(GRANULE) && flags == 0 && memory.team.is_none();
    if !sound || !fits(*offset, object.size) || !fits(*memory_offset, memory.size) {
        return Err(CuError::INVALID_VALUE);
    }
    let Place::Device(ordinal) = memory.place else { return Err(CuError::INVALID_VALUE) };
    let own = driver.physical(ordinal)?;
    if device.is_some_and(|device| device_of(driver, device) != Ok(own)) {
        return Err(CuError::INVALID_VALUE);
    }
    wait_for_members(driver, object);
    if !team.has(own) {
        return Err(CuError::INVALID_DEVICE);
    }
    team.bind(own, wish)
}

pub(crate) unsafe fn cuMulticastBindMem(
    mc_handle: MemHandle,
    mc_offset: usize,
    mem_handle: MemHandle,
    mem_offset: usize,
    size: usize,
    flags: u64,
) -> CuResult {
    let driver = driver()?;
    let object = team_of(driver, mc_handle, "cuMulticastBindMem")?;
    let (_, memory) = named(driver, mem_handle, "cuMulticastBindMem")?;
    let wish = Wish { memory, memory_offset: mem_offset, offset: mc_offset, size };
    bind(driver, &object, None, wish, flags)
}

pub(crate) unsafe fn cuMulticastBindMem_v2(
    mc_handle: MemHandle,
    dev: Device,
    mc_offset: usize,
    mem_handle: MemHandle,
    mem_offset: usize,
    size: usize,
    flags: u64,
) -> CuResult {
    let driver = driver()?;
    let object = team_of(driver, mc_handle, "cuMulticastBindMem_v2")?;
    let (_, memory) = named(driver, mem_handle, "cuMulticastBindMem_v2")?;
    let wish = Wish { memory, memory_offset: mem_offset, offset: mc_offset, size };
    bind(driver, &object, Some(dev), wish, flags)
}

/// The memory that is mapped at an address, and where in it that is.
fn at(driver: &Driver, address: DevicePtr) -> CuResult<(Arc<Physical>, usize)> {
    let address = args::size(address.0);
    let space = crate::read(&driver.memory.space);
    let (start, mapping) = space.mapping(address).ok_or(CuError::INVALID_VALUE)?;
    Ok((Arc::clone(&mapping.memory), address - start))
}

pub(crate) unsafe fn cuMulticastBindAddr(
    mc_handle: MemHandle,
    mc_offset: usize,
    memptr: DevicePtr,
    size: usize,
    flags: u64,
) -> CuResult {
    let driver = driver()?;
    let object = team_of(driver, mc_handle, "cuMulticastBindAddr")?;
    let (memory, memory_offset) = at(driver, memptr)?;
    bind(driver, &object, None, Wish { memory, memory_offset, offset: mc_offset, size }, flags)
}

pub(crate) unsafe fn cuMulticastBindAddr_v2(
    mc_handle: MemHandle,
    dev: Device,
    mc_offset: usize,
    memptr: DevicePtr,
    size: usize,
    flags: u64,
) -> CuResult {
    let driver = driver()?;
    let object = team_of(driver, mc_handle, "cuMulticastBindAddr_v2")?;
    let (memory, memory_offset) = at(driver, memptr)?;
    bind(driver, &object, Some(dev), Wish { memory, memory_offset, offset: mc_offset, size }, flags)
}

pub(crate) unsafe fn cuMulticastUnbind(
    mc_handle: MemHandle,
    dev: Device,
    mc_offset: usize,
    size: usize,
) -> CuResult {
    let driver = driver()?;
    let object = team_of(driver, mc_handle, "cuMulticastUnbind")?;
    let device = device_of(driver, dev)?;
    object.team.as_ref().ok_or(CuError::INVALID_VALUE)?.unbind(device, mc_offset, size)
}

/// The same for whatever properties.
pub(crate) unsafe fn cuMulticastGetGranularity(
    granularity: *mut usize,
    prop: *const MulticastObjectProp,
    option: u32,
) -> CuResult {
    driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(granularity) }?;
    if prop.is_null() || option > 1 {
        return Err(CuError::INVALID_VALUE);
    }
    place.write(GRANULE);
    Ok(())
}

/// The descriptor of an object.
pub(super) fn export(driver: &Driver, object: &Physical) -> CuResult<OwnedFd> {
    let team = object.team.as_ref().ok_or(CuError::INVALID_VALUE)?;
    object.share(driver, |origin, _, held| {
        let mut words = [0; token::WORDS];
        let said = [TOKEN, args::wide(origin.share), origin.id, args::wide(origin.size)];
        words.iter_mut().zip(said).for_each(|(word, said)| *word = said);
        token::make(&words, &[team.file(), held.lock().as_fd()])
    })
}

/// The object behind a descriptor.
pub(super) fn import(
    driver: &'static Driver,
    descriptor: std::os::fd::BorrowedFd<'_>,
) -> CuResult<MemHandle> {
    let (words, [file, lock]) = token::read(descriptor, TOKEN)?;
    let &[_, share, id, size, ..] = &words;
    let held = driver.machine.join_share(args::size(share), id, lock).ok_or(CuError::INVALID_VALUE)?;
    let memory = Physical::team(driver, Team::open(file)?, args::size(size), HandleType::NONE, held);
    Ok(Object::create(driver, memory))
}
