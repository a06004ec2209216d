//! Verbs that are asked in turns: all processes finish one before any begins the next.

use serde::{Deserialize, Serialize};

/// How far a release goes.
///
/// It is asked in two turns, so that what may fail for want of host memory fails in all processes before anything is
/// dropped in one: an importer that keeps its mapping while its exporter has freed the memory no longer shares it
/// with the memory that the exporter makes again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Extent {
    /// Saves, and drops nothing.
    Save,
    /// Saves what is not saved yet, and drops.
    Drop,
}

/// How far a load goes.
///
/// It is asked in two turns, so that all processes have all of their memory again before anything is taken for moving
/// bytes: streams and buffers take memory of the GPU as well, and a card that was full has none to spare.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub enum LoadExtent {
    /// Makes memory again, with nothing in it, and maps none.
    Make,
    /// Does what is left of that, and fills and maps: all of it.
    #[default]
    Fill,
}

/// How far a remap goes.
///
/// A multicast object is rebuilt in three turns, each of which all its holders finish before any begins the next: to bind memory, and
/// to map the object, waits in the driver until every device has been added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Turn {
    /// Imports, maps memory, and adds devices to multicast objects.
    Join,
    /// Does what is left of that, and binds memory to multicast objects.
    Bind,
    /// Does what is left of that, and maps multicast objects: all of it.
    Map,
}
