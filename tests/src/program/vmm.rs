//! `cuMemCreate` and its family, and the shortest way to a mapped allocation.

use std::os::fd::{FromRawFd, OwnedFd};

use cuda_sys::{
    AccessDesc, AllocationProp, DevicePtr, GranularityFlags, HandleType, LocationType, MemHandle, MemLocation,
};

use super::objects::Range;
use super::words::{Words, location_text};
use super::{Answer, Session};
use crate::driver;

pub(super) fn obey(session: &Session, verb: &str, words: &mut Words<'_>) -> Option<Answer> {
    Some(match verb {
        "create" => create(session, words),
        "release" => release(session, words),
        "retain" => retain(session, words),
        "same" => same(session, words),
        "props" => properties(session, words),
        "granularity" => granularity(words),
        "reserve" => reserve(session, words),
        "unreserve" => unreserve(session, words),
        "map" => map(session, words),
        "unmap" => unmap(session, words),
        "access" => access(session, words),
        "rights" => rights(session, words),
        "export" => export(session, words),
        "import" => import(session, words),
        "new" => new(session, words),
        "show" => show(session, words),
        "drop" => drop(session, words),
        _ => return None,
    })
}

/// `create H SIZE LOCATION [fd|private]`
fn create(session: &Session, words: &mut Words<'_>) -> Answer {
    let (name, size, prop) = (words.word()?, words.size()?, words.properties()?);
    session.objects.handles.put(name, created(size, &prop)?);
    Ok(String::new())
}

fn created(size: usize, prop: &AllocationProp) -> cuda_sys::CuResult<MemHandle> {
    let mut handle = MemHandle::NONE;
    // SAFETY: a place for the handle, and properties that live through the call.
    unsafe { driver::cuMemCreate(&raw mut handle, size, prop, 0) }?;
    Ok(handle)
}

/// `release H`
fn release(session: &Session, words: &mut Words<'_>) -> Answer {
    let handle = session.objects.handles.get(words.word()?)?;
    // SAFETY: what the line asks for; a handle that is gone is the driver's to refuse.
    unsafe { driver::cuMemRelease(handle) }?;
    Ok(String::new())
}

/// `retain H RANGE [OFFSET]`: the handle of what is mapped there.
fn retain(session: &Session, words: &mut Words<'_>) -> Answer {
    let (name, range) = (words.word()?, session.objects.ranges.get(words.word()?)?);
    let offset = words.next().map_or(Ok(0), super::words::number)?;
    let mut handle = MemHandle::NONE;
    let at = std::ptr::with_exposed_provenance_mut(usize::try_from(range.at(offset).0).unwrap_or(0));
    // SAFETY: a place for the handle; the address is a number to the driver.
    unsafe { driver::cuMemRetainAllocationHandle(&raw mut handle, at) }?;
    session.objects.handles.put(name, handle);
    Ok(String::new())
}

/// `same H H`: whether two names hold one value.
fn same(session: &Session, words: &mut Words<'_>) -> Answer {
    let handles = &session.objects.handles;
    Ok((handles.get(words.word()?)? == handles.get(words.word()?)?).to_string())
}

/// `props H`: type, location, handle types, flags.
fn properties(session: &Session, words: &mut Words<'_>) -> Answer {
    let handle = session.objects.handles.get(words.word()?)?;
    let mut prop = AllocationProp::default();
    // SAFETY: a place for the properties.
    unsafe { driver::cuMemGetAllocationPropertiesFromHandle(&raw mut prop, handle) }?;
    let (types, flags) = (prop.requested_handle_types.0, prop.alloc_flags);
    Ok(format!(
        "type {} {} handles {types} rdma {} usage {} compression {}",
        prop.kind.0,
        location_text(prop.location),
        flags.gpu_direct_rdma_capable,
        flags.usage,
        flags.compression_type
    ))
}

