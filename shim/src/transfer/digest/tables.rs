//! What goes to the kernels and what comes back: tables in page-locked memory, which both sides see.
//!
//! In the device's own memory there may be no byte free. What crosses the bus for the tables is a hundredth of a percent
//! of what is hashed.

use core::mem::offset_of;
use core::ptr::{self, NonNull};

use cuda_sys::CuError;

use super::plan::{NODES, Plan, Row, SPANS, Text};
use super::{Digest, TransferError};
use crate::driver::real;

/// The tables, one behind the other. Any bytes are tables.
#[repr(C)]
struct Layout {
    rows: [Row; SPANS],
    /// Whether a byte of a span is not zero.
    flags: [u32; SPANS],
    texts: [Text; SPANS],
    digests: [[u8; 32]; SPANS],
    nodes: [[u8; 32]; NODES],
}

/// The address of each table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) rows: u64,
    pub(super) flags: u64,
    pub(super) texts: u64,
    pub(super) digests: u64,
    pub(super) nodes: u64,
}

/// Where they are. Driver and processor see them at the same address (unified addressing).
#[derive(Debug)]
pub(super) struct Tables(NonNull<Layout>);

impl Tables {
    pub(super) fn new() -> Result<Self, TransferError> {
        let mut at = ptr::null_mut();
        // SAFETY: `at` is writable.
        unsafe { real::cuMemHostAlloc(&raw mut at, size_of::<Layout>(), 0) }
            .map_err(TransferError::driver("cuMemHostAlloc"))?;
        let none = TransferError::Driver { call: "cuMemHostAlloc", error: CuError::OUT_OF_MEMORY };
        NonNull::new(at.cast()).map(Self).ok_or(none)
    }

    /// The addresses.
    pub(super) fn places(&self) -> Places {
        let start = self.0.addr().get();
        let place = |at: usize| u64::try_from(start + at).unwrap_or_default();
        Places {
            rows: place(offset_of!(Layout, rows)),
            flags: place(offset_of!(Layout, flags)),
            texts: place(offset_of!(Layout, texts)),
            digests: place(offset_of!(Layout, digests)),
            nodes: place(offset_of!(Layout, nodes)),
        }
    }

    /// Writes what the kernels are told. None of them runs.
    pub(super) fn describe(&mut self, plan: &Plan) {
        // SAFETY: page-aligned memory of that size, ours alone as long as no kernel runs.
        let tables = unsafe { self.0.as_mut() };
        tables.rows.iter_mut().zip(&plan.rows).for_each(|(to, from)| *to = *from);
        tables.texts.iter_mut().zip(&plan.texts).for_each(|(to, from)| *to = *from);
        tables.flags.fill(0);
    }

    /// What the kernels found, in the order of the texts. None of them runs any more.
    pub(super) fn digests(&self, plan: &Plan) -> impl Iterator<Item = Digest> {
        // SAFETY: page-aligned memory of that size, which nobody writes to as long as no kernel runs.
        let tables = unsafe { self.0.as_ref() };
        let mut flags = tables.flags.iter();
        tables.digests.iter().zip(&plan.spans).map(move |(hash, spans)| {
            let nonzero = flags.by_ref().take(*spans).fold(0, |all, flag| all | flag);
            Digest { hash: *hash, is_zero: nonzero == 0 }
        })
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
