//! What each device's lane has to do, and what it may use of the buffers and threads of a transfer.

use crate::transfer::crew::strength;
use crate::transfer::lanes;

/// A lane.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Lane<T> {
    pub(super) work: T,
    pub(super) buffers: usize,
    pub(super) threads: usize,
}

/// Lanes for work of so many bytes each, and how many of them there may be at once: each needs a buffer.
pub(super) fn divide<T>(work: Vec<(u64, T)>, buffers: usize) -> (Vec<Lane<T>>, usize) {
    let at_once = lanes::at_once(work.len()).min(buffers);
    let bytes: Vec<u64> = work.iter().map(|(bytes, _)| *bytes).collect();
    let buffers = lanes::shares(buffers, at_once, &bytes);
    let threads = lanes::shares(strength(at_once), at_once, &bytes);
    let shares = buffers.into_iter().zip(threads);
    let lane = |((_, work), (buffers, threads))| Lane { work, buffers, threads };
    (work.into_iter().zip(shares).map(lane).collect(), at_once)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lanes_together_have_no_more_buffers_than_one_would() {
        for (buffers, count) in [(16, 1), (16, 3), (2, 2), (2, 5), (1, 4)] {
            let (lanes, at_once) = divide(vec![(10, ()); count], buffers);
            assert_eq!((lanes.len(), at_once), (count, count.min(buffers)));
            let used: usize = lanes.iter().map(|lane| lane.buffers).take(at_once).sum();
            assert!(used <= buffers && lanes.iter().all(|lane| lane.buffers > 0 && lane.threads > 0));
        }
    }
}
