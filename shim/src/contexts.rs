//! The contexts of the process, so that a drain knows what to wait for.
//!
//! Contexts come in by the hooks of what makes them. A primary context that somebody obtained past the hooks is
//! found when a drain begins, by asking the driver about each device.
//!
//! While a thread of ours waits for the work of a context, nobody may destroy it: [`leave`] takes it out of the
//! table, so that no wait begins any more, and returns when none is under way.

mod watch;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use core::ffi::{c_int, c_uint};

use cuda_sys::{Context, CuError, Device, GreenContext};
use protocol::ContextState;

use self::watch::Watch;
use crate::driver::real;
use crate::fresh::{Fresh, lock};
use crate::hooks::{malloc, refuse};
use crate::{answers, blocks, captures, registered};

/// A context of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    pub(crate) device: Device,
    pub(crate) context: Context,
}

/// How a context came to be, and so how it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Made for itself.
    Own,
    /// The one that a device's users share.
    Primary,
    /// A part of a device's primary one.
    Green(GreenContext),
}

#[derive(Debug)]
struct Entry {
    known: Known,
    kind: Kind,
    /// How often it was obtained through the hooks and not given back.
    uses: u32,
    watch: Arc<Watch>,
}

#[derive(Debug, Default)]
struct Registry {
    entries: Mutex<Vec<Entry>>,
    rounds: AtomicU64,
}

static REGISTRY: Fresh<Registry> = Fresh::new();

/// All contexts known.
pub(crate) fn all() -> Vec<Known> {
    lock(&REGISTRY.get().entries).iter().map(|entry| entry.known).collect()
}

/// All contexts known, busy where a thread of ours still waits for their work. No driver call.
pub(crate) fn states() -> Vec<ContextState> {
    let watches: Vec<_> = watches();
    watches.iter().map(|watch| watch.state()).collect()
}

/// Forgets the parent's contexts: called in a forked child, where they do not work.
pub(crate) fn forked() {
    REGISTRY.forked();
}

/// Records that the program obtained `context`, once more if it is known.
pub(crate) fn obtained(context: Context, device: Device, kind: Kind) {
    let mut entries = lock(&REGISTRY.get().entries);
    match entries.iter_mut().find(|entry| entry.known.context == context) {
        Some(entry) => entry.uses += 1,
        None => {
            let known = Known { device, context };
            entries.push(Entry { known, kind, uses: 1, watch: Arc::new(Watch::new(known)) });
        }
    }
}

/// What goes with the driver call that is about to be made. Where that call fails, all is put back.
#[derive(Debug, Default)]
#[must_use = "dropped, all is put back"]
pub(crate) struct Leaving {
    /// Contexts that may go.
    entries: Vec<Entry>,
    /// A context that only loses a use.
    used: Option<Context>,
}

impl Leaving {
    /// The call succeeded, and the contexts are gone.
    pub(crate) fn gone(mut self) {
        self.used = None;
        for entry in self.entries.drain(..) {
            captures::context_gone(entry.known.context);
            refuse::context_gone(entry.known.context);
            malloc::context_gone(entry.known.context);
            answers::context_gone(entry.known.context);
            blocks::context_destroyed(entry.known.context);
            registered::context_gone(entry.known.context);
        }
    }

    /// The call succeeded, but the contexts have other users, whom no hook has seen.
    pub(crate) fn live_on(mut self) {
        self.used = None;
        self.entries.iter_mut().for_each(|entry| entry.uses = entry.uses.saturating_sub(1));
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let mut entries = lock(&REGISTRY.get().entries);
        for mut entry in self.entries.drain(..) {
            entry.watch = Arc::new(Watch::new(entry.known));
            entries.push(entry);
        }
        let used = self.used.take();
        if let Some(entry) = entries.iter_mut().find(|entry| Some(entry.known.context) == used) {
            entry.uses += 1;
        }
    }
}

/// The program is about to destroy a context. Returns when no thread of ours uses it any more, which is when its
/// work is done, if one does.
pub(crate) fn leave(context: Context) -> Leaving {
    take_out(|entry| entry.known.context == context)
}

/// The program is about to destroy a green context.
pub(crate) fn leave_green(green: GreenContext) -> Leaving {
    take_out(|entry| entry.kind == Kind::Green(green))
}

