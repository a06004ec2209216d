//! The driver's own functions: which library they are in, where each of them is, and typed calls of them.
//!
//! libcuda is recognised by the name under which others need it, `libcuda.so.1`, wherever it was loaded from and
//! whoever loaded it; nothing here loads it. The first time it is seen, by a look-up or by a call, all its addresses are
//! stored. They are plain atomic stores of values that do not depend on who stores them, so two threads may do it at
//! once, and a libcuda that was unloaded and loaded elsewhere replaces the first.

mod loaded;
mod names;
mod new_forms;
mod object;
mod past;
pub(crate) mod real;

use core::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicUsize, Ordering};

use cuda_sys::CuError;
use shim_core::calls::CallId;

pub(crate) use new_forms::{blocker as new_form_blocker, note as note_new_form};
use object::Object;
pub(crate) use past::blockers as past_us;

/// The name by which programs need the driver.
const SONAME: &[u8] = b"libcuda.so.1";

/// The address of each call in libcuda, in the order of the list; zero where unknown or lacking.
static ADDRESSES: [AtomicUsize; CallId::COUNT] = [const { AtomicUsize::new(0) }; CallId::COUNT];
/// Where the libcuda of `ADDRESSES` is loaded; zero before it was seen.
static BASE: AtomicUsize = AtomicUsize::new(0);

/// Whether the driver has `call`.
pub(crate) fn has(call: CallId) -> bool {
    address(call).is_ok()
}

/// Whether `address`, which a look-up of `call` gave, is libcuda's own address of it. Reachable from `resolve`.
pub(crate) fn owns(call: CallId, address: usize) -> bool {
    if known(call) == Some(address) {
        return true;
    }
    let Some(object) = loaded::around(address).filter(is_driver) else { return false };
    adopt(&object);
    known(call) == Some(address)
}

/// What a name is that a program looks up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Name {
    /// A call we stand in front of.
    Call(CallId),
    /// Not in the list, but a form of this call, which is.
    NewForm(CallId),
    /// Somebody else's, or a call that needs nobody in front of it.
    Other,
}

impl Name {
    /// Reachable from `resolve`.
    ///
    /// # Safety
    /// `name` is a C string.
    pub(crate) unsafe fn of(name: *const c_char) -> Self {
        // SAFETY: the caller's.
        let Some(bytes) = (unsafe { names::bytes(name) }) else { return Self::Other };
        if let Some(call) = names::named(bytes) {
            return Self::Call(call);
        }
        names::newest_form(bytes).map_or(Self::Other, Self::NewForm)
    }
}

/// Whether two names are forms of one call.
pub(crate) fn same_base(one: &str, other: &str) -> bool {
    names::base(one.as_bytes()) == names::base(other.as_bytes())
}

/// Notes a look-up of a form of `call` that we do not know, if there is a driver that has it. Reachable from `resolve`.
///
/// # Safety
/// `name` is a C string.
pub(crate) unsafe fn note_if_exported(call: CallId, name: *const c_char) {
    // SAFETY: the caller's.
    let Ok(name) = (unsafe { CStr::from_ptr(name) }).to_str() else { return };
    if loaded::first(|object| object.function(name).filter(|_| is_driver(object))).is_some() {
        new_forms::note(call);
    }
}

/// Which call the driver has at `address`.
pub(crate) fn call_at(address: usize) -> Option<CallId> {
    let at = ADDRESSES.iter().position(|known| known.load(Ordering::Acquire) == address)?;
    CallId::ALL.get(at).copied()
}

/// The address a call goes to.
#[inline]
fn address(call: CallId) -> Result<usize, CuError> {
    match known(call) {
        Some(address) => Ok(address),
        None => find(call),
    }
}

#[inline]
fn known(call: CallId) -> Option<usize> {
    let address = ADDRESSES.get(call.index())?.load(Ordering::Acquire);
    (address != 0).then_some(address)
}

/// Finds libcuda for a call that nobody looked up: a program that was linked with it.
#[cold]
fn find(call: CallId) -> Result<usize, CuError> {
    if BASE.load(Ordering::Acquire) == 0
        && let Some(object) = loaded::first(|object| is_driver(object).then_some(*object))
    {
        adopt(&object);
    }
    if let Some(address) = known(call) {
        return Ok(address);
    }
    if BASE.load(Ordering::Acquire) != 0 {
        // Without us the program would not have found it.
        return Err(CuError::CALL_REQUIRES_NEWER_DRIVER);
    }
    // A library of trampolines, which has yet to load libcuda, stands where we stand.
    behind_us(call.name()).ok_or(CuError::STUB_LIBRARY)
}

/// Whether any loaded object but this one exports `call`. Reachable from `resolve`.
pub(crate) fn exported_beside_us(call: CallId) -> bool {
    own_base().is_none_or(|own| {
        loaded::first(|object| object.function(call.name()).filter(|_| object.base() != own)).is_some()
    })
}

/// The address of `name` in the first object that was loaded after us and exports it.
pub(crate) fn behind_us(name: &str) -> Option<usize> {
    let own = own_base()?;
    let mut passed = false;
    loaded::first(|object| {
        if passed {
            return object.function(name);
        }
        passed = object.base() == own;
        None
    })
}

fn own_base() -> Option<usize> {
    Some(loaded::around((own_base as *const ()).addr())?.base())
}

fn is_driver(object: &Object) -> bool {
    object.soname().is_some_and(|name| name.to_bytes() == SONAME)
}

/// Stores where everything is in this libcuda.
fn adopt(object: &Object) {
    for (call, address) in CallId::ALL.iter().zip(&ADDRESSES) {
        address.store(object.function(call.name()).unwrap_or(0), Ordering::Release);
    }
    real::adopt(object);
    BASE.store(object.base(), Ordering::Release);
}
