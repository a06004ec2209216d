//! Where saved bytes go, and where they come from.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

extern crate alloc;

/// A path, byte for byte as the system has it, absolute: it is opened by another process than the one that was told it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PathBytes(pub Vec<u8>);

/// Where a release saves.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum SaveTo {
    /// Host memory of the process.
    #[default]
    Memory,
    /// The same, and it is kept after the load: what has not changed by the next release is not moved then.
    KeptMemory,
    /// A chunk store. No byte stays in the process.
    Store {
        /// The store.
        store: PathBytes,
        /// The directory that gets the list of the chunks.
        ckpt_dir: PathBytes,
        /// Chunks that the store has are read, and put right if they are bad.
        verify_existing: bool,
    },
}

/// Where a load reads what was saved to a store.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ReadFrom {
    /// The store; `None` is the one that it was saved to.
    pub store: Option<PathBytes>,
    /// A cache, which is asked first.
    pub cache: Option<PathBytes>,
}

impl SaveTo {
    /// Whether bytes stay in the process.
    pub const fn is_memory(&self) -> bool {
        matches!(self, Self::Memory | Self::KeptMemory)
    }
}
