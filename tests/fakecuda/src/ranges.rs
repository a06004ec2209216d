//! Free ranges of an address space or of a file, handed out from the lowest that fits.

use std::collections::BTreeMap;

/// The free ranges, by their start. Neighbours are always joined.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    free: BTreeMap<usize, usize>,
}

impl Ranges {
    pub(crate) fn new(start: usize, size: usize) -> Self {
        Self { free: BTreeMap::from([(start, size)]) }
    }

    /// Takes `size` bytes at a multiple of `align`, a power of two.
    pub(crate) fn take(&mut self, size: usize, align: usize) -> Option<usize> {
        let found = self.free.iter().find_map(|(&start, &length)| {
            let at = start.checked_next_multiple_of(align)?;
            (at.checked_add(size)? <= start + length).then_some(at)
        })?;
        self.take_at(found, size).then_some(found)
    }

    /// Takes exactly this range, and tells whether it was free.
    pub(crate) fn take_at(&mut self, at: usize, size: usize) -> bool {
        let Some(end) = at.checked_add(size) else { return false };
        let Some((&start, &length)) = self.free.range(..=at).next_back() else { return false };
        if start + length < end {
            return false;
        }
        self.free.remove(&start);
        if start < at {
            self.free.insert(start, at - start);
        }
        if end < start + length {
            self.free.insert(end, start + length - end);
        }
        true
    }

    /// Gives back a range that was taken.
    pub(crate) fn give(&mut self, at: usize, size: usize) {
        let mut start = at;
        let mut end = at + size;
        if let Some((&before, &length)) = self.free.range(..at).next_back()
            && before + length == at
        {
            start = before;
        }
        if let Some(&length) = self.free.get(&end) {
            self.free.remove(&end);
            end += length;
        }
        self.free.insert(start, end - start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_joins_its_neighbours() {
        let mut ranges = Ranges::new(0x1000, 0x1000);
        let a = ranges.take(0x100, 0x100).unwrap();
        let b = ranges.take(0x100, 0x100).unwrap();
        let c = ranges.take(0x100, 0x100).unwrap();
        assert_eq!((a, b, c), (0x1000, 0x1100, 0x1200));
        ranges.give(a, 0x100);
        ranges.give(c, 0x100);
        assert!(!ranges.take_at(0x1080, 0x100), "b is taken");
        ranges.give(b, 0x100);
        assert_eq!(ranges.take(0x1000, 0x1000), Some(0x1000));
        assert_eq!(ranges.take(1, 1), None);
    }
}
