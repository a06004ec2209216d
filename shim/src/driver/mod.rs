//! The driver's own functions.

pub(crate) mod real;

use std::sync::atomic::{AtomicUsize, Ordering};

use shim_core::calls::CallId;

/// The address of each call in libcuda, in the order of the list; zero while unknown.
static ADDRESSES: [AtomicUsize; CallId::COUNT] = [const { AtomicUsize::new(0) }; CallId::COUNT];

/// Whether the driver has `call`.
#[allow(dead_code, reason = "for the verbs")]
pub(crate) fn has(call: CallId) -> bool {
    address(call).is_some()
}

/// The driver's own address of `call`.
fn address(call: CallId) -> Option<usize> {
    let address = ADDRESSES.get(call.index())?.load(Ordering::Acquire);
    (address != 0).then_some(address)
}
