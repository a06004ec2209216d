//! Page-locked memory that copies of the last rounds go to and come from, and memory on the device.

use std::ffi::c_void;

use cuda_sys::{CuResult, DevicePtr, Event, Stream};

use crate::driver;

/// `CU_STREAM_PER_THREAD`
const PER_THREAD: usize = 2;

/// A slot of `words` double words for each of the last rounds.
#[derive(Debug)]
pub(super) struct Pinned {
    at: *mut u64,
    words: usize,
    slots: u64,
}

/// What no round leaves.
const NOTHING: u64 = 0xdead_dead_dead_dead;

impl Pinned {
    pub(super) fn new(slots: u64, words: usize) -> CuResult<Self> {
        let mut at: *mut c_void = std::ptr::null_mut();
        let count = usize::try_from(slots).unwrap_or(usize::MAX).saturating_mul(words);
        // SAFETY: a place for the pointer.
        unsafe { driver::cuMemHostAlloc(&raw mut at, count.saturating_mul(8), 0) }?;
        let pinned = Self { at: at.cast(), words, slots };
        (0..slots).for_each(|round| pinned.clear(round));
        Ok(pinned)
    }

    fn slot(&self, round: u64) -> *mut u64 {
        let index = usize::try_from(round % self.slots).unwrap_or(0);
        self.at.wrapping_add(index * self.words)
    }

    /// Where word `word` of a round is, for the driver.
    pub(super) fn place(&self, round: u64, word: usize) -> *mut c_void {
        self.slot(round).wrapping_add(word).cast()
    }

    /// What is there now. The work that writes it must have been waited for.
    pub(super) fn read(&self, round: u64, word: usize) -> u64 {
        // SAFETY: inside the allocation, aligned; device and processor do not write to it at this time.
        unsafe { self.slot(round).wrapping_add(word).read_volatile() }
    }

    /// Two 32-bit words that lie in one.
    pub(super) fn halves(&self, round: u64, word: usize) -> (u32, u32) {
        let value = self.read(round, word);
        (super::low(value), super::low(value >> 32))
    }

    /// Puts a value there. No work may be using the slot.
    pub(super) fn write(&self, round: u64, word: usize, value: u64) {
        // SAFETY: as in `read`.
        unsafe { self.slot(round).wrapping_add(word).write_volatile(value) }
    }

    /// Makes sure that what is read next was written by later work.
    pub(super) fn clear(&self, round: u64) {
        (0..self.words).for_each(|word| self.write(round, word, NOTHING));
    }

    /// Copies double words from the device into the slot of a round, in the order of a stream.
    pub(super) fn take(
        &self,
        round: u64,
        word: usize,
        from: DevicePtr,
        words: usize,
        on: Stream,
    ) -> CuResult {
        // SAFETY: page-locked, long enough, and alive to the end of the process.
        unsafe { driver::cuMemcpyDtoHAsync_v2(self.place(round, word), from, words * 8, on) }
    }
}

/// Zeroed memory of this device, which stays to the end.
pub(super) fn zeroed(bytes: usize) -> CuResult<DevicePtr> {
    let mut address = DevicePtr(0);
    // SAFETY: a place for the address.
    unsafe { driver::cuMemAlloc_v2(&raw mut address, bytes) }?;
    // SAFETY: the memory just allocated.
    unsafe { driver::cuMemsetD8_v2(address, 0, bytes) }?;
    sync(Stream::NULL)?;
    Ok(address)
}

/// A stream; a blocking one waits for the default stream and makes that wait.
pub(super) fn stream(blocking: bool) -> CuResult<Stream> {
    let mut stream = Stream::NULL;
    // SAFETY: a place for the stream.
    unsafe { driver::cuStreamCreate(&raw mut stream, u32::from(!blocking)) }?;
    Ok(stream)
}

/// The default stream of the calling thread.
pub(super) fn per_thread() -> Stream {
    Stream(std::ptr::without_provenance_mut(PER_THREAD))
}

/// An event.
pub(super) fn event() -> CuResult<Event> {
    let mut event = Event::NULL;
    // SAFETY: a place for the event.
    unsafe { driver::cuEventCreate(&raw mut event, 0) }?;
    Ok(event)
}

/// Waits for a stream.
pub(super) fn sync(stream: Stream) -> CuResult {
    // SAFETY: a stream of this program.
    unsafe { driver::cuStreamSynchronize(stream) }
}

/// Reads 32-bit words by a synchronous copy.
pub(super) fn words(from: DevicePtr, count: usize) -> CuResult<Vec<u32>> {
    let mut words = vec![0_u32; count];
    // SAFETY: room for all of them, which lives through the call.
    unsafe { driver::cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), from, count * 4) }?;
    Ok(words)
}

/// An address this many bytes further.
pub(super) fn at(base: DevicePtr, offset: u64) -> DevicePtr {
    DevicePtr(base.0 + offset)
}
