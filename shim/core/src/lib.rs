//! The parts of the shim that call nothing: the names of the driver's calls, the gate, the tables and the plans.
//!
//! Nothing here makes a driver call, so tests and benchmarks link it like any library.

pub mod blockers;
pub mod blocks;
pub mod calls;
pub mod control;
pub mod gate;
pub mod identity;
pub mod peer;
pub mod tally;
pub mod world;
