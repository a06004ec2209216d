//! Memory pools, also those that processes share.

use cuda_sys::{AllocationType, DevicePtr, HandleType, LocationType, MemLocation, MemPool, MemPoolProps};
use std::os::fd::{FromRawFd, OwnedFd};

use super::memory::{from_hex, to_hex};
use super::objects::Range;
use super::words::Words;
use super::{Answer, Session};
use crate::driver;

/// Bytes of `CUmemPoolPtrExportData`, in words.
const POINTER: usize = 8;

pub(super) fn obey(session: &Session, verb: &str, words: &mut Words<'_>) -> Option<Answer> {
    Some(match verb {
        "pool" => pool(session, words),
        "find-pool" => find_pool(session, words),
        "end-pool" => end_pool(session, words),
        "malloc-from" => malloc_from(session, words),
        "export-pool" => export_pool(session, words),
        "import-pool" => import_pool(session, words),
        "export-pointer" => export_pointer(session, words),
        "import-pointer" => import_pointer(session, words),
        _ => return None,
    })
}

/// Where a pool is, and whether it is managed: `device`, `host`, `numa`, `managed`.
fn place(word: &str) -> Option<(MemLocation, AllocationType)> {
    let at = |kind| MemLocation { kind, id: 0 };
    Some(match word {
        "device" => (at(LocationType::DEVICE), AllocationType::PINNED),
        "host" => (at(LocationType::HOST), AllocationType::PINNED),
        "numa" => (at(LocationType::HOST_NUMA), AllocationType::PINNED),
        "managed" => (at(LocationType::DEVICE), AllocationType::MANAGED),
        _ => return None,
    })
}

/// `pool fd|fabric|private|PLACE [POOL]`: a memory pool, of device 0 where no other place is named.
fn pool(session: &Session, words: &mut Words<'_>) -> Answer {
    let how = words.word()?;
    let handle_types = match how {
        "fd" => HandleType::POSIX_FD,
        "fabric" => HandleType::FABRIC,
        _ => HandleType::NONE,
    };
    let on_device = (MemLocation { kind: LocationType::DEVICE, id: 0 }, AllocationType::PINNED);
    let (location, alloc_type) = place(how).unwrap_or(on_device);
    let properties = MemPoolProps {
        alloc_type,
        handle_types,
        location,
        win32_security_attributes: std::ptr::null_mut(),
        max_size: 0,
        usage: 0,
        reserved: [0; 54],
    };
    let mut pool = MemPool::NULL;
    // SAFETY: a place for the pool, and properties that live through the call.
    unsafe { driver::cuMemPoolCreate(&raw mut pool, (&raw const properties).cast()) }?;
    session.objects.pools.put(words.next().unwrap_or("pool"), pool);
    Ok(String::new())
}

/// `find-pool POOL PLACE default|current`: one that the driver has by itself.
fn find_pool(session: &Session, words: &mut Words<'_>) -> Answer {
    let (name, word) = (words.word()?, words.word()?);
    let (mut location, kind) = place(word).ok_or_else(|| format!("{word} is no place"))?;
    let mut pool = MemPool::NULL;
    match words.word()? {
        // SAFETY: a place for the pool, and a location.
        "default" => unsafe { driver::cuMemGetDefaultMemPool(&raw mut pool, &raw mut location, kind.0) }?,
        // SAFETY: as above.
        _ => unsafe { driver::cuMemGetMemPool(&raw mut pool, &raw mut location, kind.0) }?,
    }
    session.objects.pools.put(name, pool);
    Ok(String::new())
}

/// `end-pool POOL`
fn end_pool(session: &Session, words: &mut Words<'_>) -> Answer {
    // SAFETY: what the line asks for; it does not use the pool afterwards.
    unsafe { driver::cuMemPoolDestroy(session.objects.pools.get(words.word()?)?) }?;
    Ok(String::new())
}

/// `malloc-from POOL X SIZE STREAM`
fn malloc_from(session: &Session, words: &mut Words<'_>) -> Answer {
    let pool = session.objects.pools.get(words.word()?)?;
    let (name, size) = (words.word()?, words.size()?);
    let stream = session.objects.streams.get(words.word()?)?;
    let mut address = DevicePtr(0);
    // SAFETY: a place for the address, a pool and a stream of this program.
    unsafe { driver::cuMemAllocFromPoolAsync(&raw mut address, size, pool, stream) }?;
    session.objects.ranges.put(name, Range { address, size });
    Ok(String::new())
}

/// `export-pool F POOL`: as a descriptor.
fn export_pool(session: &Session, words: &mut Words<'_>) -> Answer {
    let (name, pool) = (words.word()?, session.objects.pools.get(words.word()?)?);
    let mut fd: i32 = -1;
    let kind = HandleType::POSIX_FD;
    // SAFETY: for this type the driver writes a descriptor.
    unsafe { driver::cuMemPoolExportToShareableHandle((&raw mut fd).cast(), pool, kind, 0) }?;
    // SAFETY: the driver has just made it for this program.
    session.objects.fds.put(name, unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(String::new())
}

/// `import-pool POOL F`
fn import_pool(session: &Session, words: &mut Words<'_>) -> Answer {
    let (name, fd) = (words.word()?, session.objects.fds.get(words.word()?)?);
    let number = usize::try_from(fd).map_err(|error| error.to_string())?;
    let handle = std::ptr::without_provenance_mut(number);
    let mut pool = MemPool::NULL;
    // SAFETY: a place for the pool; for this type the handle is a descriptor's number.
    unsafe { driver::cuMemPoolImportFromShareableHandle(&raw mut pool, handle, HandleType::POSIX_FD, 0) }?;
    session.objects.pools.put(name, pool);
    Ok(String::new())
}

/// `export-pointer X`: its bytes.
fn export_pointer(session: &Session, words: &mut Words<'_>) -> Answer {
    let range = session.objects.ranges.get(words.word()?)?;
    let mut data = [0_u64; POINTER];
    // SAFETY: a place for as many bytes as the header says.
    unsafe { driver::cuMemPoolExportPointer(data.as_mut_ptr().cast(), range.address) }?;
    let bytes: Vec<u8> = data.iter().flat_map(|word| word.to_le_bytes()).collect();
    Ok(to_hex(&bytes))
}

/// `import-pointer X SIZE POOL HEX`
fn import_pointer(session: &Session, words: &mut Words<'_>) -> Answer {
    let (name, size) = (words.word()?, words.size()?);
    let pool = session.objects.pools.get(words.word()?)?;
    let bytes = from_hex(words.word()?)?;
    let mut data = [0_u64; POINTER];
    for (word, bytes) in data.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let mut address = DevicePtr(0);
    // SAFETY: a place for the address, a pool of this program, and all bytes of the pointer's data.
    unsafe { driver::cuMemPoolImportPointer(&raw mut address, pool, data.as_mut_ptr().cast()) }?;
    session.objects.ranges.put(name, Range { address, size });
    Ok(String::new())
}
