//! What the stand-in promises, one test per promise, each in processes of its own.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test ends where what it relies on fails")]

mod cuda;
mod helpers;
mod process;

mod accounting;
mod checkpoint;
mod lookup;
mod sharing;
mod vmm;
