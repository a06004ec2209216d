//! `load`: makes this process's own memory again, with its bytes, at its addresses.
//!
//! First all memory is made, then anything else that takes memory of a device: on a card that was full, streams and the
//! modules that check bytes would take what the last allocation needs.

use std::collections::BTreeMap;

use cuda_sys::{AccessFlags, MemHandle};
use protocol::{Failure, HostLimits, LoadExtent, LoadRequest, Moved, Transferred};
use shim_core::world::{Backing, Bytes, Key, Object, Place, Saved, View};

use super::release::forget_copies;
use super::storage;
use super::trouble::{Trouble, Why};
use super::views::map;
use super::{Phases, register, team};
use crate::driver::real;
use crate::hooks::vmm::restock;
use crate::transfer::arena::{self, HostMemory};
use crate::transfer::lanes::Stop;
use crate::transfer::store::{held, staged};
use crate::transfer::{self, Loader, Rings, Subject, TransferError, lanes};
use crate::world::world;

/// Makes again what is dropped, fills it, and maps what is not mapped. Repeated, it goes on with what is left.
pub(crate) fn run(request: &LoadRequest, phases: &Phases) -> Result<Transferred, Failure> {
    // What was saved and never dropped has its bytes still.
    forget_copies();
    if request.extent == LoadExtent::Make {
        make_all().map_err(|trouble| trouble.failure("load", phases.get()))?;
        return Ok(Transferred::default());
    }
    let loaded = load_all(request, phases);
    staged::forget();
    let done = loaded.map_err(|trouble| trouble.failure("load", phases.get()))?;
    arena::forget();
    held::forget();
    Ok(done)
}

/// Makes all memory that is missing, on all devices at the same time.
fn make_all() -> Result<(), Trouble> {
    world().keep_objects();
    let missing = |object: &Object| object.backing == Backing::Dropped && object.bytes != Bytes::Elsewhere;
    let mut objects = world().objects();
    objects.retain(|object| missing(object) && object.what.multicast.is_none());
    let lanes = lanes::split(objects.into_iter().map(|it| (lanes::group(it.what.prop.location), it)));
    let run = |lane: usize, stop: &Stop| {
        for object in lanes.get(lane).into_iter().flatten() {
            stop.check()?;
            backing(object).map_err(|why| Trouble::with(&object.what, why))?;
        }
        Ok::<_, Trouble>(())
    };
    lanes::each(lanes.len(), lanes::at_once(lanes.len()), &run)?.map(drop)
}

fn load_all(request: &LoadRequest, phases: &Phases) -> Result<Transferred, Trouble> {
    make_all()?;
    let mut objects = world().objects();
    objects.retain(|object| object.bytes != Bytes::Elsewhere);
    load_teams(&objects)?;
    register::bring_back()?;
    objects.retain(|object| object.what.multicast.is_none());
    // The order in which a release cuts chunks.
    objects.sort_by_key(|object| (object.what.prop.location.kind, object.what.prop.location.id));
    let saved = objects.iter().filter(|object| object.bytes == Bytes::Saved).map(|object| object.what.size);
    phases.expect(saved.sum());
    let (stored, objects) = storage::split(objects);
    // First what needs something from outside.
    let from_store = storage::load(&stored, &request.from, request.limits, phases)?;
    let from_memory = from_memory(objects, request.limits, phases)?;
    // Nobody may come to memory before its bytes are there.
    for object in world().objects() {
        restock(object.key, &object.what)
            .map_err(TransferError::driver("cuMemExportToShareableHandle"))
            .map_err(|error| Trouble::with(&object.what, error.into()))?;
    }
    Ok(sum(&from_store, &from_memory))
}

