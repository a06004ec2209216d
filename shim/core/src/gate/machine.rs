//! What the gate asks of the machine it runs on: atomic words, fences, a way to wait, names of threads.
//!
//! The real one is [`Linux`](super::linux::Linux). The model tests bring another, in which a tool picks every
//! order that the memory model allows.

use core::cell::Cell;
use core::sync::atomic::Ordering;

/// An atomic number.
pub(super) trait Atomic<T> {
    fn load(&self, order: Ordering) -> T;
    fn store(&self, value: T, order: Ordering);
    /// Replaces `current` by `new`; sequentially consistent. Whether it did.
    fn replace(&self, current: T, new: T) -> bool;
    fn fetch_add(&self, value: T, order: Ordering) -> T;
    fn fetch_sub(&self, value: T, order: Ordering) -> T;
    fn fetch_or(&self, value: T, order: Ordering) -> T;
    fn fetch_and(&self, value: T, order: Ordering) -> T;
}

/// Implements [`Atomic`] for the types of one library.
macro_rules! atomics {
    ($($atomic:ty: $value:ty),+) => {$(
        impl $crate::gate::machine::Atomic<$value> for $atomic {
            #[inline(always)]
            fn load(&self, order: core::sync::atomic::Ordering) -> $value {
                self.load(order)
            }

            #[inline(always)]
            fn store(&self, value: $value, order: core::sync::atomic::Ordering) {
                self.store(value, order);
            }

            fn replace(&self, current: $value, new: $value) -> bool {
                use core::sync::atomic::Ordering::SeqCst;
                self.compare_exchange(current, new, SeqCst, SeqCst).is_ok()
            }

            fn fetch_add(&self, value: $value, order: core::sync::atomic::Ordering) -> $value {
                self.fetch_add(value, order)
            }

            fn fetch_sub(&self, value: $value, order: core::sync::atomic::Ordering) -> $value {
                self.fetch_sub(value, order)
            }

            fn fetch_or(&self, value: $value, order: core::sync::atomic::Ordering) -> $value {
                self.fetch_or(value, order)
            }

            fn fetch_and(&self, value: $value, order: core::sync::atomic::Ordering) -> $value {
                self.fetch_and(value, order)
            }
        }
    )+};
}
pub(super) use atomics;

/// What a thread keeps for the gate.
#[derive(Debug)]
pub(super) struct Local {
    /// One more than the index of its slot; 0 while it has none.
    pub(super) place: Cell<u32>,
    /// Its count, where its slot is a shared one.
    pub(super) count: Cell<u32>,
}

impl Local {
    pub(super) const fn new() -> Self {
        Self { place: Cell::new(0), count: Cell::new(0) }
    }
}

/// The machine.
pub(super) trait Machine {
    type U32: Atomic<u32>;
    type U64: Atomic<u64>;

    /// Hands `f` what the calling thread keeps.
    fn with_local<R>(f: impl FnOnce(&Local) -> R) -> R;

    /// Keeps the compiler from moving memory accesses across it. Together with a heavy fence of another thread
    /// it acts as a full fence.
    fn light_fence();

    /// A full fence of the calling thread.
    fn full_fence();

    /// Whether heavy fences are to be had.
    fn has_heavy_fence() -> bool;

    /// Returns after every other running thread of the process has executed a full fence at some point during
    /// the call. The error is the system's.
    fn heavy_fence() -> Result<(), i32>;

    /// Sleeps until `word` is no longer `value`, or for no reason.
    fn wait(word: &Self::U32, value: u32);

    /// Wakes all who sleep on `word`.
    fn wake(word: &Self::U32);

    /// The calling thread's name: positive, unique among living threads.
    fn thread() -> u32;

    /// Whether a thread of this name lives.
    fn is_alive(thread: u32) -> bool;
}
