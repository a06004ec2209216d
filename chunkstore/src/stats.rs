//! What was done, counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// Whether bytes went past the page cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Route {
    /// All but at most an odd tail went by `O_DIRECT`.
    Direct,
    /// At least a part that could have gone direct went through the page cache.
    Buffered,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Counts since the store was opened.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)+
        }

        #[derive(Default, Debug)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)+
        }

        impl Counters {
            pub(crate) fn read(&self) -> Stats {
                Stats { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }
        }
    };
}

counters! {
    /// Chunks written.
    written_chunks,
    /// Their bytes.
    written_bytes,
    /// Chunks that were there already.
    existing_chunks,
    /// Their bytes.
    existing_bytes,
    /// Chunks that were all zero, so that nothing was done.
    zero_chunks,
    /// Their bytes.
    zero_bytes,
    /// Chunks that were there with a wrong length or wrong bytes, and were put right.
    repaired_chunks,
    /// Chunks read.
    read_chunks,
    /// Their bytes.
    read_bytes,
    /// Chunks found to be missing, or not what their name says.
    bad_chunks,
    /// Writes of whole chunks that `O_DIRECT` was refused to.
    buffered_writes,
    /// Reads of whole chunks that `O_DIRECT` was refused to.
    buffered_reads,
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}
