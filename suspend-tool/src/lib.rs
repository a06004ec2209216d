//! `nvsnap-gpu-suspend`: suspends and resumes all processes of a GPU workload.
//!
//! ```text
//!   cli --> command/<verb> --> lifecycle (steps and their undo) --> client (shims), driver (checkpoint API)
//!                         \--> check --> topology (pure), proc (what the kernel tells)
//! ```
//!
//! What talks to the outside stands behind two traits, [`client::Shims`] and [`driver::Driver`], so that failures
//! can be enumerated without processes and without a GPU.

pub mod check;
pub mod cli;
pub mod client;
pub mod command;
pub mod driver;
pub mod faults;
pub mod freeze;
pub mod holder;
pub mod interrupt;
pub mod lifecycle;
pub mod own_preload;
pub mod pid;
pub mod proc;
pub mod report;
#[cfg(test)]
mod simulated;
pub mod state;
pub mod topology;
