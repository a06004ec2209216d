//! Chunks of saved memory on disk: a store that checkpoints share, and a cache of it on each node.
//!
//! A chunk is up to 64 MiB of bytes under the name of its BLAKE3-256 digest; the same bytes are stored once. A
//! [`List`] says which chunks a checkpoint uses. Zeros are not stored at all.
//!
//! * Saving: [`Store::writer`], [`Writer::put`] or [`Writer::claim`], and [`Writer::commit`] last.
//! * Loading: [`Sources`], over a cache and a store. What is read is checked, and a bad copy is named and passed over.
//!
//! What holds at any moment, whatever fails and wherever a process or the machine stops:
//!
//! * A file under a chunk's name has that chunk's bytes, unless the disk or somebody else changed it.
//! * A list in place is complete, and every chunk that it names is there (module [`writer`]), as long as collectors
//!   are given the directories of all lists (module [`lease`]).
//!
//! Nothing here starts a thread, but for [`Threads`]; nothing sets a signal handler or changes the process.

pub mod buffer;
pub mod checkpoint;
pub mod collect;
mod content;
pub mod digest;
mod each;
pub mod error;
pub mod executor;
pub mod layer;
mod layout;
pub mod lease;
pub mod list;
pub mod pipeline;
mod place;
pub mod prefetch;
pub mod sources;
pub mod stats;
pub mod store;
pub mod verify;
pub mod writer;

pub use buffer::AlignedBuf;
pub use checkpoint::{Listed, read_list, read_lists};
pub use collect::{CacheCollected, Collected, GcOptions, Tally, cache_gc, store_gc};
pub use digest::{CHUNK_BYTES, Chunk, Digest, is_zero};
pub use each::{Progress, Report};
pub use error::{
    CollectError, CommitError, FileError, GetError, LoadError, OpenError, PrefetchError, PutError,
    ReadListError,
};
pub use executor::{Executor, Inline, Threads};
pub use layer::{FaultPlan, Faulty, FileLayer, System};
pub use layout::list_name;
pub use list::{Extent, List, Object};
pub use pipeline::{Filled, Producer, ReadAhead, Reader, WriteBehind, WriteError};
pub use prefetch::{Prefetched, cache_prefetch};
pub use sources::{Fetched, Sources, Verify};
pub use stats::{Route, Stats};
pub use store::{Kind, Store};
pub use verify::{Verified, VerifyError, store_verify};
pub use writer::{Begun, Coming, Put, Writer};
