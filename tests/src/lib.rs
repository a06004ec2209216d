//! The harness of the integration tests, the programs under test and the scenarios that they run.
//!
//! A [`Machine`] stands for one computer: it owns a stand-in driver of its own, or is the real GPU. A [`Target`] is a
//! process on it that does as it is told, line by line; nothing here waits by sleeping.

mod artifacts;
pub mod bench;
mod board;
