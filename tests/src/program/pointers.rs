//! What addresses are, and how other processes get to them.

use std::ffi::{c_uint, c_void};

use cuda_sys::DevicePtr;

use super::memory::{from_hex, to_hex};
use super::objects::Range;
use super::words::Words;
use super::{Answer, Session};
use crate::driver;

pub(super) fn obey(session: &Session, verb: &str, words: &mut Words<'_>) -> Option<Answer> {
    Some(match verb {
        "attribute" => attribute(session, words),
        "attributes" => attributes(session, words),
        "aligned" => aligned(session, words),
        "ipc-get" => ipc_get(session, words),
        "ipc-open" => ipc_open(session, words),
        "ipc-close" => ipc_close(session, words),
        _ => return None,
    })
}

/// `attribute NUMBER X OFFSET`: a pointer attribute, as eight bytes.
fn attribute(session: &Session, words: &mut Words<'_>) -> Answer {
    let number = words.parse()?;
    let at = session.objects.ranges.get(words.word()?)?.at(words.number()?);
    let mut value = [0_u64; 8];
    // SAFETY: room for the largest attribute.
    unsafe { driver::cuPointerGetAttribute(value.as_mut_ptr().cast(), number, at) }?;
    let [value, ..] = value;
    Ok(value.to_string())
}

/// `attributes X OFFSET NUMBER...`: pointer attributes, all by one call, eight bytes each.
fn attributes(session: &Session, words: &mut Words<'_>) -> Answer {
    let at = session.objects.ranges.get(words.word()?)?.at(words.number()?);
    let mut asked: Vec<c_uint> = Vec::new();
    while let Some(word) = words.next() {
        asked.push(word.parse().map_err(|_| format!("{word} is no attribute"))?);
    }
    let mut values = vec![[0_u64; 8]; asked.len()];
    let mut places: Vec<*mut c_void> = values.iter_mut().map(|value| value.as_mut_ptr().cast()).collect();
    let count = c_uint::try_from(asked.len()).map_err(|error| error.to_string())?;
    let (asked, places) = (asked.as_mut_ptr(), places.as_mut_ptr());
    // SAFETY: as many numbers, and as many places with room for the largest attribute.
    unsafe { driver::cuPointerGetAttributes(count, asked, places, at) }?;
    Ok(values.iter().map(|[value, ..]| value.to_string()).collect::<Vec<_>>().join(" "))
}

/// `aligned X BYTES`: whether the address is a multiple.
fn aligned(session: &Session, words: &mut Words<'_>) -> Answer {
    let range = session.objects.ranges.get(words.word()?)?;
    Ok(range.address.0.is_multiple_of(words.number()?).to_string())
}

/// `ipc-get X OFFSET`: the handle's bytes.
fn ipc_get(session: &Session, words: &mut Words<'_>) -> Answer {
    let at = session.objects.ranges.get(words.word()?)?.at(words.number()?);
    let mut handle = cuda_sys::IpcMemHandle { reserved: [0; cuda_sys::IPC_HANDLE_SIZE] };
    // SAFETY: a place for the handle.
    unsafe { driver::cuIpcGetMemHandle(&raw mut handle, at) }?;
    Ok(to_hex(&handle.reserved))
}

/// `ipc-open X SIZE HEX [FLAGS]`
fn ipc_open(session: &Session, words: &mut Words<'_>) -> Answer {
    const LAZY_PEER_ACCESS: u32 = 1;
    let (name, size, bytes) = (words.word()?, words.size()?, from_hex(words.word()?)?);
    let reserved = bytes.try_into().map_err(|_| "a handle has 64 bytes".to_owned())?;
    let flags =
        words.next().map_or(Ok(LAZY_PEER_ACCESS), |word| word.parse().map_err(|_| "flags".to_owned()))?;
    let mut address = DevicePtr(0);
    let handle = cuda_sys::IpcMemHandle { reserved };
    // SAFETY: a place for the address.
    unsafe { driver::cuIpcOpenMemHandle_v2(&raw mut address, handle, flags) }?;
    session.objects.ranges.put(name, Range { address, size });
    Ok(String::new())
}

/// `ipc-close X`
fn ipc_close(session: &Session, words: &mut Words<'_>) -> Answer {
    let range = session.objects.ranges.get(words.word()?)?;
    // SAFETY: what the line asks for; it does not use the memory afterwards.
    unsafe { driver::cuIpcCloseMemHandle(range.address) }?;
    Ok(String::new())
}
