//! Start-up, contexts, streams, events and launches.

use std::ffi::c_uint;

use cuda_sys::{Context, CuError, Device, DevicePtr, Event, Stream};

use super::words::{Words, number};
use super::{Answer, Session, Trouble};
use crate::driver::{self, Kernels};

pub(super) fn obey(session: &Session, verb: &str, words: &mut Words<'_>) -> Option<Answer> {
    Some(match verb {
        "init" => init(),
        "context" => context(session, words),
        "no-context" => no_context(),
        "current" => current(session),
        "begin" => begin(session, words),
        "version" => version(),
        "devices" => devices(),
        "stream" => stream(session, words),
        "destroy-stream" => destroy_stream(session, words),
        "launch" => launch(session, words),
        "fill" | "add" | "noise" => change(session, verb, words),
        "sum" => sum(session, words),
        "sync" => sync(session, words),
        "query" => query(session, words),
        "event" => event(session, words),
        "record" => record(session, words),
        "event-query" => event_query(session, words),
        "event-sync" => event_sync(session, words),
        "wait-event" => wait_event(session, words),
        "handle-of" => handle_of(session, words),
        "elapsed" => elapsed(session, words),
        _ => return None,
    })
}

/// `init`
fn init() -> Answer {
    // SAFETY: no demands.
    unsafe { driver::cuInit(0) }?;
    Ok(String::new())
}

/// `context DEVICE`: the primary context becomes this thread's current one.
fn context(session: &Session, words: &mut Words<'_>) -> Answer {
    let ordinal: i32 = words.parse()?;
    let mut found = Context::NULL;
    // SAFETY: a place for the context.
    unsafe { driver::cuDevicePrimaryCtxRetain(&raw mut found, Device(ordinal)) }?;
    session.objects.contexts.put(&ordinal.to_string(), found);
    // SAFETY: a context just given.
    unsafe { driver::cuCtxSetCurrent(found) }?;
    Ok(String::new())
}

/// `no-context`: none is current on this thread any more.
fn no_context() -> Answer {
    // SAFETY: null is allowed.
    unsafe { driver::cuCtxSetCurrent(Context::NULL) }?;
    Ok(String::new())
}

/// `current`: the device of the current context, or `none`.
fn current(session: &Session) -> Answer {
    let mut found = Context::NULL;
    // SAFETY: a place for the context.
    unsafe { driver::cuCtxGetCurrent(&raw mut found) }?;
    if found.is_null() {
        return Ok("none".to_owned());
    }
    let device = device()?;
    let primary = session.objects.contexts.find(&device.to_string()) == Some(found);
    Ok(format!("{device} {}", if primary { "primary" } else { "other" }))
}

fn device() -> Result<i32, CuError> {
    let mut device = Device(-1);
    // SAFETY: a place for the ordinal.
    unsafe { driver::cuCtxGetDevice(&raw mut device) }?;
    Ok(device.0)
}

/// `begin DEVICE`: the context, the kernels, and a little memory for results.
fn begin(session: &Session, words: &mut Words<'_>) -> Answer {
    init()?;
    context(session, words)?;
    let device = device()?;
    // They are used to the end of the program.
    session.objects.kernels.put(&device.to_string(), Box::leak(Box::new(Kernels::load()?)));
    let mut scratch = DevicePtr(0);
    // SAFETY: a place for the address.
    unsafe { driver::cuMemAlloc_v2(&raw mut scratch, 8) }?;
    session.objects.scratch.put(&device.to_string(), scratch);
    Ok(String::new())
}

/// `version`
fn version() -> Answer {
    let mut version = 0;
    // SAFETY: a place for the number.
    unsafe { driver::cuDriverGetVersion(&raw mut version) }?;
    Ok(version.to_string())
}

/// `devices`: how many.
fn devices() -> Answer {
    let mut count = 0;
    // SAFETY: a place for the number.
    unsafe { driver::cuDeviceGetCount(&raw mut count) }?;
    Ok(count.to_string())
}

/// `stream S [blocking]`: one that does not wait for the default stream, or one that does.
fn stream(session: &Session, words: &mut Words<'_>) -> Answer {
    const NON_BLOCKING: c_uint = 1;
    let name = words.word()?;
    let flags = if words.next() == Some("blocking") { 0 } else { NON_BLOCKING };
    let mut stream = Stream::NULL;
    // SAFETY: a place for the stream.
    unsafe { driver::cuStreamCreate(&raw mut stream, flags) }?;
    session.objects.streams.put(name, stream);
    Ok(String::new())
}

/// `destroy-stream S`
fn destroy_stream(session: &Session, words: &mut Words<'_>) -> Answer {
    let stream = named(session, words.word()?)?;
    // SAFETY: what the line asks for; it does not use the stream afterwards.
    unsafe { driver::cuStreamDestroy_v2(stream) }?;
    Ok(String::new())
}

/// A stream by name; `null` is the default stream of all threads, `own` that of this one.
pub(super) fn named(session: &Session, name: &str) -> Result<Stream, String> {
    match name {
        "null" => Ok(Stream::NULL),
        // `CU_STREAM_PER_THREAD`
        "own" => Ok(Stream(std::ptr::without_provenance_mut(2))),
        _ => session.objects.streams.get(name),
    }
}

/// `launch STREAM KERNEL ARGUMENT...`: an argument is `u32:N`, `u64:N`, `X` or `X+OFFSET`. Does not wait.
fn launch(session: &Session, words: &mut Words<'_>) -> Answer {
    let (stream, kernel) = (named(session, words.word()?)?, words.word()?);
    let mut arguments = Vec::new();
    while let Some(word) = words.next() {
        arguments.push(argument(session, word)?);
    }
    start(session, stream, kernel, &mut arguments)?;
    Ok(String::new())
}

