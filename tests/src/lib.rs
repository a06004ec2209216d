//! The harness of the integration tests, the programs under test and the scenarios that they run.
//!
//! A [`Machine`] stands for one computer: it owns a stand-in driver of its own, or is the real GPU. A [`Target`] is a
//! process on it that does as it is told, line by line; nothing here waits by sleeping.

mod allocations;
pub mod arguments;
mod artifacts;
pub mod bench;
mod board;
mod calls;
mod crowd;
pub mod demo;
pub mod driver;
mod endure;
mod failure;
mod full;
mod machine;
pub mod native;
mod places;
mod process;
pub mod program;
mod refusal;
pub mod scenarios;
mod soak;
mod stage;
mod target;
pub mod threads;
mod tool;
mod usage;

pub use allocations::allocations;
pub use artifacts::Artifacts;
pub use board::Board;
pub use calls::Call;
pub use crowd::{Crowd, Progress};
pub use endure::endure;
pub use full::full;
pub use machine::{Driver, Machine};
pub use places::{Calls, Place, at_each};
pub use process::Snapshot;
pub use refusal::InTheWay;
pub use soak::{Kind, Tally, soak};
pub use stage::{Actor, Stage};
pub use target::{Pending, Start, Target};
pub use tool::{Outcome, Running, Tool};
pub use usage::Usage;
