//! Memory of the older kind, and bytes in and out of any memory.

use std::ffi::c_void;
use std::fmt::Write;

use cuda_sys::DevicePtr;

use super::objects::Range;
use super::words::{Words, number};
use super::{Answer, Session};
use crate::driver;

pub(super) fn obey(session: &Session, verb: &str, words: &mut Words<'_>) -> Option<Answer> {
    Some(match verb {
        "malloc" => malloc(session, words),
        "malloc-pitch" => malloc_pitch(session, words),
        "free" => free(session, words),
        "malloc-async" => malloc_async(session, words),
        "free-async" => free_async(session, words),
        "malloc-host" => malloc_host(session, words),
        "free-host" => free_host(session, words),
        "managed" => managed(session, words),
        "write" => write(session, words),
        "read" => read(session, words),
        "memset" => memset(session, words),
        "cpu-write" => cpu_write(session, words),
        "cpu-read" => cpu_read(session, words),
        "move" => copy(session, words),
        "memory" => information(),
        "extent" => extent(session, words),
        _ => return None,
    })
}

/// `malloc X SIZE`
fn malloc(session: &Session, words: &mut Words<'_>) -> Answer {
    let (name, size) = (words.word()?, words.size()?);
    let mut address = DevicePtr(0);
    // SAFETY: a place for the address.
    unsafe { driver::cuMemAlloc_v2(&raw mut address, size) }?;
    session.objects.ranges.put(name, Range { address, size });
    Ok(String::new())
}

/// `malloc-pitch X WIDTH HEIGHT ELEMENT`: the answer is the pitch.
fn malloc_pitch(session: &Session, words: &mut Words<'_>) -> Answer {
    let (name, width, height) = (words.word()?, words.size()?, words.size()?);
    let (mut address, mut pitch) = (DevicePtr(0), 0);
    // SAFETY: places for the address and the pitch.
    unsafe { driver::cuMemAllocPitch_v2(&raw mut address, &raw mut pitch, width, height, words.parse()?) }?;
    session.objects.ranges.put(name, Range { address, size: pitch * height });
    Ok(pitch.to_string())
}

/// `free X [OFFSET]`
fn free(session: &Session, words: &mut Words<'_>) -> Answer {
    let range = session.objects.ranges.get(words.word()?)?;
    let offset = words.next().map_or(Ok(0), number)?;
    // SAFETY: what the line asks for; it does not use the memory afterwards.
    unsafe { driver::cuMemFree_v2(range.at(offset)) }?;
    Ok(String::new())
}

/// `malloc-async X SIZE STREAM`
fn malloc_async(session: &Session, words: &mut Words<'_>) -> Answer {
    let (name, size) = (words.word()?, words.size()?);
    let stream = session.objects.streams.get(words.word()?)?;
    let mut address = DevicePtr(0);
    // SAFETY: a place for the address, and a stream of this program.
    unsafe { driver::cuMemAllocAsync(&raw mut address, size, stream) }?;
    session.objects.ranges.put(name, Range { address, size });
    Ok(String::new())
}

/// `free-async X STREAM`
fn free_async(session: &Session, words: &mut Words<'_>) -> Answer {
    let range = session.objects.ranges.get(words.word()?)?;
    let stream = session.objects.streams.get(words.word()?)?;
    // SAFETY: what the line asks for; it does not use the memory afterwards.
    unsafe { driver::cuMemFreeAsync(range.address, stream) }?;
    Ok(String::new())
}

/// `malloc-host X SIZE`
fn malloc_host(session: &Session, words: &mut Words<'_>) -> Answer {
    let (name, size) = (words.word()?, words.size()?);
    let mut at: *mut c_void = std::ptr::null_mut();
    // SAFETY: a place for the pointer.
    unsafe { driver::cuMemHostAlloc(&raw mut at, size, 0) }?;
    let address = DevicePtr(u64::try_from(at.expose_provenance()).unwrap_or(0));
    session.objects.ranges.put(name, Range { address, size });
    Ok(String::new())
}

/// `free-host X`
fn free_host(session: &Session, words: &mut Words<'_>) -> Answer {
    let range = session.objects.ranges.get(words.word()?)?;
    // SAFETY: what the line asks for; it does not use the memory afterwards.
    unsafe { driver::cuMemFreeHost(pointer(range.address)) }?;
    Ok(String::new())
}