fn argument(session: &Session, word: &str) -> Result<u64, Trouble> {
    if let Some((_, value)) = word.split_once(':') {
        return Ok(number(value)?);
    }
    let (name, offset) = word.split_once('+').unwrap_or((word, "0"));
    Ok(session.objects.ranges.get(name)?.at(number(offset)?).0)
}

/// Launches a kernel of the current device.
pub(super) fn start(
    session: &Session,
    stream: Stream,
    kernel: &str,
    arguments: &mut [u64],
) -> Result<(), Trouble> {
    let kernels = session.objects.kernels.get(&device()?.to_string())?;
    Ok(kernels.launch(stream, kernel, arguments)?)
}

/// `fill X OFFSET BYTES VALUE`, `add X OFFSET BYTES VALUE` and `noise X OFFSET BYTES SEED`: word by word, and waits.
fn change(session: &Session, kernel: &str, words: &mut Words<'_>) -> Answer {
    let at = session.objects.ranges.get(words.word()?)?.at(words.number()?);
    let (count, value) = (words.number()? / 4, words.number()?);
    start(session, Stream::NULL, kernel, &mut [at.0, count, value])?;
    wait_for(Stream::NULL)?;
    Ok(String::new())
}

/// `sum X OFFSET BYTES`: the checksum of the words there, computed by a kernel.
fn sum(session: &Session, words: &mut Words<'_>) -> Answer {
    let at = session.objects.ranges.get(words.word()?)?.at(words.number()?);
    let count = words.number()? / 4;
    let scratch = session.objects.scratch.get(&device()?.to_string())?;
    let mut sum = 0_u64;
    // SAFETY: eight bytes on both sides; the call waits.
    unsafe { driver::cuMemcpyHtoD_v2(scratch, (&raw const sum).cast(), 8) }?;
    start(session, Stream::NULL, "checksum", &mut [at.0, count, scratch.0])?;
    wait_for(Stream::NULL)?;
    // SAFETY: as above.
    unsafe { driver::cuMemcpyDtoH_v2((&raw mut sum).cast(), scratch, 8) }?;
    Ok(format!("{sum:016x}"))
}

fn wait_for(stream: Stream) -> Result<(), CuError> {
    // SAFETY: a stream of this program.
    unsafe { driver::cuStreamSynchronize(stream) }
}

/// `sync [STREAM]`: waits for a stream, or for the whole context.
fn sync(session: &Session, words: &mut Words<'_>) -> Answer {
    match words.next() {
        Some(name) => wait_for(named(session, name)?)?,
        // SAFETY: no demands.
        None => unsafe { driver::cuCtxSynchronize() }?,
    }
    Ok(String::new())
}

/// `query STREAM`
fn query(session: &Session, words: &mut Words<'_>) -> Answer {
    let stream = named(session, words.word()?)?;
    // SAFETY: a stream of this program.
    unsafe { driver::cuStreamQuery(stream) }?;
    Ok(String::new())
}

/// `event E`
fn event(session: &Session, words: &mut Words<'_>) -> Answer {
    let name = words.word()?;
    let mut event = Event::NULL;
    // SAFETY: a place for the event.
    unsafe { driver::cuEventCreate(&raw mut event, 0) }?;
    session.objects.events.put(name, event);
    Ok(String::new())
}

/// `record E STREAM`
fn record(session: &Session, words: &mut Words<'_>) -> Answer {
    let event = session.objects.events.get(words.word()?)?;
    let stream = named(session, words.word()?)?;
    // SAFETY: an event and a stream of this program.
    unsafe { driver::cuEventRecord(event, stream) }?;
    Ok(String::new())
}

/// `event-query E`
fn event_query(session: &Session, words: &mut Words<'_>) -> Answer {
    let event = session.objects.events.get(words.word()?)?;
    // SAFETY: an event of this program.
    unsafe { driver::cuEventQuery(event) }?;
    Ok(String::new())
}

/// `event-sync E`
fn event_sync(session: &Session, words: &mut Words<'_>) -> Answer {
    let event = session.objects.events.get(words.word()?)?;
    // SAFETY: an event of this program.
    unsafe { driver::cuEventSynchronize(event) }?;
    Ok(String::new())
}

/// `wait-event STREAM E`: what comes later on the stream waits for the event.
fn wait_event(session: &Session, words: &mut Words<'_>) -> Answer {
    let stream = named(session, words.word()?)?;
    let event = session.objects.events.get(words.word()?)?;
    // SAFETY: a stream and an event of this program.
    unsafe { driver::cuStreamWaitEvent(stream, event, 0) }?;
    Ok(String::new())
}

/// `elapsed E F`: the milliseconds from one event to the other.
fn elapsed(session: &Session, words: &mut Words<'_>) -> Answer {
    let start = session.objects.events.get(words.word()?)?;
    let end = session.objects.events.get(words.word()?)?;
    let mut milliseconds = 0.0;
    // SAFETY: a place for the number, and two events of this program.
    unsafe { driver::cuEventElapsedTime(&raw mut milliseconds, start, end) }?;
    Ok(milliseconds.to_string())
}

/// `handle-of STREAM`: the value of the stream's handle.
fn handle_of(session: &Session, words: &mut Words<'_>) -> Answer {
    Ok(format!("{:#x}", named(session, words.word()?)?.0.addr()))
}
