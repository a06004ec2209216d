//! Multicast objects. An object is a handle like any other: it is exported, imported, shown and released by the same verbs.

use cuda_sys::{Device, HandleType, MemHandle, MulticastObjectProp};

use super::words::Words;
use super::{Answer, Session};
use crate::driver;

pub(super) fn obey(session: &Session, verb: &str, words: &mut Words<'_>) -> Option<Answer> {
    Some(match verb {
        "team" => team(session, words),
        "join" => join(session, words),
        "bind" => bind(session, words),
        "bind-at" => bind_at(session, words),
        "unbind" => unbind(session, words),
        _ => return None,
    })
}

/// `team T SIZE DEVICES [fabric]`: a new object that can be exported as a descriptor, or over a fabric.
fn team(session: &Session, words: &mut Words<'_>) -> Answer {
    let (name, size, num_devices) = (words.word()?, words.size()?, words.parse()?);
    let types = if words.next().is_some() { HandleType::FABRIC } else { HandleType::POSIX_FD };
    let prop = MulticastObjectProp { num_devices, size, handle_types: types.0.into(), flags: 0 };
    let mut handle = MemHandle::NONE;
    // SAFETY: a place for the handle, and properties that live through the call.
    unsafe { driver::cuMulticastCreate(&raw mut handle, &raw const prop) }?;
    session.objects.handles.put(name, handle);
    Ok(String::new())
}

/// `join T DEVICE`: adds a device to the object.
fn join(session: &Session, words: &mut Words<'_>) -> Answer {
    let (object, device) = (session.objects.handles.get(words.word()?)?, words.parse()?);
    // SAFETY: what the line asks for.
    unsafe { driver::cuMulticastAddDevice(object, Device(device)) }?;
    Ok(String::new())
}

/// The device that a line names at its end, for the form of the call that takes one.
fn named(words: &mut Words<'_>) -> Result<Option<Device>, String> {
    match words.clone().next() {
        Some(_) => Ok(Some(Device(words.parse()?))),
        None => Ok(None),
    }
}

/// `bind T OFFSET SIZE H OFFSET [DEVICE]`: memory by its handle.
fn bind(session: &Session, words: &mut Words<'_>) -> Answer {
    let (object, at, size) = (session.objects.handles.get(words.word()?)?, words.size()?, words.size()?);
    let (memory, from) = (session.objects.handles.get(words.word()?)?, words.size()?);
    match named(words)? {
        // SAFETY: what the line asks for.
        None => unsafe { driver::cuMulticastBindMem(object, at, memory, from, size, 0) }?,
        // SAFETY: as above.
        Some(device) => unsafe { driver::cuMulticastBindMem_v2(object, device, at, memory, from, size, 0) }?,
    }
    Ok(String::new())
}

/// `bind-at T OFFSET SIZE RANGE OFFSET [DEVICE]`: memory by its address.
fn bind_at(session: &Session, words: &mut Words<'_>) -> Answer {
    let (object, at, size) = (session.objects.handles.get(words.word()?)?, words.size()?, words.size()?);
    let memory = session.objects.ranges.get(words.word()?)?.at(words.number()?);
    match named(words)? {
        // SAFETY: what the line asks for.
        None => unsafe { driver::cuMulticastBindAddr(object, at, memory, size, 0) }?,
        // SAFETY: as above.
        Some(device) => unsafe { driver::cuMulticastBindAddr_v2(object, device, at, memory, size, 0) }?,
    }
    Ok(String::new())
}

/// `unbind T DEVICE OFFSET SIZE`
fn unbind(session: &Session, words: &mut Words<'_>) -> Answer {
    let (object, device) = (session.objects.handles.get(words.word()?)?, words.parse()?);
    let (at, size) = (words.size()?, words.size()?);
    // SAFETY: what the line asks for.
    unsafe { driver::cuMulticastUnbind(object, Device(device), at, size) }?;
    Ok(String::new())
}
