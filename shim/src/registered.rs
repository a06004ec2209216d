//! Host memory that the program has registered, where the library is to register it anew.
//!
//! The driver carries registrations (580.159.04), so this is for systems where it is reported not to:
//! `NVSNAP_GPUSHARE_REREGISTER` switches it on, and without it nothing is noted. A registration comes in once the driver
//! has made it, and goes before the driver is asked to end it; both under the pass. `release` ends what is here and
//! `load` makes it again, in the order in which the program did, each marked after its driver call.

use core::ffi::{c_uint, c_void};
use std::collections::BTreeMap;
use std::sync::Mutex;

use cuda_sys::{Context, DevicePtr};

use crate::fresh::{Fresh, lock};
use crate::{answers, config};

/// A range that the program has registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Registration {
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) flags: c_uint,
    /// By which form of the call.
    pub(crate) form: Form,
    /// Which was current.
    pub(crate) context: Context,
    pub(crate) standing: Standing,
}

/// The forms of the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// `cuMemHostRegister`
    First,
    /// `cuMemHostRegister_v2`
    Second,
}

/// Whether the driver knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    Live,
    /// Ended by `release`; where devices reached it, if they did.
    Dropped(Option<DevicePtr>),
}

/// Registrations are named by their place in the order in which they were made.
#[derive(Debug, Default)]
struct Table {
    next: u64,
    all: BTreeMap<u64, Registration>,
}

static TABLE: Fresh<Mutex<Table>> = Fresh::new();

/// Notes what the driver has just registered in the current context.
pub(crate) fn noted(start: *mut c_void, len: usize, flags: c_uint, form: Form) {
    if !config::reregister() {
        return;
    }
    let (start, context) = (start.expose_provenance(), answers::current());
    let mut table = lock(TABLE.get());
    // One that ended past the hooks: the driver would not have made this one else.
    table.all.retain(|_, other| other.start != start);
    let name = table.next;
    table.next += 1;
    let standing = Standing::Live;
    table.all.insert(name, Registration { start, len, flags, form, context, standing });
}

/// The registration that the driver is about to be asked to end.
pub(crate) fn leave(start: *mut c_void) -> Leaving {
    if !config::reregister() {
        return Leaving(None);
    }
    let taken = lock(TABLE.get()).all.extract_if(.., |_, it| it.start == start.addr()).next();
    Leaving(taken)
}

/// A registration out of the table, for the time of a driver call.
#[derive(Debug)]
#[must_use = "dropped, it is put back"]
pub(crate) struct Leaving(Option<(u64, Registration)>);

impl Leaving {
    /// The driver has ended it.
    pub(crate) fn gone(mut self) {
        self.0 = None;
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some((name, registration)) = self.0.take() {
            lock(TABLE.get()).all.insert(name, registration);
        }
    }
}

/// A context is gone, and what was registered in it.
pub(crate) fn context_gone(context: Context) {
    lock(TABLE.get()).all.retain(|_, it| it.context != context);
}

/// All of them by name, in the order in which they were made.
pub(crate) fn all() -> Vec<(u64, Registration)> {
    lock(TABLE.get()).all.iter().map(|(name, it)| (*name, *it)).collect()
}

/// Marks one.
pub(crate) fn stand(name: u64, standing: Standing) {
    if let Some(it) = lock(TABLE.get()).all.get_mut(&name) {
        it.standing = standing;
    }
}

/// Forgets one that the driver does not know.
pub(crate) fn forget(name: u64) {
    lock(TABLE.get()).all.remove(&name);
}

/// Forgets what the parent had: called in a forked child, where it does not work.
pub(crate) fn forked() {
    TABLE.forked();
}
