//! `cuMem*` of virtual memory management.
//!
//! An allocation lives as long as a handle is counted, a mapping leads to it, or an exported descriptor is open. As measured: a
//! handle whose count is 0 still is a handle while a mapping keeps the object, but cannot be released again; retaining
//! by address counts it again, with the same value. Each import is an object of its own.

use std::ffi::c_int;
use std::sync::{Arc, Mutex};

use cuda_sys::{CuError, CuResult, LocationType, MemHandle, MemLocation};

use super::physical::{Physical, Place};
use super::space::HOST;
use crate::args;
use crate::driver::Driver;
use crate::slab::address_of;
use crate::trace::violation;

pub(crate) mod handles;
pub(crate) mod mappings;
pub(crate) mod ranges;
pub(crate) mod sharing;

/// What a handle of `cuMemCreate` names.
#[derive(Debug, Default)]
pub(crate) struct Object {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    handles: u32,
    maps: u32,
    memory: Option<Arc<Physical>>,
}

/// NUMA nodes of the host.
const NODES: c_int = 1;

impl Object {
    /// A new object with one handle.
    pub(super) fn create(driver: &'static Driver, memory: Arc<Physical>) -> MemHandle {
        let object = driver.memory.objects.insert(|object| {
            *crate::lock(&object.state) = State { handles: 1, maps: 0, memory: Some(memory) };
        });
        object.handle()
    }

    fn handle(&'static self) -> MemHandle {
        MemHandle(args::wide(address_of(self)))
    }

    /// Changes the counts, and ends the object when both are 0.
    fn count<T>(&'static self, driver: &'static Driver, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = crate::lock(&self.state);
        let result = change(&mut state);
        if state.handles == 0
            && state.maps == 0
            && let Some(memory) = state.memory.take()
        {
            drop(state);
            drop(memory);
            driver.memory.objects.remove(address_of(self));
            driver.memory.objects.recycle(self);
        }
        result
    }
}

/// The object and the memory of a handle. Any other value is a violation: with most of them the real driver crashes.
pub(super) fn named(
    driver: &Driver,
    handle: MemHandle,
    call: &str,
) -> CuResult<(&'static Object, Arc<Physical>)> {
    let object = driver.memory.objects.get(args::size(handle.0));
    let memory = object.and_then(|object| crate::lock(&object.state).memory.clone());
    match (object, memory) {
        (Some(object), Some(memory)) => Ok((object, memory)),
        _ => {
            violation(format_args!("{call}: {handle:?} is not a handle"));
            Err(CuError::INVALID_VALUE)
        }
    }
}

/// Where a location is. HOST_NUMA_CURRENT is refused, as measured.
fn place(driver: &Driver, location: MemLocation) -> CuResult<Place> {
    match location.kind {
        LocationType::DEVICE => {
            let ordinal = usize::try_from(location.id).map_err(|_| CuError::INVALID_DEVICE)?;
            driver.physical(ordinal).map(|_| Place::Device(ordinal))
        }
        LocationType::HOST => Ok(Place::Host(0)),
        LocationType::HOST_NUMA if (0..NODES).contains(&location.id) => Ok(Place::Host(location.id)),
        _ => Err(CuError::INVALID_VALUE),
    }
}

/// The bit of a location in an [`Access`](super::space::Access).
fn bit(driver: &Driver, location: MemLocation) -> CuResult<u32> {
    match place(driver, location)? {
        Place::Device(ordinal) => Ok(1 << ordinal),
        Place::Host(_) => Ok(HOST),
    }
}