/// `granularity LOCATION [fd|private]`: minimum and recommended.
fn granularity(words: &mut Words<'_>) -> Answer {
    let prop = words.properties()?;
    let (mut minimum, mut recommended) = (0, 0);
    // SAFETY: a place for the number, and properties that live through the call.
    unsafe {
        driver::cuMemGetAllocationGranularity(&raw mut minimum, &raw const prop, GranularityFlags::MINIMUM)
    }?;
    let flags = GranularityFlags::RECOMMENDED;
    // SAFETY: as above.
    unsafe { driver::cuMemGetAllocationGranularity(&raw mut recommended, &raw const prop, flags) }?;
    Ok(format!("{minimum} {recommended}"))
}

/// `reserve R SIZE [ALIGNMENT]`, or `reserve R SIZE at OTHER`: where another range is or was.
fn reserve(session: &Session, words: &mut Words<'_>) -> Answer {
    let (name, size) = (words.word()?, words.size()?);
    let (alignment, hint) = match words.next() {
        Some("at") => (0, session.objects.ranges.get(words.word()?)?.address),
        Some(alignment) => (super::words::number(alignment)?, DevicePtr(0)),
        None => (0, DevicePtr(0)),
    };
    let alignment = usize::try_from(alignment).unwrap_or(usize::MAX);
    let range = reserved(size, alignment, hint)?;
    let as_hinted = if hint.0 == 0 { String::new() } else { (range.address == hint).to_string() };
    session.objects.ranges.put(name, range);
    Ok(as_hinted)
}

fn reserved(size: usize, alignment: usize, hint: DevicePtr) -> cuda_sys::CuResult<Range> {
    let mut address = DevicePtr(0);
    // SAFETY: a place for the address.
    unsafe { driver::cuMemAddressReserve(&raw mut address, size, alignment, hint, 0) }?;
    Ok(Range { address, size })
}

/// `unreserve R [OFFSET SIZE]`
fn unreserve(session: &Session, words: &mut Words<'_>) -> Answer {
    let (at, size) = part(session, words)?;
    // SAFETY: what the line asks for.
    unsafe { driver::cuMemAddressFree(at, size) }?;
    Ok(String::new())
}

/// `map R OFFSET SIZE H [HANDLE_OFFSET]`
fn map(session: &Session, words: &mut Words<'_>) -> Answer {
    let range = session.objects.ranges.get(words.word()?)?;
    let (offset, size, handle) = (words.number()?, words.size()?, words.word()?);
    let handle = session.objects.handles.get(handle)?;
    let inner = words.next().map_or(Ok(0), super::words::number)?;
    let inner = usize::try_from(inner).unwrap_or(usize::MAX);
    // SAFETY: what the line asks for.
    unsafe { driver::cuMemMap(range.at(offset), size, inner, handle, 0) }?;
    Ok(String::new())
}

/// `unmap R [OFFSET SIZE]`
fn unmap(session: &Session, words: &mut Words<'_>) -> Answer {
    let (at, size) = part(session, words)?;
    // SAFETY: what the line asks for; the line does not use the memory afterwards.
    unsafe { driver::cuMemUnmap(at, size) }?;
    Ok(String::new())
}

/// `access R OFFSET SIZE (LOCATION none|r|rw)...`
fn access(session: &Session, words: &mut Words<'_>) -> Answer {
    let range = session.objects.ranges.get(words.word()?)?;
    let (offset, size) = (words.number()?, words.size()?);
    let mut grants = Vec::new();
    while words.clone().next().is_some() {
        grants.push(AccessDesc { location: words.location()?, flags: words.rights()? });
    }
    // SAFETY: the array lives through the call.
    unsafe { driver::cuMemSetAccess(range.at(offset), size, grants.as_ptr(), grants.len()) }?;
    Ok(String::new())
}

/// `rights R OFFSET LOCATION`: the number of the rights.
fn rights(session: &Session, words: &mut Words<'_>) -> Answer {
    let (range, offset) = (session.objects.ranges.get(words.word()?)?, words.number()?);
    let location: MemLocation = words.location()?;
    let mut flags = 0;
    // SAFETY: a place for the flags, and a location that lives through the call.
    unsafe { driver::cuMemGetAccess(&raw mut flags, &raw const location, range.at(offset)) }?;
    Ok(flags.to_string())
}

