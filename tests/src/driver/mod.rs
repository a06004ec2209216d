//! The driver as a program under test reaches it: one function per call of the list, found by the road asked for.
//!
//! Nothing here knows whether the library stands in between, nor whether the driver is the stand-in.

mod call;
mod kernels;
mod plain;
mod road;

pub use call::*;
pub use kernels::Kernels;
pub use plain::*;
pub use road::{Road, address, link, take};
