//! What the devices tell of chunks before any byte has moved.

use core::convert::Infallible;
use std::collections::BTreeMap;

use cuda_sys::Device;

use super::{Known, Planned};
use crate::transfer::digest::{self, Digest, Span};
use crate::transfer::lanes::{self, Stop};
use crate::transfer::reach::Subject;

/// What is known of each chunk. One that a device sees has a digest, if it can be one text: nearly all memory comes in
/// multiples of 2 MiB. Where it cannot, it is known whether all its parts are zero.
pub(crate) fn known(planned: &[Planned], subjects: &[Subject]) -> Vec<Known> {
    let mut known = vec![Known::Nothing; planned.len()];
    let mut by_device: BTreeMap<i32, Vec<(usize, Vec<Span>)>> = BTreeMap::new();
    for (number, chunk) in planned.iter().enumerate() {
        if let Some((device, spans)) = spans(chunk, subjects) {
            by_device.entry(device.0).or_default().push((number, spans));
        }
    }
    for ((_, chunks), digests) in by_device.iter().zip(ask(&by_device)) {
        let Some(digests) = digests else { continue };
        let mut digests = digests.into_iter();
        for (number, spans) in chunks {
            let texts = spans.iter().filter(|span| span.ends_text).count();
            let texts: Vec<_> = digests.by_ref().take(texts).collect();
            let told = match texts.as_slice() {
                texts if texts.iter().all(|text| text.is_zero) => Known::Zero,
                [whole] => Known::Digest(chunkstore::Digest(whole.hash)),
                _ => Known::Nothing,
            };
            if let Some(place) = known.get_mut(*number) {
                *place = told;
            }
        }
    }
    known
}

/// Asks all devices at the same time for the digests of what they see of each chunk.
fn ask(by_device: &BTreeMap<i32, Vec<(usize, Vec<Span>)>>) -> Vec<Option<Vec<Digest>>> {
    let devices: Vec<_> = by_device.iter().collect();
    let run = |lane: usize, _: &Stop| {
        let Some((device, chunks)) = devices.get(lane) else { return Ok(None) };
        let spans: Vec<Span> = chunks.iter().flat_map(|(_, spans)| spans).copied().collect();
        Ok::<_, Infallible>(digest::ask(Device(**device), &spans))
    };
    match lanes::each(devices.len(), lanes::at_once(devices.len()), &run) {
        Ok(Ok(told)) => told,
        Err(error) => {
            log!("what devices tell of their memory: {error}; all of it is copied");
            Vec::new()
        }
    }
}

/// Where a device sees all parts of a chunk: one text, or each part one.
fn spans(chunk: &Planned, subjects: &[Subject]) -> Option<(Device, Vec<Span>)> {
    let mut home = None;
    let spans = chunk.parts.iter().map(|part| {
        let (device, address) = subjects.get(part.object)?.on_device()?;
        let same = *home.get_or_insert(device) == device;
        same.then(|| Span { address: address + part.at, len: part.len.into(), ends_text: true })
    });
    let mut spans = spans.collect::<Option<Vec<_>>>()?;
    if digest::are_one_text(spans.iter().map(|span| span.len))
        && let Some((_, before)) = spans.split_last_mut()
    {
        before.iter_mut().for_each(|span| span.ends_text = false);
    }
    home.map(|device| (device, spans))
}
