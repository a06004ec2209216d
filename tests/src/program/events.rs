//! Events that several processes use.

use cuda_sys::{Event, IPC_HANDLE_SIZE, IpcEventHandle};

use super::memory::{from_hex, to_hex};
use super::words::Words;
use super::{Answer, Session};
use crate::driver;

pub(super) fn obey(session: &Session, verb: &str, words: &mut Words<'_>) -> Option<Answer> {
    Some(match verb {
        "shared-event" => shared_event(session, words),
        "event-handle" => event_handle(session, words),
        "open-event" => open_event(session, words),
        "destroy-event" => destroy_event(session, words),
        _ => return None,
    })
}

/// `shared-event E`
fn shared_event(session: &Session, words: &mut Words<'_>) -> Answer {
    const WITHOUT_TIMES: u32 = 2;
    const INTERPROCESS: u32 = 4;
    let name = words.word()?;
    let mut event = Event::NULL;
    // SAFETY: a place for the event.
    unsafe { driver::cuEventCreate(&raw mut event, WITHOUT_TIMES | INTERPROCESS) }?;
    session.objects.events.put(name, event);
    Ok(String::new())
}

/// `event-handle E`: the handle's bytes.
fn event_handle(session: &Session, words: &mut Words<'_>) -> Answer {
    let event = session.objects.events.get(words.word()?)?;
    let mut handle = IpcEventHandle { reserved: [0; IPC_HANDLE_SIZE] };
    // SAFETY: a place for the handle, and an event of this program.
    unsafe { driver::cuIpcGetEventHandle(&raw mut handle, event) }?;
    Ok(to_hex(&handle.reserved))
}

/// `open-event E HEX`
fn open_event(session: &Session, words: &mut Words<'_>) -> Answer {
    let (name, bytes) = (words.word()?, from_hex(words.word()?)?);
    let reserved = bytes.try_into().map_err(|_| "a handle has 64 bytes".to_owned())?;
    let mut event = Event::NULL;
    // SAFETY: a place for the event.
    unsafe { driver::cuIpcOpenEventHandle(&raw mut event, IpcEventHandle { reserved }) }?;
    session.objects.events.put(name, event);
    Ok(String::new())
}

/// `destroy-event E`
fn destroy_event(session: &Session, words: &mut Words<'_>) -> Answer {
    let event = session.objects.events.get(words.word()?)?;
    // SAFETY: what the line asks for; the line does not use it afterwards.
    unsafe { driver::cuEventDestroy_v2(event) }?;
    Ok(String::new())
}
