//! What the stand-in promises, one test per promise, each in processes of its own.

mod cuda;
mod helpers;
mod process;

mod lookup;
mod vmm;
