//! `remap`: imports again what others have made again, and maps it at its addresses.
//!
//! Multicast objects take three turns, which whoever asks gives to all processes one after the other: see [`Turn`].

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use cuda_sys::MemHandle;
use protocol::{Failure, RemapReply, RemapRequest, Source, Turn};
use shim_core::world::{Backing, Bytes, Object, Origin};

use super::ahead::ahead;
use super::trouble::{Trouble, Why};
use super::views::{drop_backing, map, unmap};
use super::{Phases, team};
use crate::hooks::vmm::import_descriptor;
use crate::peer::{self, PeerError};
use crate::ticket::Vault;
use crate::transfer::TransferError;
use crate::world::world;

/// Imports what is elsewhere, and maps what is not mapped. Repeated, it goes on with what is left.
pub(crate) fn run(request: &RemapRequest, phases: &Phases) -> Result<RemapReply, Failure> {
    remap_all(request).map_err(|trouble| trouble.failure("remap", phases.get()))
}

fn remap_all(request: &RemapRequest) -> Result<RemapReply, Trouble> {
    let mut done = RemapReply::default();
    drop_stale()?;
    let mut views = world().views();
    let mut teams = Vec::new();
    let objects = world().objects();
    let away: Vec<&Object> = objects.iter().filter(|object| object.backing == Backing::Dropped).collect();
    let ask = |number: usize| {
        let deadline = Instant::now() + Duration::from_millis(request.wait_ms.into());
        away.get(number).map(|object| fetch(object, &request.sources, deadline))
    };
    let rebuilt = ahead(away.len(), &ask, |draw| {
        for object in &objects {
            let real = match object.backing {
                Backing::Live(real) => real,
                Backing::Dropped => {
                    done.imports += 1;
                    import(object, draw).map_err(|why| Trouble::with(&object.what, why))?
                }
            };
            match object.what.multicast {
                None => done.mappings += map(real, &mut views.remove(&object.key).unwrap_or_default())?,
                Some(_) => teams.push((object, real)),
            }
        }
        Ok::<(), Trouble>(())
    });
    rebuilt.map_err(|error| Trouble::of("imports".to_owned(), Why::from(error)))??;
    for (object, real) in &teams {
        team::join(object, *real)?;
    }
    if request.turn >= Turn::Bind {
        for (object, real) in &teams {
            team::bind(object, *real)?;
        }
    }
    if request.turn == Turn::Map {
        for (object, real) in &teams {
            done.mappings += map(*real, &mut views.remove(&object.key).unwrap_or_default())?;
        }
    }
    Ok(done)
}

/// Drops imports that a release did not get to: their owners may have made other memory since.
fn drop_stale() -> Result<(), Trouble> {
    let mut views = world().views();
    let stale =
        |object: &Object| object.bytes == Bytes::Elsewhere && matches!(object.backing, Backing::Live(_));
    for object in world().objects().into_iter().filter(stale) {
        unmap(&views.remove(&object.key).unwrap_or_default())?;
        drop_backing(object.key).map_err(|why| Trouble::with(&object.what, why))?;
    }
    Ok(())
}

/// Imports by the descriptor that a peer has handed out for the object.
fn import(
    object: &Object,
    draw: &dyn Fn() -> Result<Option<Result<OwnedFd, PeerError>>, TransferError>,
) -> Result<MemHandle, Why> {
    let descriptor = draw()?.ok_or(TransferError::Panicked)?.map_err(Why::Peer)?;
    let (descriptor, vault) = Vault::open(descriptor)
        .map_err(|error| TransferError::System { call: "fcntl", errno: error.raw_os_error().unwrap_or(0) })?;
    let real =
        import_descriptor(&descriptor).map_err(TransferError::driver("cuMemImportFromShareableHandle"))?;
    world().attached_to(object.key, |attached| attached.imported_by(descriptor, vault));
    world().imported(object.key, real);
    Ok(real)
}

/// Asks whom the plan names, or else the exporter, or where that is gone everybody.
fn fetch(object: &Object, sources: &[Source], deadline: Instant) -> Result<OwnedFd, PeerError> {
    let what = &object.what;
    let named = sources.iter().find(|source| source.allocation == what.id).map(|source| source.pid);
    let pid = match (named, what.origin) {
        (Some(pid), _) => Some(pid),
        (None, Origin::Imported { exporter }) => Some(exporter),
        (None, Origin::Created | Origin::Foreign) => None,
    };
    let asked = pid.map(|pid| peer::export(pid, what.id, what.secret, deadline));
    match asked {
        Some(Ok(descriptor)) => Ok(descriptor),
        Some(Err(error @ PeerError::TimedOut { .. })) => Err(error),
        Some(Err(error)) => {
            log!("remap of allocation {}: {error}; others are asked", what.id);
            peer::find(what.id, what.secret, deadline)
        }
        None => peer::find(what.id, what.secret, deadline),
    }
}
