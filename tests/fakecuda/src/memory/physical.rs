//! A piece of memory, counted against its device until the last reference is gone.
//!
//! References are: handles and mappings (they hold the [`Physical`]), and exported descriptors, importers included (they hold
//! its share). The native driver counts the same way: a descriptor keeps the memory after its exporter let go.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cuda_sys::{AllocationProp, CuError, CuResult, HandleType};

use super::multicast::team::Team;
use super::pool::Pool;
use crate::driver::{Driver, driver};
use crate::machine::shares::{Held, Kind};

/// Where memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// On the device with this ordinal.
    Device(usize),
    /// On a NUMA node of the host.
    Host(c_int),
}

/// By what the memory is counted and kept.
#[derive(Debug)]
enum Keep {
    /// Counted for this process alone, on this device of the machine; none for memory of the host.
    Alone(Option<usize>),
    /// Counted by its share.
    Shared(Held),
    /// Not on any device: the process is checkpointed.
    Host,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Physical {
    pub(crate) id: u64,
    pub(crate) size: usize,
    pub(crate) place: Place,
    /// As given to `cuMemCreate`; `None` for what that did not make.
    pub(crate) prop: Option<AllocationProp>,
    pub(crate) imported: bool,
    /// A multicast object: no bytes of its own, but those that its members have bound.
    pub(super) team: Option<Team>,
    /// Brought back by the driver's own restore.
    pub(crate) restored: AtomicBool,
    pool: Arc<Pool>,
    offset: AtomicUsize,
    keep: Mutex<Keep>,
}

/// What an importer is told of a piece of memory; the descriptors travel beside it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) share: usize,
    pub(super) id: u64,
    pub(super) offset: usize,
    pub(super) size: usize,
}

impl Physical {
    /// New memory, full of zeros.
    pub(crate) fn create(
        driver: &'static Driver,
        size: usize,
        place: Place,
        prop: Option<AllocationProp>,
        exportable: bool,
    ) -> CuResult<Arc<Self>> {
        let device = match place {
            Place::Device(ordinal) => Some(driver.physical(ordinal)?),
            Place::Host(_) => None,
        };
        if let Some(device) = device {
            driver.machine.charge(device, size)?;
        }
        let pool = driver.memory.own_pool(exportable);
        let Some(offset) = pool.take(size) else {
            if let Some(device) = device {
                driver.machine.discharge(device, size);
            }
            return Err(CuError::OUT_OF_MEMORY);
        };
        let pool = Arc::clone(pool);
        Ok(Self::enter(driver, pool, offset, size, place, prop, false, Keep::Alone(device), None))
    }

    /// Memory of another process, or of this one.
    pub(super) fn import(
        driver: &'static Driver,
        pool: Arc<Pool>,
        origin: Origin,
        place: Place,
        prop: Option<AllocationProp>,
        held: Held,
    ) -> Arc<Self> {
        Self::enter(driver, pool, origin.offset, origin.size, place, prop, true, Keep::Shared(held), None)
    }

    /// A multicast object, made here or elsewhere: a restore treats both like memory that was imported.
    pub(super) fn team(
        driver: &'static Driver,
        team: Team,
        size: usize,
        types: HandleType,
        held: Held,
    ) -> Arc<Self> {
        let pool = Arc::clone(driver.memory.own_pool(false));
        let prop = AllocationProp { requested_handle_types: types, ..AllocationProp::default() };
        Self::enter(driver, pool, 0, size, Place::Device(0), Some(prop), true, Keep::Shared(held), Some(team))
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of the object")]
    fn enter(
        driver: &'static Driver,
        pool: Arc<Pool>,
        offset: usize,
        size: usize,
        place: Place,
        prop: Option<AllocationProp>,
        imported: bool,
        keep: Keep,
        team: Option<Team>,
    ) -> Arc<Self> {
        let physical = Arc::new(Self {
            id: driver.memory.new_id(),
            size,
            place,
            prop,
            imported,
            team,
            restored: AtomicBool::new(false),
            pool,
            offset: AtomicUsize::new(offset),
            keep: Mutex::new(keep),
        });
        crate::lock(&driver.memory.live).insert(physical.id, Arc::downgrade(&physical));
        physical
    }

    /// Where a byte of the memory is mapped for the stand-in's own use.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        self.pool.at(self.offset.load(Ordering::Acquire) + offset)
    }

