//! Saving to a chunk store, and loading from one.
//!
//! [`mod@layout`] cuts memory into chunks, [`mod@save`] and [`mod@load`] move them, [`held`] remembers which they are. What
//! is remembered stays in the process: whatever store a load is pointed to, bytes count only if they have the digests
//! that the process knows.

mod checking;
mod division;
mod errand;
pub(crate) mod held;
mod known;
mod layout;
mod load;
mod places;
mod save;
pub(crate) mod staged;
mod staging;
mod stream;
mod ways;

use std::error::Error;
use std::io;

use chunkstore::{Chunk, GetError, Sources, Verify};

use super::TransferError;
use crate::config;

pub(crate) use errand::Wanted;
pub(crate) use known::known;
pub(crate) use layout::{Planned, layout};
pub(crate) use load::{Job as LoadJob, load};
pub(crate) use places::{path, sources, store};
pub(crate) use save::{Job as SaveJob, Known, save};

/// An error of a store, with all its causes in one line.
pub(crate) fn broken(error: &dyn Error) -> TransferError {
    let mut text = error.to_string();
    let mut errno = None;
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        errno = errno.or(cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error));
        next = cause.source();
    }
    TransferError::Storage { text, errno }
}

/// Reads a chunk, and says which place it is from.
fn fetch(sources: &Sources, chunk: &Chunk, into: &mut [u8], verify: Verify) -> Result<usize, TransferError> {
    let fetched = sources.fetch(chunk, into, verify).map_err(|error| broken(&error))?;
    named(fetched.failed);
    Ok(fetched.place)
}

/// Names bad copies that were passed over in the log.
fn named(failed: Vec<GetError>) {
    for error in failed {
        log!("{error}; another copy is used");
    }
}

/// How many chunks may wait in host memory at once, if there is room for `limit` bytes: half of it is left to others, and
/// without one chunk nothing can be done.
pub(crate) fn buffers(limit: Option<u64>) -> usize {
    fitting(config::staging_bytes(), limit)
}

fn fitting(allowed: u64, limit: Option<u64>) -> usize {
    let most = allowed.min(limit.map_or(u64::MAX, |limit| limit / 2)) / u64::from(chunkstore::CHUNK_BYTES);
    usize::try_from(most).unwrap_or(usize::MAX).max(1)
}

/// How many bytes may be read ahead, if host memory has room for `limit` bytes: a load needs some of it itself.
pub(crate) fn ahead(limit: Option<u64>) -> u64 {
    config::stage_bytes().min(limit.map_or(u64::MAX, |limit| limit / 2))
}

/// A length or place in a chunk.
#[allow(clippy::cast_possible_truncation, reason = "no chunk is longer than 64 MiB, and memory is wider")]
fn width(len: u32) -> usize {
    len as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_as_many_as_is_allowed_and_half_of_the_room_holds() {
        const CHUNK: u64 = 64 << 20;
        assert_eq!(fitting(8 * CHUNK, None), 8);
        assert_eq!(fitting(8 * CHUNK, Some(100 * CHUNK)), 8);
        assert_eq!(fitting(8 * CHUNK, Some(7 * CHUNK)), 3);
        assert_eq!(fitting(8 * CHUNK, Some(0)), 1);
    }
}
