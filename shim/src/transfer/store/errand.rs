//! What a load has to read, and what the bytes are for.

use std::collections::BTreeMap;

use chunkstore::Chunk;
use cuda_sys::Device;
use shim_core::world::{Place, Saved};

use super::width;
use crate::transfer::TransferError;
use crate::transfer::digest::{Span, are_one_text};
use crate::transfer::reach::Subject;

/// An object that is to be filled, and where its bytes are: zero or in chunks.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// Objects of one group are of one device.
    pub(crate) group: usize,
    /// Its bytes.
    pub(crate) saved: Saved,
}

/// Bytes of a chunk that belong to an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    pub(super) object: usize,
    pub(super) at: u64,
    pub(super) offset: usize,
    pub(super) len: usize,
}

/// A chunk to be read, and what its bytes are for.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Errand {
    pub(super) group: usize,
    pub(super) chunk: Chunk,
    pub(super) parts: Vec<Part>,
    pub(super) cover: Option<Cover>,
}

/// Where a device has all bytes of a chunk when they have been copied, so that it can check them.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Cover {
    pub(super) device: Device,
    pub(super) text: Vec<Span>,
}

/// What has to be read, grouped by device and in the order of the chunks.
pub(super) fn errands(
    wanted: &[Wanted],
    subjects: &[Subject],
    chunks: &[Chunk],
) -> Result<Vec<Errand>, TransferError> {
    let mut parts: BTreeMap<(usize, u32), Vec<Part>> = BTreeMap::new();
    for (object, wanted) in wanted.iter().enumerate() {
        let mut at = 0;
        for piece in wanted.saved.pieces() {
            if let Place::Chunk { index, offset } = piece.place {
                let part = Part { object, at, offset: width(offset), len: narrow(piece.len) };
                parts.entry((wanted.group, index)).or_default().push(part);
            }
            at += piece.len;
        }
    }
    let chunk = |index: u32| chunks.get(width(index)).copied().ok_or(TransferError::Panicked);
    let errand = |((group, index), parts): ((usize, u32), Vec<Part>)| {
        let chunk = chunk(index)?;
        let on_device = |object: usize| subjects.get(object)?.on_device();
        let cover = cover(chunk, &parts, on_device);
        Ok(Errand { group, chunk, parts, cover })
    };
    parts.into_iter().map(errand).collect()
}

/// The place of every byte of a chunk, if one device sees them all and can hash them as they lie.
fn cover(chunk: Chunk, parts: &[Part], on_device: impl Fn(usize) -> Option<(Device, u64)>) -> Option<Cover> {
    let mut parts: Vec<&Part> = parts.iter().collect();
    parts.sort_by_key(|part| part.offset);
    let (mut home, mut text, mut end) = (None, Vec::new(), 0);
    // Bytes that are for several objects are looked at once: they are copies of the same.
    for part in parts {
        if part.offset != end {
            continue;
        }
        let (device, address) = on_device(part.object)?;
        if *home.get_or_insert(device) != device {
            return None;
        }
        let len = u64::try_from(part.len).unwrap_or_default();
        text.push(Span { address: address + part.at, len, ends_text: false });
        end += part.len;
    }
    text.last_mut()?.ends_text = true;
    let fits = end == width(chunk.len) && are_one_text(text.iter().map(|span| span.len));
    home.filter(|_| fits).map(|device| Cover { device, text })
}

/// A length in memory.
pub(super) fn narrow(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunkstore::Digest;

    const MIB: usize = 1 << 20;

    fn part(object: usize, at: u64, offset: usize, len: usize) -> Part {
        Part { object, at: at << 20, offset: offset * MIB, len: len * MIB }
    }

    /// Objects begin 1 GiB apart; the tenth is on another device, and no device sees the twentieth.
    fn covered(parts: &[Part]) -> Option<Vec<(u64, u64)>> {
        let chunk = Chunk { digest: Digest([0; 32]), len: 6 << 20 };
        let on_device = |object: usize| {
            let device = Device(i32::from(object == 10));
            (object != 20).then_some((device, u64::try_from(object).unwrap() << 30))
        };
        let cover = cover(chunk, parts, on_device)?;
        assert!(cover.text.iter().rev().enumerate().all(|(number, span)| span.ends_text == (number == 0)));
        Some(cover.text.iter().map(|span| (span.address, span.len >> 20)).collect())
    }

    #[test]
    fn a_chunk_is_covered_by_parts_in_any_order() {
        assert_eq!(covered(&[part(1, 64, 0, 6)]), Some(vec![((1 << 30) + (64 << 20), 6)]));
        let packed = [part(3, 0, 4, 2), part(1, 0, 0, 2), part(2, 0, 2, 2)];
        assert_eq!(covered(&packed), Some(vec![(1 << 30, 2), (2 << 30, 2), (3 << 30, 2)]));
        // For several objects.
        let twice = [part(1, 0, 0, 6), part(2, 0, 0, 6), part(3, 0, 2, 2)];
        assert_eq!(covered(&twice), Some(vec![(1 << 30, 6)]));
    }

    #[test]
    fn what_no_device_sees_whole_is_not() {
        assert_eq!(covered(&[]), None);
        assert_eq!(covered(&[part(1, 0, 0, 4)]), None);
        assert_eq!(covered(&[part(1, 0, 2, 4)]), None);
        assert_eq!(covered(&[part(1, 0, 0, 2), part(2, 0, 4, 2)]), None);
        assert_eq!(covered(&[part(1, 0, 0, 2), part(10, 0, 2, 4)]), None);
        assert_eq!(covered(&[part(1, 0, 0, 2), part(20, 0, 2, 4)]), None);
        let odd = [part(1, 0, 0, 2), Part { len: 2 * MIB + 1, ..part(2, 0, 2, 2) }];
        assert_eq!(covered(&odd), None);
    }
}
