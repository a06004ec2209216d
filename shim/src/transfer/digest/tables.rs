//! What goes to the kernels and what comes back: tables in page-locked memory, which both sides see.
//!
//! In the device's own memory there may be no byte free. What crosses the bus for the tables is a hundredth of a percent
//! of what is hashed.

use core::mem::offset_of;
use core::ptr::{self, NonNull};

use cuda_sys::CuError;

use super::{Digest, LONGEST, Span, TransferError, nodes};
use crate::driver::real;

/// How many spans one launch is told of.
const SPANS: usize = 4096;
/// How many nodes the spans of one launch have together: 8 GiB in chunks of 64 MiB.
const NODES: usize = 32 << 10;

/// A span as the kernels are told of it: `Piece` of `hash.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Row {
    pub(super) address: u64,
    pub(super) length: u64,
    /// Where its nodes begin in the table of nodes.
    pub(super) first_node: u64,
}

/// The tables, one behind the other. Any bytes are tables.
#[repr(C)]
struct Layout {
    rows: [Row; SPANS],
    /// Whether a byte of a span is not zero.
    flags: [u32; SPANS],
    digests: [[u8; 32]; SPANS],
    nodes: [[u8; 32]; NODES],
}

/// Where they are. Driver and processor see them at the same address (unified addressing).
#[derive(Debug)]
pub(super) struct Tables(NonNull<Layout>);

/// How many of the spans one launch can be told of; at least one.
pub(super) fn fitting(spans: &[Span]) -> Result<usize, TransferError> {
    let mut left = NODES;
    for (number, span) in spans.iter().enumerate().take(SPANS) {
        if span.len > LONGEST {
            return Err(TransferError::System { call: "the table of digests", errno: libc::E2BIG });
        }
        match left.checked_sub(usize::try_from(nodes(span.len)).unwrap_or(usize::MAX)) {
            Some(rest) => left = rest,
            None => return Ok(number),
        }
    }
    Ok(spans.len().min(SPANS))
}

impl Tables {
    pub(super) fn new() -> Result<Self, TransferError> {
        let mut at = ptr::null_mut();
        // SAFETY: `at` is writable.
        unsafe { real::cuMemHostAlloc(&raw mut at, size_of::<Layout>(), 0) }
            .map_err(TransferError::driver("cuMemHostAlloc"))?;
        let none = TransferError::Driver { call: "cuMemHostAlloc", error: CuError::OUT_OF_MEMORY };
        NonNull::new(at.cast()).map(Self).ok_or(none)
    }

    /// The addresses of rows, nodes, flags and digests.
    pub(super) fn places(&self) -> [u64; 4] {
        let start = self.0.addr().get();
        [
            offset_of!(Layout, rows),
            offset_of!(Layout, nodes),
            offset_of!(Layout, flags),
            offset_of!(Layout, digests),
        ]
        .map(|at| u64::try_from(start + at).unwrap_or_default())
    }

    /// Writes what the kernels are told. None of them runs.
    pub(super) fn describe(&mut self, rows: &[Row]) {
        // SAFETY: page-aligned memory of that size, ours alone as long as no kernel runs.
        let tables = unsafe { self.0.as_mut() };
        tables.rows.iter_mut().zip(rows).for_each(|(to, from)| *to = *from);
        tables.flags.fill(0);
    }

    /// What the kernels found, in the order of the rows. None of them runs any more.
    pub(super) fn digests(&self, count: usize) -> impl Iterator<Item = Digest> {
        // SAFETY: page-aligned memory of that size, which nobody writes to as long as no kernel runs.
        let tables = unsafe { self.0.as_ref() };
        let found = tables.digests.iter().zip(&tables.flags).take(count);
        found.map(|(hash, nonzero)| Digest { hash: *hash, is_zero: *nonzero == 0 })
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        // SAFETY: from `cuMemHostAlloc`, not used any more.
        if let Err(error) = unsafe { real::cuMemFreeHost(self.0.as_ptr().cast()) } {
            log!("cuMemFreeHost: {error}");
        }
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
}
