//! Objects whose addresses are the handles that programs hold.
//!
//! Handles of the driver are heap pointers, and a freed value comes back (docs/DRIVER-VERSIONS.md, handles): here the next object
//! of a kind gets the address of the last one that was freed. Memory of a slab is never given back, so following a stale handle
//! reaches an object of the same type; `get` tells a live handle from a stale or foreign one.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

const FIRST_CHUNK: usize = 128;
const CHUNKS: usize = 24;

/// A place for an object. The object is in it whether live or not; it is set up anew through its own interior mutability.
#[derive(Debug, Default)]
struct Entry<T> {
    value: T,
    live: AtomicBool,
}

/// All objects of one kind.
#[derive(Debug)]
pub(crate) struct Slab<T: 'static> {
    chunks: [AtomicPtr<Entry<T>>; CHUNKS],
    count: AtomicUsize,
    free: Mutex<Vec<&'static Entry<T>>>,
}

impl<T: Default + Sync> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self {
            chunks: [const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNKS],
            count: AtomicUsize::new(0),
            free: Mutex::new(Vec::new()),
        }
    }

    /// A place for a new object, last freed first. `set_up` runs before anybody can find it by its handle.
    pub(crate) fn insert(&self, set_up: impl FnOnce(&'static T)) -> &'static T {
        let mut free = crate::lock(&self.free);
        if free.is_empty() {
            self.grow(&mut free);
        }
        let entry = free.pop().expect("grow adds entries");
        drop(free);
        set_up(&entry.value);
        entry.live.store(true, Ordering::Release);
        &entry.value
    }

    fn grow(&self, free: &mut Vec<&'static Entry<T>>) {
        let count = self.count.load(Ordering::Relaxed);
        let length = FIRST_CHUNK << count;
        let chunk: &'static mut [Entry<T>] = (0..length).map(|_| Entry::default()).collect::<Vec<_>>().leak();
        let place = self.chunks.get(count).expect("a process does not hold 2^30 objects of one kind");
        place.store(chunk.as_mut_ptr(), Ordering::Release);
        self.count.store(count + 1, Ordering::Release);
        let chunk: &'static [Entry<T>] = chunk;
        free.extend(chunk.iter().rev());
    }

    fn entry(&self, address: usize) -> Option<&'static Entry<T>> {
        let count = self.count.load(Ordering::Acquire);
        for (at, chunk) in self.chunks.iter().take(count).enumerate() {
            let chunk = chunk.load(Ordering::Acquire);
            let inside = address.wrapping_sub(chunk.addr());
            if inside < (FIRST_CHUNK << at) * size_of::<Entry<T>>() {
                let index = inside / size_of::<Entry<T>>();
                // SAFETY: `index` is below the number of entries of this chunk.
                let entry = unsafe { chunk.add(index) };
                // SAFETY: entries of a chunk are initialised and never freed.
                let entry = unsafe { &*entry };
                return Some(entry).filter(|entry| std::ptr::from_ref(&entry.value).addr() == address);
            }
        }
        None
    }

    /// The live object at this address.
    pub(crate) fn get(&self, address: usize) -> Option<&'static T> {
        self.entry(address).filter(|entry| entry.live.load(Ordering::Acquire)).map(|entry| &entry.value)
    }

    /// Ends the life of the object at this address; of two callers one gets it. Its place is used again only after
    /// [`Slab::recycle`].
    pub(crate) fn remove(&self, address: usize) -> Option<&'static T> {
        let entry = self.entry(address)?;
        let was = entry.live.compare_exchange(true, false, Ordering::AcqRel, Ordering::Acquire);
        was.is_ok().then_some(&entry.value)
    }

    /// The place of a removed object may be used again.
    pub(crate) fn recycle(&self, value: &'static T) {
        if let Some(entry) = self.entry(address_of(value)) {
            crate::lock(&self.free).push(entry);
        }
    }

    /// Every live object.
    pub(crate) fn live(&self) -> Vec<&'static T> {
        let count = self.count.load(Ordering::Acquire);
        let mut all = Vec::new();
        for (at, chunk) in self.chunks.iter().take(count).enumerate() {
            // SAFETY: the chunk has this many initialised entries and is never freed.
            let entries: &'static [Entry<T>] =
                unsafe { std::slice::from_raw_parts(chunk.load(Ordering::Acquire), FIRST_CHUNK << at) };
            all.extend(
                entries.iter().filter(|entry| entry.live.load(Ordering::Acquire)).map(|entry| &entry.value),
            );
        }
        all
    }
}

/// The handle of an object.
pub(crate) fn address_of<T>(value: &'static T) -> usize {
    std::ptr::from_ref(value).expose_provenance()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_address_comes_back_and_a_stale_one_is_known() {
        static SLAB: Slab<AtomicUsize> = Slab::new();
        let first = address_of(SLAB.insert(|value| value.store(1, Ordering::Relaxed)));
        let second = address_of(SLAB.insert(|value| value.store(2, Ordering::Relaxed)));
        assert!(SLAB.get(first).is_some() && SLAB.get(second).is_some());
        assert!(SLAB.get(first + 1).is_none(), "not the start of an object");
        let gone = SLAB.remove(first).unwrap();
        assert!(SLAB.get(first).is_none());
        assert!(SLAB.remove(first).is_none(), "removed only once");
        SLAB.recycle(gone);
        assert_eq!(address_of(SLAB.insert(|_| ())), first);
    }

    #[test]
    fn a_slab_grows() {
        static SLAB: Slab<AtomicUsize> = Slab::new();
        let all: Vec<usize> = (0..1000).map(|_| address_of(SLAB.insert(|_| ()))).collect();
        assert!(all.iter().all(|&address| SLAB.get(address).is_some()));
        assert_eq!(SLAB.live().len(), 1000);
    }
}