/// Makes objects again, and fills those whose bytes are in host memory: all devices at the same time.
fn from_memory(objects: Vec<Object>, limits: HostLimits, phases: &Phases) -> Result<Transferred, Trouble> {
    let views = world().views();
    if objects.iter().all(|object| object.bytes != Bytes::Saved) {
        return bring_back(&objects, &views, None);
    }
    let lanes = lanes::split(objects.into_iter().map(|it| (lanes::group(it.what.prop.location), it)));
    let size = |object: &Object| (object.bytes == Bytes::Saved).then_some(object.what.size);
    let sizes: Vec<Vec<u64>> =
        lanes.iter().map(|objects| objects.iter().filter_map(size).collect()).collect();
    // Others may need host memory meanwhile.
    let rings = Rings::new(lanes::at_once(lanes.len()), limits.arena_bytes.map(|limit| limit / 2));
    let lead = |lane: usize, loader: &mut Loader<'_>| {
        let objects = lanes.get(lane).map(Vec::as_slice).unwrap_or_default();
        bring_back(objects, &views, Some(loader))
    };
    let done = transfer::with_loaders(&sizes, &HostMemory, phases, rings, &lead)??;
    Ok(done.iter().fold(Transferred::default(), |all, one| sum(&all, one)))
}

fn sum(one: &Transferred, other: &Transferred) -> Transferred {
    let (a, b) = (&one.bytes, &other.bytes);
    let bytes = Moved {
        objects: a.objects + b.objects,
        moved: a.moved + b.moved,
        zero: a.zero + b.zero,
        deduplicated: a.deduplicated + b.deduplicated,
    };
    Transferred { bytes, mappings: one.mappings + other.mappings }
}

/// Makes multicast objects again. The rest waits for others: see `remap`.
fn load_teams(objects: &[Object]) -> Result<(), Trouble> {
    for object in objects.iter().filter(|object| object.backing == Backing::Dropped) {
        if let Some(team) = object.what.multicast {
            team::create(object, team).map_err(|why| Trouble::with(&object.what, why))?;
        }
    }
    Ok(())
}

fn bring_back(
    objects: &[Object],
    views: &BTreeMap<Key, Vec<View>>,
    mut loader: Option<&mut Loader<'_>>,
) -> Result<Transferred, Trouble> {
    let mut done = Transferred::default();
    for object in objects {
        let trouble = |why| Trouble::with(&object.what, why);
        loader.as_ref().map_or(Ok(()), |loader| loader.goes_on())?;
        let real = backing(object).map_err(trouble)?;
        // Before it is filled: a mapping of the program is the shortest way to the memory.
        let mut views = views.get(&object.key).cloned().unwrap_or_default();
        done.mappings += map(real, &mut views)?;
        if object.bytes == Bytes::Saved
            && let Some(loader) = &mut loader
        {
            let subject = Subject::new(&object.what, real, &views, AccessFlags::READ_WRITE);
            let saved = fill(object, &subject, loader).map_err(trouble)?;
            count(&mut done.bytes, &saved);
        }
    }
    Ok(done)
}

/// The real handle, of memory that is made if there is none.
pub(super) fn backing(object: &Object) -> Result<MemHandle, Why> {
    if let Backing::Live(real) = object.backing {
        return Ok(real);
    }
    let size = usize::try_from(object.what.size)
        .map_err(|_| TransferError::System { call: "cuMemCreate", errno: libc::EOVERFLOW })?;
    let mut made = MemHandle::NONE;
    // SAFETY: `made` is writable; size and properties are those it was made with before.
    unsafe { real::cuMemCreate(&raw mut made, size, &raw const object.what.prop, 0) }
        .map_err(TransferError::driver("cuMemCreate"))?;
    world().created(object.key, made);
    Ok(made)
}

/// Writes the saved bytes back.
fn fill(object: &Object, subject: &Subject, loader: &mut Loader<'_>) -> Result<Saved, Why> {
    let saved = world().saved(object.key).unwrap_or_default();
    loader.fill(subject, &saved)?;
    world().filled(object.key);
    arena::give_back(object.key, &saved);
    Ok(saved)
}

/// Counts the bytes of an object by their fate.
pub(super) fn count(bytes: &mut Moved, saved: &Saved) {
    bytes.objects += 1;
    for piece in saved.pieces() {
        match piece.place {
            Place::Zero => bytes.zero += piece.len,
            Place::Host(_) | Place::Chunk { .. } => bytes.moved += piece.len,
        }
    }
}
