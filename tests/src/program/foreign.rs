//! What the library cannot carry.

use std::ffi::c_void;
use std::os::fd::{FromRawFd, OwnedFd};

use cuda_sys::{
    ArrayMapInfo, ExternalMemory, GraphicsResource, MEM_OPERATION_MAP, MEM_OPERATION_UNMAP, Stream,
};

use super::words::Words;
use super::{Answer, Session};
use crate::driver;

pub(super) fn obey(session: &Session, verb: &str, words: &mut Words<'_>) -> Option<Answer> {
    Some(match verb {
        "dma-buf" => dma_buf(session, words),
        "sparse" => sparse(session, words),
        "external" => external(session, words),
        "end-external" => end_external(session, words),
        "graphics" => graphics(words),
        _ => return None,
    })
}

/// `dma-buf F X SIZE`: a descriptor of a range, for other devices.
fn dma_buf(session: &Session, words: &mut Words<'_>) -> Answer {
    const DMA_BUF: u32 = 1;
    let (name, range, size) = (words.word()?, session.objects.ranges.get(words.word()?)?, words.size()?);
    let mut fd: i32 = -1;
    // SAFETY: for this type the driver writes a descriptor.
    unsafe { driver::cuMemGetHandleForAddressRange((&raw mut fd).cast(), range.address, size, DMA_BUF, 0) }?;
    // SAFETY: the driver has just made it for this program.
    session.objects.fds.put(name, unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(String::new())
}

/// `sparse map|unmap ARRAY H`: a piece of a sparse array, which is any number.
fn sparse(session: &Session, words: &mut Words<'_>) -> Answer {
    let operation = if words.word()? == "map" { MEM_OPERATION_MAP } else { MEM_OPERATION_UNMAP };
    let (resource, mem_handle) = (words.number()?, session.objects.handles.get(words.word()?)?);
    let mut step =
        ArrayMapInfo { resource, mem_operation_type: operation, mem_handle, ..ArrayMapInfo::default() };
    // SAFETY: one step that lives through the call.
    unsafe { driver::cuMemMapArrayAsync((&raw mut step).cast(), 1, Stream::NULL) }?;
    Ok(String::new())
}

/// `external E`: memory of another API; a later import has another name.
fn external(session: &Session, words: &mut Words<'_>) -> Answer {
    let name = words.word()?;
    let description = [0_u64; 16];
    let mut memory = ExternalMemory(std::ptr::null_mut());
    // SAFETY: a place for the memory, and a description that lives through the call.
    unsafe { driver::cuImportExternalMemory(&raw mut memory, (&raw const description).cast()) }?;
    let number = u64::try_from(memory.0.expose_provenance()).unwrap_or(0);
    session.objects.handles.put(name, cuda_sys::MemHandle(number));
    Ok(String::new())
}

/// `end-external E`
fn end_external(session: &Session, words: &mut Words<'_>) -> Answer {
    let number = session.objects.handles.get(words.word()?)?.0;
    let memory: *mut c_void = std::ptr::with_exposed_provenance_mut(usize::try_from(number).unwrap_or(0));
    // SAFETY: what the line asks for.
    unsafe { driver::cuDestroyExternalMemory(ExternalMemory(memory.cast())) }?;
    Ok(String::new())
}

/// `graphics map|unmap NUMBER`: a resource, which is any number.
fn graphics(words: &mut Words<'_>) -> Answer {
    let how = words.word()?;
    let place: *mut c_void = std::ptr::without_provenance_mut(words.size()?);
    let mut resource = GraphicsResource(place.cast());
    match how {
        // SAFETY: one resource.
        "map" => unsafe { driver::cuGraphicsMapResources(1, &raw mut resource, Stream::NULL) }?,
        // SAFETY: as above.
        _ => unsafe { driver::cuGraphicsUnmapResources(1, &raw mut resource, Stream::NULL) }?,
    }
    Ok(String::new())
}
