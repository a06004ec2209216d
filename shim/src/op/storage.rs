//! What `release` and `load` do when bytes go to a chunk store, and come from one.

use std::collections::{BTreeMap, BTreeSet};

use cuda_sys::AccessFlags;
use protocol::{HostLimits, Moved, PathBytes, ReadFrom, Transferred};
use shim_core::world::{Backing, Bytes, Object, Place, Saved};

use super::Phases;
use super::load::{backing, count};
use super::trouble::{Trouble, Why};
use super::views::map;
use crate::transfer::lanes::{self, Stop};
use crate::transfer::store::{self, LoadJob, SaveJob, Wanted, held};
use crate::transfer::{Subject, TransferError};
use crate::world::world;

/// Where a release saves to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    pub(super) store: &'a PathBytes,
    pub(super) ckpt_dir: &'a PathBytes,
    pub(super) verify_existing: bool,
}

/// Saves objects that are live, and drops nothing. Also with no object there is going to be a list.
pub(super) fn save(
    todo: &[Object],
    target: Target<'_>,
    limits: HostLimits,
    phases: &Phases,
) -> Result<Moved, Trouble> {
    let place = store::store(target.store).map_err(general)?;
    let writer =
        held::begin(&place, &store::path(target.ckpt_dir), target.verify_existing).map_err(general)?;
    let views = world().views();
    let subjects: Vec<Subject> = todo
        .iter()
        .filter_map(|object| {
            let Backing::Live(real) = object.backing else { return None };
            let views = views.get(&object.key).map_or(&[][..], Vec::as_slice);
            Some(Subject::new(&object.what, real, views, AccessFlags::READ))
        })
        .collect();
    let planned = store::layout(todo.iter().map(|object| (object.what.prop.location, object.what.size)));
    let known = store::known(&planned, &subjects);
    let buffers = store::buffers(limits.arena_bytes);
    let job = SaveJob { planned: &planned, known: &known, subjects: &subjects, buffers };
    let put = store::save(job, &writer, phases).map_err(|error| trouble(todo, error))?;
    let mut moved = Moved { objects: u64::try_from(todo.len()).unwrap_or(u64::MAX), ..Moved::default() };
    for (planned, put) in planned.iter().zip(&put) {
        let fate = match put {
            chunkstore::Put::Zero => &mut moved.zero,
            chunkstore::Put::Existing(_) => &mut moved.deduplicated,
            chunkstore::Put::Written(..) => &mut moved.moved,
        };
        *fate += u64::from(planned.len);
    }
    for (number, saved) in held::remember(&planned, &put) {
        if let Some(object) = todo.get(number) {
            world().copied(object.key, saved);
        }
    }
    Ok(moved)
}

/// Makes the list of what was saved durable, if one is due.
pub(super) fn commit() -> Result<(), Trouble> {
    let objects = world().objects();
    let saved: Vec<([u8; 16], Saved)> = objects
        .iter()
        .filter(|object| matches!(object.bytes, Bytes::Copied | Bytes::Saved))
        .filter_map(|object| Some((object.what.id.0, world().saved(object.key)?)))
        .collect();
    held::commit(saved.iter().map(|(id, saved)| (*id, saved))).map_err(general)
}

/// Splits off the objects whose bytes come from a store.
pub(super) fn split(objects: Vec<Object>) -> (Vec<(Object, Saved)>, Vec<Object>) {
    let mut stored = Vec::new();
    let mut rest = Vec::new();
    for object in objects {
        let saved = (object.bytes == Bytes::Saved).then(|| world().saved(object.key)).flatten();
        match saved.filter(Saved::in_chunks) {
            Some(saved) => stored.push((object, saved)),
            None => rest.push(object),
        }
    }
    (stored, rest)
}

/// Makes objects again, and fills them from where their chunks are.
pub(super) fn load(
    objects: &[(Object, Saved)],
    from: &ReadFrom,
    limits: HostLimits,
    phases: &Phases,
) -> Result<Transferred, Trouble> {
    let mut done = Transferred::default();
    if objects.is_empty() {
        return Ok(done);
    }
    let chunks = held::chunks();
    store::staged::stop();
    let sources = open(&needed(objects, &chunks), from)?;
    let subjects = made(objects, &mut done)?;
    let wanted: Vec<Wanted> = objects
        .iter()
        .map(|(it, saved)| Wanted { group: lanes::group(it.what.prop.location), saved: saved.clone() })
        .collect();
    let buffers = store::buffers(limits.arena_bytes);
    let job = LoadJob { wanted: &wanted, subjects: &subjects, chunks: &chunks, buffers };
    let filled = |number: usize| {
        if let Some((object, _)) = objects.get(number) {
            world().filled(object.key);
        }
    };
    store::load(job, &sources, phases, &filled).map_err(|(object, error)| {
        let object = object.and_then(|object| objects.get(object));
        object.map_or_else(
            || general(error.clone()),
            |(object, _)| Trouble::with(&object.what, error.clone().into()),
        )
    })?;
    objects.iter().for_each(|(_, saved)| count(&mut done.bytes, saved));
    Ok(done)
}

