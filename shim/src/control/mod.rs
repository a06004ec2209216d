//! The control server: a thread that answers the tool and peers.

/// Starts the control thread, once per process generation.
pub(crate) fn start() {}

/// Lets go of the parent's thread and socket: called in a forked child, where neither exists any more.
pub(crate) fn forked() {}