/// `export F H`
fn export(session: &Session, words: &mut Words<'_>) -> Answer {
    let (name, handle) = (words.word()?, session.objects.handles.get(words.word()?)?);
    let mut fd: i32 = -1;
    let out = (&raw mut fd).cast();
    // SAFETY: for this handle type the driver writes a descriptor.
    unsafe { driver::cuMemExportToShareableHandle(out, handle, HandleType::POSIX_FD, 0) }?;
    // SAFETY: the driver has just opened it for this program.
    session.objects.fds.put(name, unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(String::new())
}

/// `import H F`
fn import(session: &Session, words: &mut Words<'_>) -> Answer {
    let (name, fd) = (words.word()?, session.objects.fds.get(words.word()?)?);
    let mut handle = MemHandle::NONE;
    // The driver takes a descriptor as a pointer of that value.
    let fd = std::ptr::without_provenance_mut(usize::try_from(fd).unwrap_or(usize::MAX));
    // SAFETY: a place for the handle.
    unsafe { driver::cuMemImportFromShareableHandle(&raw mut handle, fd, HandleType::POSIX_FD) }?;
    session.objects.handles.put(name, handle);
    Ok(String::new())
}

/// `new X SIZE LOCATION [fd|private]`: handle and range `X`, mapped, with the first device's or its own device's access.
fn new(session: &Session, words: &mut Words<'_>) -> Answer {
    let (name, size, prop) = (words.word()?, words.size()?, words.properties()?);
    let handle = created(size, &prop)?;
    session.objects.handles.put(name, handle);
    mapped(session, name, size, handle, prop.location)
}

/// `show X SIZE [DEVICE]`: maps handle `X` at a new range `X` with full access for a device.
fn show(session: &Session, words: &mut Words<'_>) -> Answer {
    let (name, size) = (words.word()?, words.size()?);
    let id = words.next().map_or(Ok(0), |word| word.parse()).map_err(|_| "no device".to_owned())?;
    let handle = session.objects.handles.get(name)?;
    mapped(session, name, size, handle, MemLocation { kind: LocationType::DEVICE, id })
}

fn mapped(session: &Session, name: &str, size: usize, handle: MemHandle, location: MemLocation) -> Answer {
    let range = reserved(size, 0, DevicePtr(0))?;
    session.objects.ranges.put(name, range);
    // SAFETY: a range just reserved.
    unsafe { driver::cuMemMap(range.address, size, 0, handle, 0) }?;
    let id = if location.kind == LocationType::DEVICE { location.id } else { 0 };
    let device = MemLocation { kind: LocationType::DEVICE, id };
    let grant = AccessDesc { location: device, flags: cuda_sys::AccessFlags::READ_WRITE };
    // SAFETY: one descriptor that lives through the call.
    unsafe { driver::cuMemSetAccess(range.address, size, &raw const grant, 1) }?;
    Ok(String::new())
}

/// `drop X`: unmaps, releases and frees what `new` or `show` made.
fn drop(session: &Session, words: &mut Words<'_>) -> Answer {
    let name = words.word()?;
    let (handle, range) = (session.objects.handles.get(name)?, session.objects.ranges.get(name)?);
    // SAFETY: what the line asks for; the line does not use the memory afterwards.
    unsafe { driver::cuMemUnmap(range.address, range.size) }?;
    // SAFETY: as above.
    unsafe { driver::cuMemRelease(handle) }?;
    // SAFETY: as above.
    unsafe { driver::cuMemAddressFree(range.address, range.size) }?;
    Ok(String::new())
}

/// A whole range, or the part that the next two words name.
fn part(session: &Session, words: &mut Words<'_>) -> Result<(DevicePtr, usize), super::Trouble> {
    let range = session.objects.ranges.get(words.word()?)?;
    Ok(match words.clone().next() {
        Some(_) => (range.at(words.number()?), words.size()?),
        None => (range.address, range.size),
    })
}