    /// Whether the memory begins at this place of its pool.
    pub(super) fn is_at(&self, offset: usize) -> bool {
        self.offset.load(Ordering::Acquire) == offset
    }

    /// The pool and the place in it, for a mapping that the host may touch.
    pub(super) fn backing(&self, offset: usize) -> (&Pool, usize) {
        (&self.pool, self.offset.load(Ordering::Acquire) + offset)
    }

    /// Makes the memory shareable, if it is not yet, and calls `with` with what an importer needs.
    pub(super) fn share<T>(
        &self,
        driver: &Driver,
        with: impl FnOnce(Origin, &Pool, &Held) -> CuResult<T>,
    ) -> CuResult<T> {
        let mut keep = crate::lock(&self.keep);
        if let Keep::Alone(device) = &*keep {
            let device = *device;
            let held = driver.machine.new_share(Kind::Memory, device, self.size)?;
            if let Some(device) = device {
                driver.machine.discharge(device, self.size);
            }
            *keep = Keep::Shared(held);
        }
        let Keep::Shared(held) = &*keep else { return Err(CuError::ILLEGAL_STATE) };
        let offset = self.offset.load(Ordering::Acquire);
        let origin = Origin { share: held.number, id: held.id, offset, size: self.size };
        with(origin, &self.pool, held)
    }

    /// Takes the memory off its device. What others still hold stays theirs, and this process gets a copy of its own
    /// (docs/DRIVER-VERSIONS.md, what a process holds: where an importer goes on "both read the right bytes, and no longer
    /// share them"). An import is given up.
    pub(crate) fn leave_device(&self, driver: &Driver) -> CuResult {
        let mut keep = crate::lock(&self.keep);
        match std::mem::replace(&mut *keep, Keep::Host) {
            Keep::Host => {}
            Keep::Alone(device) => {
                if let Some(device) = device {
                    driver.machine.discharge(device, self.size);
                }
            }
            Keep::Shared(held) => {
                let (number, id) = (held.number, held.id);
                if driver.machine.leave_share(held) || self.imported {
                    return Ok(());
                }
                let from = self.offset.load(Ordering::Acquire);
                let to = self.pool.take(self.size).ok_or(CuError::OUT_OF_MEMORY)?;
                // SAFETY: both ranges are taken in this pool, this long, and not the same.
                unsafe { self.pool.at(to).copy_from_nonoverlapping(self.pool.at(from), self.size) };
                self.offset.store(to, Ordering::Release);
                self.pool.lend(number, id, from, self.size);
            }
        }
        Ok(())
    }

    /// Brings the memory back to its device. Nothing changes where it does not fit.
    pub(crate) fn return_to_device(&self, driver: &Driver) -> CuResult {
        let mut keep = crate::lock(&self.keep);
        if !matches!(&*keep, Keep::Host) {
            return Ok(());
        }
        let device = match self.place {
            Place::Device(ordinal) => Some(driver.physical(ordinal)?),
            Place::Host(_) => None,
        };
        if let Some(device) = device {
            driver.machine.charge(device, self.size)?;
        }
        self.restored.store(true, Ordering::Release);
        *keep = Keep::Alone(device);
        Ok(())
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        // Only a process with a driver has memory, and a driver is never freed. A forked child drops nothing.
        let Ok(driver) = driver() else { return };
        crate::lock(&driver.memory.live).remove(&self.id);
        let offset = *self.offset.get_mut();
        let keep = self.keep.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        match std::mem::replace(keep, Keep::Host) {
            Keep::Shared(held) => {
                let (number, id) = (held.number, held.id);
                let last = driver.machine.leave_share(held);
                // What was imported goes back to its exporter, which looks for what nobody holds.
                if !self.imported {
                    if last {
                        self.pool.give(offset, self.size)
                    } else {
                        self.pool.lend(number, id, offset, self.size)
                    }
                }
            }
            keep => {
                if let Keep::Alone(Some(device)) = keep {
                    driver.machine.discharge(device, self.size);
                }
                if !self.imported {
                    self.pool.give(offset, self.size);
                }
            }
        }
    }
}
