//! Work: streams with their queues, the threads that run them, and what can be queued.

use cuda_sys::CuResult;

use crate::driver::Driver;
use crate::trace::violation;

mod array_copies;
pub(crate) mod capture;
pub(crate) mod copy;
pub(crate) mod copy_calls;
pub(crate) mod event;
pub(crate) mod forms;
pub(crate) mod graph;
pub(crate) mod graph_nodes;
mod hashing;
pub(crate) mod kernels;
pub(crate) mod launch;
pub(crate) mod memory_ops;
pub(crate) mod module;
pub(crate) mod op;
pub(crate) mod per_thread;
pub(crate) mod stream;
pub(crate) mod stream_calls;

use op::Op;
use stream::{Stream, Ticket};

/// Gives a stream work to run, or to the graph that it captures; then there is no ticket.
pub(crate) fn submit(stream: &'static Stream, op: Op, after: Vec<Ticket>) -> CuResult<Option<Ticket>> {
    if stream.part.is_capturing() {
        return capture::add(stream, op).map(|()| None);
    }
    capture::legacy_is_free(stream)?;
    stream.submit(op, after).map(Some)
}

/// Waits until no context has work on a device.
pub(crate) fn wait_for_device(driver: &Driver, ordinal: usize) {
    for context in driver.contexts.living() {
        if context.ordinal() == ordinal {
            context.wait();
        }
    }
}

/// Whether no work of the process is pending.
pub(crate) fn is_idle(driver: &Driver) -> bool {
    driver.contexts.living().iter().all(|context| context.streams().into_iter().all(Stream::is_idle))
}

/// Notes the violation if work that has not completed uses a range. The caller goes on all the same, as the driver does.
pub(crate) fn note_pending(driver: &Driver, call: &str, at: usize, size: usize) {
    let end = at.saturating_add(size);
    for context in driver.contexts.living() {
        for stream in context.streams() {
            stream.pending(|op| {
                op.touches(&mut |address, length| {
                    if address < end && at < address.saturating_add(length) {
                        violation(format_args!(
                            "{call}: pending work ({}) uses {at:#x}+{size:#x}",
                            op.name()
                        ));
                    }
                });
            });
        }
    }
}
