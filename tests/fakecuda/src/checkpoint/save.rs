//! What a checkpoint takes off the devices, and what the restore brings back.
//!
//! Bytes stay where they are: memory of the host either way. What changes is what they count against, and that nothing may touch
//! them meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use cuda_sys::{CheckpointGpuPair, CuError, CuResult};

use crate::config::MAX_DEVICES;
use crate::device::uuid;
use crate::driver::Driver;
use crate::memory::native::Kind;
use crate::memory::physical::{Physical, Place};
use crate::memory::space::Area;

/// A checkpointed process's memory, and what will become of it.
#[derive(Debug, Default)]
pub(crate) struct Saved {
    memory: Mutex<Vec<Arc<Physical>>>,
    /// The error that every restore of this checkpoint gives.
    verdict: Mutex<Option<CuError>>,
    /// Whether the process was ever restored.
    restored: AtomicBool,
    /// A restore found too little memory (public report, CASES 39): every later one fails with another code, for good.
    poisoned: AtomicBool,
}

impl Saved {
    /// Whether the process was ever restored.
    pub(crate) fn was_restored(&self) -> bool {
        self.restored.load(Ordering::Acquire)
    }
}

/// What there is that a restore cannot bring back, by the error it then gives (docs/DRIVER-VERSIONS.md, what a process
/// holds).
fn verdict(driver: &Driver, memory: &[Arc<Physical>]) -> Option<CuError> {
    let created = |physical: &&Arc<Physical>| physical.prop.is_some();
    let imported = memory.iter().filter(created).any(|physical| physical.imported);
    // Also out of a pool, of which nothing is measured.
    let on_host = memory.iter().any(|physical| matches!(physical.place, Place::Host(_)));
    let space = crate::read(&driver.memory.space);
    let opened = space.natives().any(|(_, native)| matches!(native.kind, Kind::Ipc { .. }));
    // The header: a pool that is destroyed lives on in what was obtained from it.
    let pointers = space.natives().any(|(_, native)| matches!(native.kind, Kind::PoolImport(_)));
    let pooled = pointers || driver.memory.pools.live().into_iter().any(|pool| pool.is_imported());
    // Imported cuMem memory: 801. An open legacy IPC mapping: 1. An imported pool: 304. Memory of the host: 999.
    [
        (imported, CuError::NOT_SUPPORTED),
        (opened, CuError::INVALID_VALUE),
        (pooled, CuError::OPERATING_SYSTEM),
        (on_host, CuError::UNKNOWN),
    ]
    .into_iter()
    .find_map(|(holds, error)| holds.then_some(error))
}

/// Takes everything off the devices. Managed memory makes it fail, and nothing has changed then (801; the state stays locked).
pub(super) fn checkpoint(driver: &'static Driver) -> CuResult {
    let managed = crate::read(&driver.memory.space).areas().any(|area| matches!(area, Area::Managed { .. }));
    if managed {
        return Err(CuError::NOT_SUPPORTED);
    }
    let memory = driver.memory.all();
    *crate::lock(&driver.saved.verdict) = verdict(driver, &memory);
    for physical in &memory {
        physical.leave_device(driver)?;
    }
    // Nothing of what this process has given back is in an image of it.
    driver.memory.take_back_lent();
    *crate::lock(&driver.saved.memory) = memory;
    driver.contexts.living().into_iter().for_each(|context| context.leave_device(driver));
    Ok(())
}

/// The devices that the ordinals lead to after a restore with these pairs.
fn targets(driver: &Driver, pairs: &[CheckpointGpuPair]) -> CuResult<[usize; MAX_DEVICES]> {
    let mut targets = [0; MAX_DEVICES];
    for (ordinal, target) in targets.iter_mut().enumerate().take(driver.ordinals()) {
        let old = driver.physical(ordinal)?;
        *target = if pairs.is_empty() {
            old
        } else {
            // Every GPU of the process has to be listed.
            let pair = pairs.iter().find(|pair| pair.old == uuid(old)).ok_or(CuError::INVALID_VALUE)?;
            let new = (0..driver.machine.devices()).find(|&device| uuid(device) == pair.new);
            new.ok_or(CuError::INVALID_VALUE)?
        };
    }
    let used = || targets.iter().take(driver.ordinals());
    let twice = used().any(|target| used().filter(|other| *other == target).count() > 1);
    if twice { Err(CuError::INVALID_VALUE) } else { Ok(targets) }
}

/// Brings everything back, at the same addresses; with pairs, on other devices behind the same ordinals.
pub(super) fn restore(driver: &'static Driver, pairs: &[CheckpointGpuPair]) -> CuResult {
    let saved = &driver.saved;
    if saved.poisoned.load(Ordering::Acquire) {
        return Err(CuError::UNKNOWN);
    }
    if let Some(error) = *crate::lock(&saved.verdict) {
        return Err(error);
    }
    let targets = targets(driver, pairs)?;
    for (ordinal, &target) in targets.iter().enumerate().take(driver.ordinals()) {
        driver.move_ordinal(ordinal, target);
    }
    let memory = crate::lock(&saved.memory);
    let contexts = driver.contexts.living();
    let back = contexts.iter().try_for_each(|context| context.return_to_device(driver));
    if let Err(error) =
        back.and_then(|()| memory.iter().try_for_each(|physical| physical.return_to_device(driver)))
    {
        saved.poisoned.store(true, Ordering::Release);
        for physical in memory.iter() {
            physical.leave_device(driver)?;
        }
        return Err(error);
    }
    saved.restored.store(true, Ordering::Release);
    for (_, native) in crate::read(&driver.memory.space).natives() {
        if let Some(held) = &native.ipc {
            crate::memory::ipc::mark_restored(driver, held);
        }
    }
    Ok(())
}

/// The process runs again: what was remembered of its memory is forgotten.
pub(super) fn forget(driver: &Driver) {
    let memory = std::mem::take(&mut *crate::lock(&driver.saved.memory));
    drop(memory);
}
