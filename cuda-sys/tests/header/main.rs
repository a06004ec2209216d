//! Holds the crate against the real `cuda.h`, which `scripts/fetch-header` fetches.

mod compiler;
mod coverage;
mod layout;
mod list;