/// Makes objects and their mappings, all devices at the same time.
fn made(objects: &[(Object, Saved)], done: &mut Transferred) -> Result<Vec<Subject>, Trouble> {
    let views = world().views();
    let numbered = objects.iter().enumerate();
    let lanes = lanes::split(
        numbered.map(|(number, (object, _))| (lanes::group(object.what.prop.location), (number, object))),
    );
    let run = |lane: usize, stop: &Stop| {
        let (mut mappings, mut made) = (0, Vec::new());
        for (number, object) in lanes.get(lane).into_iter().flatten() {
            stop.check()?;
            let real = backing(object).map_err(|why| Trouble::with(&object.what, why))?;
            let mut views = views.get(&object.key).cloned().unwrap_or_default();
            mappings += map(real, &mut views)?;
            made.push((*number, Subject::new(&object.what, real, &views, AccessFlags::READ_WRITE)));
        }
        Ok::<_, Trouble>((mappings, made))
    };
    let mut all = BTreeMap::new();
    for (mappings, made) in lanes::each(lanes.len(), lanes::at_once(lanes.len()), &run)?? {
        done.mappings += mappings;
        all.extend(made);
    }
    Ok(all.into_values().collect())
}

/// Starts to read what a load is going to need, in its order.
pub(super) fn stage(from: &ReadFrom, limits: HostLimits) -> Result<(), Trouble> {
    let (stored, _) = split(world().objects());
    if stored.is_empty() || store::staged::has_begun() {
        return Ok(());
    }
    let needed = needed(&stored, &held::chunks());
    let sources = open(&needed, from)?;
    store::staged::begin(sources, &needed, store::ahead(limits.arena_bytes)).map_err(general)
}

/// The chunks of some objects, in the order in which a load reads them: those of one device in a row, all devices at
/// the same time.
fn needed(objects: &[(Object, Saved)], chunks: &[chunkstore::Chunk]) -> Vec<chunkstore::Chunk> {
    let mut by_device: BTreeMap<usize, BTreeSet<u32>> = BTreeMap::new();
    for (object, saved) in objects {
        let indices = saved.pieces().iter().filter_map(|piece| match piece.place {
            Place::Chunk { index, .. } => Some(index),
            Place::Zero | Place::Host(_) => None,
        });
        by_device.entry(lanes::group(object.what.prop.location)).or_default().extend(indices);
    }
    let rows = by_device.values().flat_map(|indices| indices.iter().enumerate());
    let mut rows: Vec<(usize, u32)> = rows.map(|(row, index)| (row, *index)).collect();
    rows.sort_by_key(|(row, _)| *row);
    rows.iter().filter_map(|(_, index)| chunks.get(usize::try_from(*index).ok()?).copied()).collect()
}

/// Opens the places, has them keep what is needed, and looks whether all of it is there: before memory is made for it.
fn open(needed: &[chunkstore::Chunk], from: &ReadFrom) -> Result<chunkstore::Sources, Trouble> {
    let mut sources = store::sources(from).map_err(general)?;
    for refused in sources.hold(needed) {
        log!("{refused}: chunks are read without protection from a collector");
    }
    let missing = sources.missing(needed);
    let Some(first) = missing.first() else { return Ok(sources) };
    let places = sources.stores().map(|store| store.path_of(&first.digest).display().to_string());
    let text = format!(
        "{} chunk(s) cannot be had; the first is missing as {}; put it back into the store, then repeat the command",
        missing.len(),
        places.collect::<Vec<_>>().join(" and as ")
    );
    Err(general(TransferError::Storage { text, errno: None }))
}

fn trouble(todo: &[Object], (object, error): (Option<usize>, TransferError)) -> Trouble {
    match object.and_then(|object| todo.get(object)) {
        Some(object) => Trouble::with(&object.what, error.into()),
        None => general(error),
    }
}

fn general(error: TransferError) -> Trouble {
    Trouble::of("its memory", Why::from(error))
}
