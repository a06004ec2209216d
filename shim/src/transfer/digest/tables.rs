//! What goes to the kernels and what comes back: tables in one piece of GPU memory.

use cuda_sys::{DevicePtr, Stream};

use super::{Digest, LONGEST, Span, TransferError, nodes};
use crate::driver::real;

/// How many spans one launch is told of.
const SPANS: usize = 4096;
/// How many nodes the spans of one launch have together: 8 GiB in chunks of 64 MiB.
const NODES: u64 = 32 << 10;

/// Bytes of a digest, and of a node.
const DIGEST: usize = 32;
/// Bytes of the flag that says whether a byte of a span is not zero.
const FLAG: usize = 4;

/// Where each table begins.
const ROWS: u64 = 0;
const FLAGS: u64 = ROWS + (SPANS * size_of::<Row>()) as u64;
const DIGESTS: u64 = FLAGS + (SPANS * FLAG) as u64;
const VALUES: u64 = DIGESTS + (SPANS * DIGEST) as u64;
const SIZE: u64 = VALUES + NODES * DIGEST as u64;

/// A span as the kernels are told of it: `Piece` of `hash.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Row {
    pub(super) address: u64,
    pub(super) length: u64,
    /// Where its nodes begin in the table of nodes.
    pub(super) first_node: u64,
}

/// The tables, in memory of the device.
#[derive(Debug)]
pub(super) struct Tables(DevicePtr);

/// What the kernels found, span by span.
#[derive(Debug)]
pub(super) struct Answers {
    flags: Vec<u32>,
    digests: Vec<[u8; DIGEST]>,
}

/// How many of the spans one launch can be told of; at least one.
pub(super) fn fitting(spans: &[Span]) -> Result<usize, TransferError> {
    let mut left = NODES;
    for (number, span) in spans.iter().enumerate().take(SPANS) {
        if span.len > LONGEST {
            return Err(TransferError::System { call: "the table of digests", errno: libc::E2BIG });
        }
        match left.checked_sub(nodes(span.len)) {
            Some(rest) => left = rest,
            None => return Ok(number),
        }
    }
    Ok(spans.len().min(SPANS))
}

impl Tables {
    /// In memory that the driver accounts to the current context, for the time of one save.
    pub(super) fn new() -> Result<Self, TransferError> {
        let mut at = DevicePtr(0);
        let size = usize::try_from(SIZE).unwrap_or(usize::MAX);
        // SAFETY: `at` is writable.
        unsafe { real::cuMemAlloc_v2(&raw mut at, size) }.map_err(TransferError::driver("cuMemAlloc_v2"))?;
        Ok(Self(at))
    }

    /// The addresses of rows, nodes, flags and digests.
    pub(super) fn places(&self) -> [u64; 4] {
        [ROWS, VALUES, FLAGS, DIGESTS].map(|at| self.0.0 + at)
    }

    /// Starts to write what the kernels are told. The rows stay until the stream is idle.
    pub(super) fn describe(&self, rows: &[Row], stream: Stream) -> Result<(), TransferError> {
        let to = DevicePtr(self.0.0 + ROWS);
        // SAFETY: no more rows than the table has room for (`fitting`), alive as long as the copy.
        unsafe { real::cuMemcpyHtoDAsync_v2(to, rows.as_ptr().cast(), size_of_val(rows), stream) }
            .map_err(TransferError::driver("cuMemcpyHtoDAsync_v2"))?;
        let flags = DevicePtr(self.0.0 + FLAGS);
        // SAFETY: a table of that size.
        unsafe { real::cuMemsetD8Async(flags, 0, rows.len() * FLAG, stream) }
            .map_err(TransferError::driver("cuMemsetD8Async"))
    }

    /// Starts to read what the kernels found. The answers stay until the stream is idle.
    pub(super) fn tell(&self, answers: &mut Answers, stream: Stream) -> Result<(), TransferError> {
        let (flags, digests) = (answers.flags.as_mut_slice(), answers.digests.as_mut_slice());
        let (from, size) = (DevicePtr(self.0.0 + FLAGS), size_of_val(flags));
        // SAFETY: as many flags as there were rows, alive as long as the copy.
        unsafe { real::cuMemcpyDtoHAsync_v2(flags.as_mut_ptr().cast(), from, size, stream) }
            .map_err(TransferError::driver("cuMemcpyDtoHAsync_v2"))?;
        let (from, size) = (DevicePtr(self.0.0 + DIGESTS), size_of_val(digests));
        // SAFETY: as many digests as there were rows, alive as long as the copy.
        unsafe { real::cuMemcpyDtoHAsync_v2(digests.as_mut_ptr().cast(), from, size, stream) }
            .map_err(TransferError::driver("cuMemcpyDtoHAsync_v2"))
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, not used any more.
        if let Err(error) = unsafe { real::cuMemFree_v2(self.0) } {
            log!("cuMemFree_v2: {error}");
        }
    }
}

impl Answers {
    /// Room for the answers about so many spans.
    pub(super) fn for_spans(count: usize) -> Self {
        Self { flags: vec![0; count], digests: vec![[0; DIGEST]; count] }
    }

    /// In the order of the spans.
    pub(super) fn digests(self) -> impl Iterator<Item = Digest> {
        let answers = self.digests.into_iter().zip(self.flags);
        answers.map(|(hash, nonzero)| Digest { hash, is_zero: nonzero == 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_takes_what_its_tables_have_room_for() {
        let chunk = Span { address: 0, len: LONGEST };
        assert_eq!(fitting(&[chunk; 500]), Ok(128));
        assert_eq!(fitting(&[Span { address: 0, len: 2 << 20 }; 5000]), Ok(SPANS));
        assert_eq!(fitting(&[Span { address: 0, len: 0 }; 3]), Ok(3));
        let too_long = Span { address: 0, len: LONGEST + 1 };
        assert!(fitting(&[too_long]).is_err());
    }

    #[test]
    fn the_tables_lie_one_behind_the_other() {
        assert_eq!((FLAGS, DIGESTS, VALUES), (98304, 114_688, 245_760));
        const { assert!(SIZE <= 2 << 20, "one granule of GPU memory is enough") };
    }
}
