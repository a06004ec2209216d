//! Checking loaded bytes where they lie.
//!
//! A processor hashes about as fast as it reads from a file in memory, so that a thread which does both reads half as
//! much. The device hashes a chunk that has been copied to it in a hundredth of the time that the copy took.

use std::sync::atomic::Ordering;

use chunkstore::{Digest, Verify};
use cuda_sys::Device;

use super::errand::Cover;
use super::load::{Lead, Origin, Parcel};
use super::{broken, named, width};
use crate::transfer::TransferError;
use crate::transfer::digest::Hasher;

/// The kernels on one device, loaded when they are first needed. Their context is current as long as they are.
#[derive(Debug, Default)]
pub(super) struct Checking(Option<(Device, Option<Hasher>)>);

impl Checking {
    /// What the bytes hash to, as their device tells; its context is current. `None` where it cannot tell, also not
    /// later: that is said once.
    pub(super) fn digest(&mut self, cover: &Cover) -> Option<Digest> {
        let device = cover.device;
        let cannot = |error: &TransferError| {
            log!("device {} does not check what it gets: {error}; the processor does", device.0);
        };
        let (_, hasher) = match &mut self.0 {
            Some(own) if own.0 == device => own,
            other => other.insert((device, Hasher::new(device).inspect_err(cannot).ok())),
        };
        let told = hasher.as_mut()?.digests(&cover.text).inspect_err(cannot);
        if told.is_err() {
            *hasher = None;
        }
        told.ok()?.first().map(|digest| Digest(digest.hash))
    }

    /// To be called before the context goes.
    pub(super) fn end(&mut self) {
        self.0 = None;
    }
}

impl Lead<'_> {
    /// Checks a chunk that has been copied, unless the crew has.
    pub(super) fn check(&mut self, parcel: &mut Parcel) -> Result<(), (Option<usize>, TransferError)> {
        let errands = self.desk.errands;
        let (Some(origin), Some(errand)) = (parcel.unchecked.take(), errands.get(parcel.errand)) else {
            return Ok(());
        };
        let (chunk, about) = (errand.chunk, errand.parts.first().map(|part| part.object));
        let Some(cover) = &errand.cover else { return Err((about, TransferError::Panicked)) };
        let told = self.digest(cover);
        if told == Some(chunk.digest) {
            return Ok(());
        }
        let there = parcel.staging.part(0, width(chunk.len)).map_err(|error| (about, error))?;
        let read = Digest::of(there);
        if read != chunk.digest {
            let (sources, memory) = (self.desk.sources, &mut parcel.staging.memory);
            let again = match origin {
                Origin::Place(place) => sources.fetch_after(place, read, &chunk, memory, Verify::Here),
                Origin::Staged => {
                    log!("{chunk} has become {read} since it was staged; it is read again");
                    sources.fetch(&chunk, memory, Verify::Here)
                }
            };
            named(again.map_err(|error| (about, broken(&error)))?.failed);
        } else if told.is_none() {
            return Ok(());
        } else {
            log!("{chunk} is right in memory and wrong on device {}; it is copied again", cover.device.0);
        }
        self.copy_parts(&errand.parts, &mut parcel.staging)?;
        parcel.staging.wait().map_err(|error| (about, error))?;
        match self.digest(cover) {
            Some(found) if found != chunk.digest => {
                let device = cover.device.0;
                let text = format!(
                    "{chunk} was copied to device {device}, and the bytes there have the digest {found}"
                );
                Err((about, TransferError::Storage { text, errno: None }))
            }
            _ => Ok(()),
        }
    }

    /// What the device has. `None` where it cannot tell; then the crew checks what comes.
    fn digest(&mut self, cover: &Cover) -> Option<Digest> {
        let told = self.bench.is_at(cover.device).then(|| self.checking.digest(cover)).flatten();
        if told.is_none() {
            self.desk.checks_all.store(true, Ordering::Relaxed);
        }
        told
    }
}
