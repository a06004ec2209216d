//! The client side of what a process asks of a peer.
