//! Streams of the library's own.

use std::sync::atomic::{AtomicBool, Ordering};

use cuda_sys::Stream;

use crate::driver::real;

/// `CU_STREAM_NON_BLOCKING`: work of the legacy stream does not wait for it, nor it for that.
const NON_BLOCKING: u32 = 1;

/// Whether it was said that there is no memory for a stream. A card with no byte free has none, suspend after suspend.
static SAID: AtomicBool = AtomicBool::new(false);

/// A stream in the current context; the default one, which is slower, where the driver has no memory for it.
pub(super) fn own_stream() -> Stream {
    let mut stream = Stream::NULL;
    // SAFETY: `stream` is writable.
    match unsafe { real::cuStreamCreate(&raw mut stream, NON_BLOCKING) } {
        Ok(()) => stream,
        Err(error) => {
            if !SAID.swap(true, Ordering::Relaxed) {
                log!("cuStreamCreate: {error}; the default stream does, now and later");
            }
            Stream::NULL
        }
    }
}

/// Gives it back, in its context. Nothing uses it any more.
pub(super) fn end_stream(stream: Stream) {
    if stream.is_null() {
        return;
    }
    // SAFETY: our own stream, as the caller says not used any more.
    if let Err(error) = unsafe { real::cuStreamDestroy_v2(stream) } {
        log!("cuStreamDestroy_v2: {error}");
    }
}
