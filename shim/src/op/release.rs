//! `release`: saves the bytes of all memory that this process keeps, then gives everything tracked back to the driver.
//!
//! First everything is saved; nothing has been dropped as long as that may fail. Then, with the phase at `Released`,
//! objects are dropped one by one, each marked after its driver call. Repeated, it goes on with what is left.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cuda_sys::AccessFlags;
use protocol::{AllocationId, Failure, HostLimits, Moved, Phase, ReleaseRequest, SaveTo, Transferred};
use shim_core::world::{Backing, Bytes, Key, Object, Origin};

use super::quiesce::hold_answers;
use super::storage::{self, Target};
use super::team::drop_object;
use super::trouble::{Trouble, Why};
use super::views::{drop_backing, unmap};
use super::{Phases, register};
use crate::transfer::arena::{self, Parts};
use crate::transfer::kept;
use crate::transfer::store::held;
use crate::transfer::{self, Rings, Subject, TransferError, lanes};
use crate::world::world;

/// How long a call that only asks is waited for. All work has drained, so it has nothing to wait for here.
const ASKING: Duration = Duration::from_secs(5);

/// Saves and drops.
pub(crate) fn run(request: &ReleaseRequest, phases: &Phases) -> Result<Transferred, Failure> {
    hold_answers(ASKING, phases.get())?;
    let bytes = save(request, phases)?;
    // Last of what may fail while nothing was dropped: all processes have saved.
    storage::commit().map_err(|trouble| failed(&trouble, phases))?;
    world().lend(&request.heir_of);
    phases.set(Phase::Released);
    let dropped = drop_all().and_then(|mappings| register::drop_all().map(|()| mappings));
    let mappings = dropped.map_err(|trouble| trouble.failure("release", phases.get()))?;
    Ok(Transferred { bytes, mappings })
}

/// Saves what is not saved yet, and drops nothing. Where it fails, and nothing was dropped earlier, no copies are
/// left.
pub(crate) fn save(request: &ReleaseRequest, phases: &Phases) -> Result<Moved, Failure> {
    let moved = save_all(request, phases).map_err(|trouble| failed(&trouble, phases))?;
    // The turn that drops finds everything saved.
    if moved.objects > 0 {
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = moved;
    }
    Ok(moved)
}

/// What became of the bytes the last time that any were saved.
static LAST: Mutex<Moved> = Mutex::new(Moved { objects: 0, moved: 0, zero: 0, deduplicated: 0 });

