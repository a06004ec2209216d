//! Looking at memory before it is moved: which grains are zero need not cross the bus.

use std::collections::BTreeMap;

use cuda_sys::Device;

use super::GRAIN;
use super::digest::{Digest, Span};
use super::ring::{Ring, slices};

/// Memory of a device that is going to be saved.
#[derive(Clone, Copy, Debug)]
struct Announced {
    object: usize,
    address: u64,
    size: u64,
}

/// What is going to be saved, and what has been found out about it.
#[derive(Debug, Default)]
pub(super) struct Look {
    announced: BTreeMap<i32, Vec<Announced>>,
    found: BTreeMap<usize, Vec<Digest>>,
}

impl Look {
    /// An object that the device sees at this address. All objects of a device are looked at together.
    pub(super) fn announce(&mut self, object: usize, device: Device, address: u64, size: u64) {
        self.announced.entry(device.0).or_default().push(Announced { object, address, size });
    }

    /// What is known of the grains of an object, which the ring's device sees at this address. Nothing where the GPU
    /// cannot be asked.
    pub(super) fn at(&mut self, ring: &mut Ring, object: usize, address: u64, size: u64) -> Vec<Digest> {
        let mut wanted = self.announced.remove(&ring.device().0).unwrap_or_default();
        if !self.found.contains_key(&object) && wanted.iter().all(|other| other.object != object) {
            wanted.push(Announced { object, address, size });
        }
        let spans: Vec<Span> = wanted.iter().flat_map(|one| grains(one.address, one.size)).collect();
        if !spans.is_empty()
            && let Some(digests) = ring.digests(&spans)
        {
            let mut digests = digests.into_iter();
            for one in wanted {
                let count = grains(one.address, one.size).count();
                self.found.insert(one.object, digests.by_ref().take(count).collect());
            }
        }
        self.found.remove(&object).unwrap_or_default()
    }
}

fn grains(address: u64, size: u64) -> impl Iterator<Item = Span> {
    let grain = u64::try_from(GRAIN).unwrap_or(u64::MAX);
    (0..size).step_by(GRAIN).map(move |at| Span {
        address: address + at,
        len: grain.min(size - at),
        ends_text: true,
    })
}

/// The runs of grains that have to be moved, offset and length of each: all but those for which `is_settled`.
pub(super) fn runs(
    size: u64,
    digests: &[Digest],
    mut is_settled: impl FnMut(Span, &Digest) -> bool,
) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (number, grain) in grains(0, size).enumerate() {
        if digests.get(number).is_some_and(|digest| is_settled(grain, digest)) {
            continue;
        }
        match runs.last_mut() {
            Some((at, len)) if *at + *len == grain.address => *len += grain.len,
            _ => runs.push((grain.address, grain.len)),
        }
    }
    runs
}

/// The parts of a run that fit a slot: offset and length of each.
pub(super) fn parts(at: u64, len: u64) -> impl Iterator<Item = (u64, usize)> {
    slices(len).map(move |(inner, len)| (at + inner, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(zeros: &[bool]) -> Vec<Digest> {
        zeros.iter().map(|&is_zero| Digest { hash: [0; 32], is_zero }).collect()
    }

    #[test]
    fn neighbours_of_one_kind_are_one_run() {
        let grain = u64::try_from(GRAIN).unwrap();
        let zero = |_: Span, digest: &Digest| digest.is_zero;
        let told = runs(4 * grain + 5, &known(&[true, false, false, true, false]), zero);
        assert_eq!(told, [(grain, 2 * grain), (4 * grain, 5)]);
        assert_eq!(runs(3 * grain, &[], zero), [(0, 3 * grain)], "what is not known is moved");
        assert_eq!(runs(0, &[], zero), []);
    }
}