/// The program is about to reset a device's primary context, whoever else uses it.
pub(crate) fn leave_primary(device: Device) -> Leaving {
    take_out(|entry| entry.kind == Kind::Primary && entry.known.device == device)
}

/// The program is about to give back one use of what `matches`; with the last one the context goes.
pub(crate) fn give_back(matches: impl Fn(Known, Kind) -> bool) -> Leaving {
    let mut entries = lock(&REGISTRY.get().entries);
    let used = entries.iter_mut().find(|entry| matches(entry.known, entry.kind) && entry.uses > 1);
    if let Some(entry) = used {
        entry.uses -= 1;
        return Leaving { entries: Vec::new(), used: Some(entry.known.context) };
    }
    drop(entries);
    take_out(|entry| matches(entry.known, entry.kind))
}

fn take_out(leaves: impl Fn(&Entry) -> bool) -> Leaving {
    let entries: Vec<Entry> = lock(&REGISTRY.get().entries).extract_if(.., |entry| leaves(entry)).collect();
    entries.iter().for_each(|entry| entry.watch.retire());
    Leaving { entries, used: None }
}

fn watches() -> Vec<Arc<Watch>> {
    lock(&REGISTRY.get().entries).iter().map(|entry| entry.watch.clone()).collect()
}

/// A look at whether the work that every context has been given so far is done.
#[derive(Debug)]
pub(crate) struct Look {
    round: u64,
    watches: Vec<Arc<Watch>>,
}

/// What a look found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The contexts.
    pub(crate) contexts: Vec<ContextState>,
    /// What a context said when asked for its work: an error of the program that stays.
    pub(crate) error: Option<CuError>,
}

impl Found {
    /// Whether all work was done.
    pub(crate) fn idle(&self) -> bool {
        self.contexts.iter().all(|context| !context.busy)
    }
}

/// Begins a look: for every context a thread that waits for its work, since that may take long. No capture may be
/// under way, and none begin: waiting for a context invalidates the captures in it.
pub(crate) fn look() -> Look {
    find_primaries();
    let round = REGISTRY.get().rounds.fetch_add(1, Ordering::Relaxed) + 1;
    let watches = watches();
    watches.iter().for_each(|watch| watch.begin(round));
    Look { round, watches }
}

impl Look {
    /// Waits for the end of the look, until `deadline` at most.
    pub(crate) fn wait(&self, deadline: Instant) -> Found {
        let mut found = Found::default();
        for watch in &self.watches {
            let idle = watch.wait(self.round, deadline);
            let device = watch.known().device.0;
            found.contexts.push(ContextState { device, busy: idle.is_none() });
            found.error = found.error.or(idle.and_then(Result::err));
        }
        found
    }
}

/// Records the primary contexts that are active and not known.
fn find_primaries() {
    let mut count: c_int = 0;
    // SAFETY: `count` is writable.
    if let Err(error) = unsafe { real::cuDeviceGetCount(&raw mut count) } {
        log!("cuDeviceGetCount: {error}");
    }
    for device in (0..count).map(Device) {
        let known = |entry: &Entry| entry.kind == Kind::Primary && entry.known.device == device;
        if !lock(&REGISTRY.get().entries).iter().any(known) && is_active(device) {
            find_primary(device);
        }
    }
}

/// Whether anybody uses the primary context of a device.
pub(crate) fn is_active(device: Device) -> bool {
    let (mut flags, mut active): (c_uint, c_int) = (0, 0);
    // SAFETY: both are writable.
    unsafe { real::cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut active) }.is_ok()
        && active != 0
}

/// Holds the context for a moment to learn its name. Somebody else holds it too, so this neither makes nor ends it.
fn find_primary(device: Device) {
    let mut context = Context::NULL;
    // SAFETY: `context` is writable.
    if let Err(error) = unsafe { real::cuDevicePrimaryCtxRetain(&raw mut context, device) } {
        log!("cuDevicePrimaryCtxRetain of device {}: {error}", device.0);
        return;
    }
    obtained(context, device, Kind::Primary);
    // SAFETY: retained above.
    if let Err(error) = unsafe { real::cuDevicePrimaryCtxRelease_v2(device) } {
        log!("cuDevicePrimaryCtxRelease_v2 of device {}: {error}", device.0);
    }
}
