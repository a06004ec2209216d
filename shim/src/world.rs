//! The process's one world, and what it takes to keep it in step with the driver.
//!
//! The tables are [`shim_core::world`]; here are the driver calls that their answers ask for. The tables' mutex is
//! a leaf: it is not held across any of these calls.

use core::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use cuda_sys::{CuError, CuResult, MemHandle};
use protocol::{AllocationId, Secret};
use shim_core::world::{Leaving, NotHere, Pin};

use crate::attached::Attached;
use crate::driver::real;
use crate::kept;
use crate::ticket;

/// The tables, with what we keep beside each allocation.
pub(crate) type World = shim_core::world::World<Attached>;

static WORLD: AtomicPtr<World> = AtomicPtr::new(ptr::null_mut());

/// What the process owns, maps and shares.
pub(crate) fn world() -> &'static World {
    // SAFETY: null, or a world that is never freed.
    match unsafe { WORLD.load(Ordering::Acquire).as_ref() } {
        Some(world) => world,
        None => begin(),
    }
}

#[cold]
fn begin() -> &'static World {
    let new = Box::into_raw(Box::new(World::new()));
    match WORLD.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: never freed.
        Ok(_) => unsafe { &*new },
        Err(other) => {
            // SAFETY: nobody else has seen it.
            drop(unsafe { Box::from_raw(new) });
            // SAFETY: never freed.
            unsafe { &*other }
        }
    }
}

/// Forgets the parent's world: called in a forked child, which owns nothing of it. Another thread may have been in the
/// middle of changing it, so it is left behind as it is.
pub(crate) fn forked() {
    WORLD.store(ptr::null_mut(), Ordering::Release);
    kept::forked();
    ticket::forked();
}

/// What the driver knows a handle by, for as long as this value lives.
#[derive(Debug)]
#[must_use = "the real handle may be released once this is dropped"]
pub(crate) struct Real {
    handle: MemHandle,
    pin: Option<Pin>,
}

impl Real {
    /// What the driver knows an allocation by, for whoever has its secret.
    pub(crate) fn of_ticket(id: AllocationId, secret: Secret) -> Result<Self, NotHere> {
        let pin = world().pin_ticket(id, secret)?;
        Ok(Self { handle: pin.real(), pin: Some(pin) })
    }

    /// What the driver knows the memory by that is mapped at an address, and which byte of it that is.
    pub(crate) fn at(address: u64) -> Option<(Self, u64)> {
        let (pin, from) = world().pin_at(address).ok()?;
        Some((Self { handle: pin.real(), pin: Some(pin) }, from))
    }

    /// The handle to pass to the driver.
    pub(crate) fn handle(&self) -> MemHandle {
        self.handle
    }

    /// The allocation, if it is one of ours.
    pub(crate) fn pin(&self) -> Option<&Pin> {
        self.pin.as_ref()
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        if let Some(leaving) = self.pin.take().and_then(|pin| world().unpin(pin)) {
            let_go(leaving);
        }
    }
}

/// What the driver knows `handle` by. A value that is not one of ours (a multicast object, garbage) is itself: the
/// driver says what it is worth. A virtual handle that names nothing any more is refused here: the driver would follow it
/// as a pointer (580.159.04 does).
pub(crate) fn real_handle(handle: MemHandle) -> CuResult<Real> {
    match world().pin(handle) {
        Ok(pin) => Ok(Real { handle: pin.real(), pin: Some(pin) }),
        Err(NotHere::NotOurs) => Ok(Real { handle, pin: None }),
        Err(NotHere::Unknown | NotHere::Secret | NotHere::Dropped) => Err(CuError::INVALID_VALUE),
    }
}

/// Gives memory back to the driver that nothing refers to any more. Where the driver refuses, a sweep tries again.
pub(crate) fn let_go(leaving: Leaving) {
    if let Some(real) = leaving.real() {
        // SAFETY: the one real handle of an allocation, which nobody can find any more.
        if let Err(error) = unsafe { real::cuMemRelease(real) } {
            log!("cuMemRelease of memory that nothing refers to: {error}; it is tried again later");
            world().abort(leaving);
            return;
        }
    }
    forget(leaving);
}

/// Ends the record of memory that the driver has taken back, and closes what was kept beside it. What it held goes as well.
pub(crate) fn forget(leaving: Leaving) {
    if let Some(gone) = world().finish(leaving) {
        drop(gone.attached);
        gone.leaving.into_iter().for_each(let_go);
    }
}

/// How many waiting allocations a call looks at.
const FEW: usize = 4;

/// Looks at a few allocations that only tickets keep. Called by calls that change objects.
pub(crate) fn sweep() {
    if world().waits() {
        world().sweep(FEW).into_iter().for_each(let_go);
    }
}

/// Looks at all allocations that only tickets keep, and says whether that freed any.
pub(crate) fn sweep_all() -> bool {
    let leaving = world().sweep(usize::MAX);
    let found = !leaving.is_empty();
    leaving.into_iter().for_each(let_go);
    found
}

/// Sweeps while the program makes no call: asked by the worker thread when it has nothing else to do, in phase
/// `Running`. Whether it should ask again in a while.
pub(crate) fn tend() -> bool {
    world().waits() && {
        sweep_all();
        world().waits()
    }
}
