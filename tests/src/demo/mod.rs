//! The demonstration: two processes share GPU memory and keep working on it, are suspended, and go on.
//!
//! What it says at the end it has checked: the claims are an exit status.

mod show;
mod worker;

pub use show::show;
pub use worker::{Layout, work};
