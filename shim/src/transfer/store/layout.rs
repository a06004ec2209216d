//! Which bytes make up which chunk.
//!
//! An object of a chunk's length or more has chunks of its own. Smaller ones share chunks, as long as they are of one
//! location: hundreds of 2 MiB would be hundreds of files. The layout depends on nothing but sizes and order, so that
//! the same memory is cut the same way each time and a store that has its chunks is not written to again.

use chunkstore::CHUNK_BYTES;
use cuda_sys::MemLocation;

/// Bytes of one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// The object's number.
    pub(crate) object: usize,
    /// Where they begin in the object.
    pub(crate) at: u64,
    /// How many.
    pub(crate) len: u32,
}

/// A chunk that is going to be: its parts, one behind the other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Planned {
    /// The parts.
    pub(crate) parts: Vec<Part>,
    /// Bytes of all parts.
    pub(crate) len: u32,
}

impl Planned {
    fn add(&mut self, part: Part) {
        self.len += part.len;
        self.parts.push(part);
    }
}

/// Cuts objects of these locations and sizes; they are numbered in their order.
pub(crate) fn layout(objects: impl IntoIterator<Item = (MemLocation, u64)>) -> Vec<Planned> {
    let mut planned = Vec::new();
    let mut shared: Option<(MemLocation, Planned)> = None;
    for (object, (location, size)) in objects.into_iter().enumerate() {
        if size >= u64::from(CHUNK_BYTES) {
            planned.extend(alone(object, size));
            continue;
        }
        let Ok(len) = u32::try_from(size) else { continue };
        let fits =
            |(home, chunk): &(MemLocation, Planned)| *home == location && chunk.len + len <= CHUNK_BYTES;
        if !shared.as_ref().is_some_and(fits) {
            planned.extend(shared.replace((location, Planned::default())).map(|(_, full)| full));
        }
        if let Some((_, chunk)) = &mut shared {
            chunk.add(Part { object, at: 0, len });
        }
    }
    planned.extend(shared.map(|(_, last)| last));
    planned
}

/// The chunks of an object that shares none.
fn alone(object: usize, size: u64) -> impl Iterator<Item = Planned> {
    let step = u64::from(CHUNK_BYTES);
    (0..size.div_ceil(step)).map(move |number| {
        let at = number * step;
        let mut chunk = Planned::default();
        chunk.add(Part { object, at, len: u32::try_from((size - at).min(step)).unwrap_or(CHUNK_BYTES) });
        chunk
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_sys::LocationType;

    const MIB: u64 = 1 << 20;

    fn device(id: i32) -> MemLocation {
        MemLocation { kind: LocationType::DEVICE, id }
    }

    #[test]
    fn small_objects_share_chunks_and_large_ones_do_not() {
        let sizes = [2, 130, 40, 30].map(|size| (device(0), size * MIB));
        let whole = CHUNK_BYTES;
        let mib = |count: u32| count << 20;
        let part = |object, at: u64, len| Part { object, at: at * MIB, len };
        let told: Vec<_> = layout(sizes).into_iter().map(|chunk| (chunk.len, chunk.parts)).collect();
        assert_eq!(
            told,
            [
                (whole, vec![part(1, 0, whole)]),
                (whole, vec![part(1, 64, whole)]),
                (mib(2), vec![part(1, 128, mib(2))]),
                (mib(42), vec![part(0, 0, mib(2)), part(2, 0, mib(40))]),
                (mib(30), vec![part(3, 0, mib(30))]),
            ]
        );
    }

    #[test]
    fn three_hundred_small_ones_are_ten_chunks_and_no_chunk_is_of_two_devices() {
        let many = layout((0..300).map(|_| (device(0), 2 * MIB)));
        assert_eq!(many.len(), 10);
        let mixed = layout([0, 0, 1, 0].map(|id| (device(id), MIB)));
        let objects: Vec<Vec<usize>> =
            mixed.iter().map(|chunk| chunk.parts.iter().map(|part| part.object).collect()).collect();
        assert_eq!(objects, [vec![0, 1], vec![2], vec![3]]);
    }

    #[test]
    fn every_byte_is_in_exactly_one_chunk() {
        let sizes = [1, 64 * MIB, 64 * MIB - 1, 64 * MIB + 1, 5, 200 * MIB].map(|size| (device(0), size));
        let mut covered = [0_u64; 6];
        for chunk in layout(sizes) {
            assert!((1..=CHUNK_BYTES).contains(&chunk.len));
            assert_eq!(chunk.len, chunk.parts.iter().map(|part| part.len).sum());
            for part in chunk.parts {
                assert_eq!(part.at, covered[part.object]);
                covered[part.object] += u64::from(part.len);
            }
        }
        assert_eq!(covered, sizes.map(|(_, size)| size));
    }
}