/// Bytes by fate of the last save.
pub(crate) fn last() -> Moved {
    *LAST.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(trouble: &Trouble, phases: &Phases) -> Failure {
    if phases.get() != Phase::Released {
        forget_copies();
    }
    trouble.failure("release", phases.get())
}

/// Forgets copies of bytes that are still live, since the program is going to run again.
pub(crate) fn forget_copies() {
    world().forget_copies();
    held::give_up();
    if !world().any_saved() {
        arena::forget();
        held::forget();
    }
}

fn save_all(request: &ReleaseRequest, phases: &Phases) -> Result<Moved, Trouble> {
    let objects = world().objects();
    refuse(&objects, &request.heir_of)?;
    let living: BTreeSet<Key> = objects.iter().map(|object| object.key).collect();
    let none_saved = objects.iter().all(|object| matches!(object.bytes, Bytes::Live | Bytes::Elsewhere));
    let mut todo: Vec<Object> =
        objects.into_iter().filter(|object| needs_copy(object, &request.heir_of)).collect();
    // So are chunks of a store cut, and lanes.
    todo.sort_by_key(|object| (object.what.prop.location.kind, object.what.prop.location.id));
    phases.expect(todo.iter().map(|object| object.what.size).sum());
    let limits = match request.to {
        SaveTo::KeptMemory => {
            kept::retain(&living);
            request.limits
        }
        // Nobody needs what was kept, and this is the moment at which there is none to spare.
        SaveTo::Memory | SaveTo::Store { .. } if none_saved => {
            let freed = kept::bytes();
            kept::retain(&BTreeSet::new());
            HostLimits { arena_bytes: request.limits.arena_bytes.map(|limit| limit.saturating_add(freed)) }
        }
        SaveTo::Memory | SaveTo::Store { .. } => request.limits,
    };
    match &request.to {
        SaveTo::Memory => save_to_memory(&todo, limits, false, phases),
        SaveTo::KeptMemory => save_to_memory(&todo, limits, true, phases),
        SaveTo::Store { store, ckpt_dir, verify_existing } => {
            let target = Target { store, ckpt_dir, verify_existing: *verify_existing };
            storage::save(&todo, target, limits, phases)
        }
    }
}

fn save_to_memory(
    todo: &[Object],
    limits: HostLimits,
    keep: bool,
    phases: &Phases,
) -> Result<Moved, Trouble> {
    if todo.is_empty() {
        return Ok(Moved::default());
    }
    let trouble =
        |(object, error): (Option<usize>, TransferError)| match object.and_then(|object| todo.get(object)) {
            Some(object) => Trouble::with(&object.what, error.into()),
            None => Trouble::of("all allocations", error.into()),
        };
    let parts = if keep {
        let objects: Vec<_> = todo.iter().map(|object| (object.key, object.what.size)).collect();
        Parts::kept(&objects, limits.arena_bytes)
    } else {
        Parts::new(todo.iter().map(|object| object.what.size), limits.arena_bytes)
    };
    let parts = parts.map_err(|error| trouble((None, error)))?;
    let views = world().views();
    let subjects = todo.iter().enumerate().filter_map(|(number, object)| {
        let Backing::Live(real) = object.backing else { return None };
        let views = views.get(&object.key).map_or(&[][..], Vec::as_slice);
        let subject = Subject::new(&object.what, real, views, AccessFlags::READ);
        Some((lanes::group(object.what.prop.location), (number, subject)))
    });
    let lanes = lanes::split(subjects);
    let needed = todo.iter().map(|object| object.what.size).sum();
    let spare = limits.arena_bytes.map(|limit| limit.saturating_sub(needed));
    let rings = Rings::new(lanes::at_once(lanes.len()), spare);
    let saved = transfer::save(&lanes, &parts, phases, rings);
    let saved = saved.map_err(trouble)?;
    let deduplicated = parts.deduplicated();
    // Before the records name it.
    parts.hold();
    let mut moved = Moved { deduplicated, ..Moved::default() };
    for (object, (_, saved)) in todo.iter().zip(saved) {
        moved.objects += 1;
        moved.zero += saved.zero();
        moved.moved += saved.len() - saved.zero();
        world().copied(object.key, saved);
    }
    moved.moved = moved.moved.saturating_sub(deduplicated);
    Ok(moved)
}

/// Whether the bytes of a live allocation are this process's to save, and are not saved yet.
fn needs_copy(object: &Object, heir_of: &[AllocationId]) -> bool {
    let live = matches!(object.backing, Backing::Live(_)) && object.what.multicast.is_none();
    live && object.kept_by(heir_of) && matches!(object.bytes, Bytes::Live | Bytes::Elsewhere)
}

/// Refuses what cannot be carried, before anything is touched.
fn refuse(objects: &[Object], heir_of: &[AllocationId]) -> Result<(), Trouble> {
    if let Some(foreign) = objects.iter().find(|object| object.what.origin == Origin::Foreign) {
        return Err(Trouble::with(&foreign.what, Why::Foreign));
    }
    let held = |id: &AllocationId| {
        let gone = |object: &Object| object.backing == Backing::Dropped && object.bytes == Bytes::Elsewhere;
        objects.iter().any(|object| object.what.id == *id && !gone(object))
    };
    match heir_of.iter().find(|id| !held(id)) {
        Some(id) => Err(Trouble::of(format!("allocation {id}"), Why::NotHeld)),
        None => Ok(()),
    }
}

/// Takes everything apart. Counts the mappings.
fn drop_all() -> Result<u64, Trouble> {
    let mut views = world().views();
    let mut mappings = 0;
    // What is bound to an object has to be unbound before it goes.
    let (teams, memory): (Vec<Object>, Vec<Object>) =
        world().objects().into_iter().partition(|object| object.what.multicast.is_some());
    for object in teams {
        mappings += drop_object(&object, &views.remove(&object.key).unwrap_or_default())?;
    }
    for object in memory {
        mappings += unmap(&views.remove(&object.key).unwrap_or_default())?;
        if let Backing::Live(_) = object.backing {
            drop_backing(object.key).map_err(|why| Trouble::with(&object.what, why))?;
        }
    }
    Ok(mappings)
}
