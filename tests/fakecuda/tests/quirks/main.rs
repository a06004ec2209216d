//! What the stand-in promises, one test per promise, each in processes of its own.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test ends where what it relies on fails")]

mod cuda;
mod helpers;
mod process;

mod accounting;
mod arrays;
mod capture;
mod checkpoint;
mod copies;
mod hashing;
mod left_behind;
mod lookup;
mod multicast;
mod native;
mod process_life;
mod sharing;
mod streams;
mod vmm;