/// `managed X SIZE`
fn managed(session: &Session, words: &mut Words<'_>) -> Answer {
    const ATTACH_GLOBAL: u32 = 1;
    let (name, size) = (words.word()?, words.size()?);
    let mut address = DevicePtr(0);
    // SAFETY: a place for the address.
    unsafe { driver::cuMemAllocManaged(&raw mut address, size, ATTACH_GLOBAL) }?;
    session.objects.ranges.put(name, Range { address, size });
    Ok(String::new())
}

/// `write X OFFSET HEX`
fn write(session: &Session, words: &mut Words<'_>) -> Answer {
    let (range, offset) = (session.objects.ranges.get(words.word()?)?, words.number()?);
    let bytes = from_hex(words.word()?)?;
    // SAFETY: the source lives through the call, which waits for the copy.
    unsafe { driver::cuMemcpyHtoD_v2(range.at(offset), bytes.as_ptr().cast(), bytes.len()) }?;
    Ok(String::new())
}

/// `read X OFFSET COUNT`
fn read(session: &Session, words: &mut Words<'_>) -> Answer {
    let (range, offset, count) = (session.objects.ranges.get(words.word()?)?, words.number()?, words.size()?);
    let mut bytes = vec![0_u8; count];
    // SAFETY: room for `count` bytes that lives through the call, which waits for the copy.
    unsafe { driver::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), range.at(offset), count) }?;
    Ok(to_hex(&bytes))
}

/// `memset X OFFSET COUNT BYTE`
fn memset(session: &Session, words: &mut Words<'_>) -> Answer {
    let (range, offset, count) = (session.objects.ranges.get(words.word()?)?, words.number()?, words.size()?);
    let byte = words.parse()?;
    // SAFETY: what the line asks for.
    unsafe { driver::cuMemsetD8_v2(range.at(offset), byte, count) }?;
    Ok(String::new())
}

/// `cpu-write X OFFSET HEX`: by the processor, for memory that it may touch.
fn cpu_write(session: &Session, words: &mut Words<'_>) -> Answer {
    let (range, offset) = (session.objects.ranges.get(words.word()?)?, words.number()?);
    let bytes = from_hex(words.word()?)?;
    // SAFETY: the line says that the processor may write there; the bytes do not overlap the range.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer(range.at(offset)).cast(), bytes.len()) };
    Ok(String::new())
}

/// `cpu-read X OFFSET COUNT`: by the processor, for memory that it may touch.
fn cpu_read(session: &Session, words: &mut Words<'_>) -> Answer {
    let (range, offset, count) = (session.objects.ranges.get(words.word()?)?, words.number()?, words.size()?);
    let mut bytes = vec![0_u8; count];
    let from: *const u8 = pointer(range.at(offset)).cast();
    // SAFETY: the line says that the processor may read there; `bytes` has room.
    unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), count) };
    Ok(to_hex(&bytes))
}

/// `move TO OFFSET FROM OFFSET COUNT`: device to device.
fn copy(session: &Session, words: &mut Words<'_>) -> Answer {
    let (to, to_offset) = (session.objects.ranges.get(words.word()?)?, words.number()?);
    let (from, from_offset) = (session.objects.ranges.get(words.word()?)?, words.number()?);
    let count = words.size()?;
    // SAFETY: what the line asks for.
    unsafe { driver::cuMemcpyDtoD_v2(to.at(to_offset), from.at(from_offset), count) }?;
    Ok(String::new())
}

/// `memory`: free and total bytes of the current device.
fn information() -> Answer {
    let (mut free, mut total) = (0, 0);
    // SAFETY: places for two numbers.
    unsafe { driver::cuMemGetInfo_v2(&raw mut free, &raw mut total) }?;
    Ok(format!("{free} {total}"))
}

/// `extent X OFFSET`: how far before the address its allocation begins, and its size.
fn extent(session: &Session, words: &mut Words<'_>) -> Answer {
    let at = session.objects.ranges.get(words.word()?)?.at(words.number()?);
    let (mut base, mut size) = (DevicePtr(0), 0);
    // SAFETY: places for two numbers.
    unsafe { driver::cuMemGetAddressRange_v2(&raw mut base, &raw mut size, at) }?;
    Ok(format!("{} {size}", at.0.wrapping_sub(base.0)))
}

fn pointer(address: DevicePtr) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(usize::try_from(address.0).unwrap_or(0))
}

pub(super) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    pairs.map(byte).collect::<Option<_>>().ok_or_else(|| format!("{text} is not hexadecimal"))
}
