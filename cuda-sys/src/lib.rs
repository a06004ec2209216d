//! The part of the CUDA driver API that this project names. Types, constants, and THE list of calls; no logic.
//!
//! Nothing here links against the driver. Sizes, offsets and numbers are held against the real header and
//! against generated bindings by tests.

mod calls;
mod error;
mod types;

pub use calls::PASS;
pub use error::{CuError, CuResult, ERRORS, number, result};
pub use types::*;

/// What a suspend does with a call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// Starts kernels, graphs or host functions. Held first, waits while suspended.
    Launch,
    /// Copies, fills, prefetches, stream memory operations, event records. Held second, after the first drain.
    Memory,
    /// Creates, maps, shares or destroys what is tracked. Held with `Memory`; a new capture already with `Launch`.
    Object,
    /// Asks or waits whether work is done. Never held; answered or held while suspended.
    Completion,
    /// Asks about objects. Never held; answered or held while suspended.
    Information,
    /// Touches neither objects nor work. Never held: the driver answers it at any time, or blocks by itself.
    Pass,
}
