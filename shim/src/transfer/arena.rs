//! Host memory for the bytes of a suspended process.
//!
//! One mapping per release, as large as everything that is saved; a grain that is never written costs nothing. It is not
//! registered with the driver: what stays registered makes a checkpoint slower by 25 ms per GiB in each direction
//! (580.159.04). A forked child does not get it.

use core::{ptr, slice};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use shim_core::world::{Key, Place, Saved};

use super::kept::{self, Room};
use super::zero::is_zero;
use super::{GRAIN, Sink, Source, TransferError};

/// The mapping.
#[derive(Debug)]
pub(super) struct Arena {
    pub(super) base: *mut u8,
    pub(super) len: usize,
    used: AtomicU64,
    limit: Option<u64>,
}

// SAFETY: the memory is reached through offsets that belong to one allocation each.
unsafe impl Send for Arena {}
// SAFETY: as above; a grain is written by one thread, before anybody knows its place.
unsafe impl Sync for Arena {}

/// The arenas that hold bytes for one suspend, and the process they belong to: a forked child has none of them.
static HELD: Mutex<(u32, Vec<Arc<Arena>>)> = Mutex::new((0, Vec::new()));

impl Arena {
    /// Room for `len` bytes, of which at most `limit` may be filled.
    fn new(len: u64, limit: Option<u64>) -> Result<Self, TransferError> {
        let too_large = TransferError::System { call: "mmap", errno: libc::ENOMEM };
        let len = usize::try_from(len.max(1)).map_err(|_| too_large)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, access, kind, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(TransferError::system("mmap"));
        }
        let arena = Self { base: base.cast(), len, used: AtomicU64::new(0), limit };
        // SAFETY: the mapping just made.
        if unsafe { libc::madvise(base, len, libc::MADV_DONTFORK) } != 0 {
            return Err(TransferError::system("madvise"));
        }
        // A kernel without huge pages fills it more slowly.
        // SAFETY: the mapping just made.
        unsafe { libc::madvise(base, len, libc::MADV_HUGEPAGE) };
        Ok(arena)
    }

    fn charge(&self, len: u64) -> Result<(), TransferError> {
        let used = self.used.fetch_add(len, Ordering::Relaxed).saturating_add(len);
        match self.limit {
            Some(limit) if used > limit => Err(TransferError::OverLimit { limit }),
            _ => Ok(()),
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// Where the bytes of each object go: each grain to its own place.
#[derive(Debug)]
pub(crate) struct Parts {
    /// For the objects that have no room yet.
    fresh: Arc<Arena>,
    /// The room of each object, by its number.
    rooms: Vec<Room>,
    /// The objects, where their rooms are to be kept.
    keys: Vec<Key>,
    deduplicated: AtomicU64,
}

impl Parts {
    /// Room for objects of these sizes, of which at most `limit` bytes may be filled.
    pub(crate) fn new(
        sizes: impl IntoIterator<Item = u64>,
        limit: Option<u64>,
    ) -> Result<Self, TransferError> {
        Self::with(sizes.into_iter().map(|size| (size, None)), Vec::new(), limit)
    }

    /// The same, with rooms that are kept for the next time. Objects that had one the last time get it again.
    pub(crate) fn kept(objects: &[(Key, u64)], limit: Option<u64>) -> Result<Self, TransferError> {
        let rooms = objects.iter().map(|(key, size)| (*size, kept::take(*key)));
        Self::with(rooms, objects.iter().map(|(key, _)| *key).collect(), limit)
    }

    fn with(
        objects: impl Iterator<Item = (u64, Option<Room>)>,
        keys: Vec<Key>,
        limit: Option<u64>,
    ) -> Result<Self, TransferError> {
        let mut end = 0_u64;
        let placed: Vec<(u64, u64, Option<Room>)> = objects
            .map(|(size, room)| {
                let start = end;
                if room.is_none() {
                    end = end.saturating_add(size).div_ceil(GRAIN as u64).saturating_mul(GRAIN as u64);
                }
                (start, size, room)
            })
            .collect();
        let fresh = Arc::new(Arena::new(end, limit)?);
        let keeps = !keys.is_empty();
        let make = |(start, size, room): (u64, u64, Option<Room>)| {
            room.unwrap_or_else(|| Room::new(&fresh, start, if keeps { size } else { 0 }))
        };
        let rooms = placed.into_iter().map(make).collect();
        Ok(Self { fresh, rooms, keys, deduplicated: AtomicU64::new(0) })
    }

    /// How many bytes were where they had to go already.
    pub(crate) fn deduplicated(&self) -> u64 {
        self.deduplicated.load(Ordering::Relaxed)
    }

    /// Holds the bytes until [`forget`], or longer where they are kept.
    pub(crate) fn hold(self) {
        if self.keys.is_empty() {
            hold(self.fresh);
        } else {
            kept::keep(self.keys.into_iter().zip(self.rooms));
        }
    }
}

impl Sink for Parts {
    fn keep(&self, object: usize, at: u64, bytes: &[u8]) -> Result<Place, TransferError> {
        if is_zero(bytes) {
            return Ok(Place::Zero);
        }
        let outside = || TransferError::System { call: "the arena", errno: libc::EFAULT };
        let room = self.rooms.get(object).ok_or_else(outside)?;
        let to = room.place(at, bytes.len()).ok_or_else(outside)?;
        if room.is_filled(at) {
            // SAFETY: written the last time, as far as the grain goes; this grain is this thread's alone.
            if unsafe { slice::from_raw_parts(to, bytes.len()) } == bytes {
                self.deduplicated.fetch_add(u64::try_from(bytes.len()).unwrap_or(0), Ordering::Relaxed);
                room.filled(at);
                return Ok(Place::Host(u64::try_from(to.expose_provenance()).unwrap_or_default()));
            }
        } else {
            self.fresh.charge(u64::try_from(bytes.len()).unwrap_or(u64::MAX))?;
        }
        room.opened(at);
        // SAFETY: this grain's own place, which nobody else writes and nobody reads yet.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        room.filled(at);
        Ok(Place::Host(u64::try_from(to.expose_provenance()).unwrap_or_default()))
    }

    fn has(&self, object: usize, at: u64, len: u64, digest: [u8; 32]) -> Option<Place> {
        let room = self.rooms.get(object).filter(|room| room.has(at, digest))?;
        let place = room.place(at, usize::try_from(len).ok()?)?;
        self.deduplicated.fetch_add(len, Ordering::Relaxed);
        Some(Place::Host(u64::try_from(place.expose_provenance()).unwrap_or_default()))
    }
}

/// Bytes that are in host memory, whichever arena holds them.
#[derive(Debug)]
pub(crate) struct HostMemory;

impl Source for HostMemory {
    fn fetch(&self, place: Place, into: &mut [u8]) -> Result<(), TransferError> {
        match place {
            Place::Zero => into.fill(0),
            Place::Host(at) => {
                let from: *const u8 = usize::try_from(at).map_or(ptr::null(), ptr::with_exposed_provenance);
                // SAFETY: written by `keep` and not changed since; the arena is held as long as a record names it.
                into.copy_from_slice(unsafe { slice::from_raw_parts(from, into.len()) });
            }
            // Objects in a store are loaded from there.
            Place::Chunk { .. } => return Err(TransferError::Panicked),
        }
        Ok(())
    }
}

fn hold(arena: Arc<Arena>) {
    let own = std::process::id();
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    if held.0 != own {
        // The parent's, which this process does not have.
        core::mem::forget(core::mem::replace(&mut *held, (own, Vec::new())));
    }
    held.1.push(arena);
}

/// Gives all arenas back, but for what is kept: no record names them any more.
pub(crate) fn forget() {
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    if held.0 == std::process::id() {
        held.1.clear();
    }
}

/// Gives the pages back under bytes of an object that are no longer needed, so that loading does not need memory twice.
/// Not those that are kept.
pub(crate) fn give_back(object: Key, saved: &Saved) {
    if kept::has(object) {
        return;
    }
    release(saved);
}

fn release(saved: &Saved) {
    for piece in saved.pieces() {
        let Place::Host(at) = piece.place else { continue };
        let (Ok(at), Ok(len)) = (usize::try_from(at), usize::try_from(piece.len)) else { continue };
        let start = at.next_multiple_of(PAGE);
        let end = (at + len) / PAGE * PAGE;
        if start < end {
            // SAFETY: whole pages of an arena that hold nothing else.
            unsafe {
                libc::madvise(ptr::with_exposed_provenance_mut(start), end - start, libc::MADV_DONTNEED);
            }
        }
    }
}

/// Pages are given back in multiples of this, which is one on every system that is supported.
const PAGE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_take_no_room_and_the_rest_is_found_again() {
        let parts = Parts::new([5000, 7000], None).unwrap();
        assert_eq!(parts.keep(0, 0, &[0; 5000]), Ok(Place::Zero));
        let bytes: Vec<u8> = (0..7000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let place = parts.keep(1, 0, &bytes).unwrap();
        let mut back = [0; 6990];
        HostMemory.fetch(place.skip(10), &mut back).unwrap();
        assert!(back == bytes[10..]);
        HostMemory.fetch(Place::Zero, &mut back).unwrap();
        assert!(back.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn more_than_the_limit_is_refused() {
        let parts = Parts::new([5000, 5000], Some(6000)).unwrap();
        assert!(parts.keep(0, 0, &[1; 5000]).is_ok());
        assert_eq!(parts.keep(1, 0, &[1; 5000]), Err(TransferError::OverLimit { limit: 6000 }));
    }

    #[test]
    fn bytes_outside_are_refused() {
        let parts = Parts::new([5000], None).unwrap();
        assert!(parts.keep(1, 0, &[1; 10]).is_err());
        assert!(parts.keep(0, 2 << 20, &[1; 10]).is_err());
    }

    #[test]
    fn bytes_that_were_given_back_are_gone_and_their_neighbours_are_not() {
        let (grain, parts) = (vec![7; GRAIN], Parts::new([1 << 30; 1], None).unwrap());
        let mut saved = Saved::default();
        let len = u64::try_from(GRAIN).unwrap();
        let first = parts.keep(0, 0, &grain).unwrap();
        let second = parts.keep(0, len, &grain).unwrap();
        saved.push(shim_core::world::Piece { len, place: first });
        release(&saved);
        let mut back = vec![1; GRAIN];
        HostMemory.fetch(first, &mut back).unwrap();
        assert!(back.iter().all(|byte| *byte == 0));
        HostMemory.fetch(second, &mut back).unwrap();
        assert!(back == grain);
    }
}
