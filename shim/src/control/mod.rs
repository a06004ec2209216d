//! The control server: a thread that answers the tool and peers.

/// Starts the control thread, once per process generation.
pub(crate) fn start() {}
