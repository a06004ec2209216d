//! The control server without what it controls: sockets, threads, bounds and order of the verbs.
//!
//! ```text
//!                 +-- inspect ------------------------------> answered at once, here
//!  client --> control thread -- export --> peer thread -----> waits for nobody, or parks the request
//!  client --> (poll)        \-- the rest -> worker thread --> one at a time, the second is told "busy"
//! ```
//!
//! What holds: the control thread makes no driver call and waits for nothing but its sockets. Each connection has
//! one request under way at most, and is not read while it has. Numbers of connections, sizes of messages, and the
//! time for a message to arrive or to be taken are all bounded, so whatever a client does harms only itself. A
//! verb whose asker has gone is carried out to its end.
//!
//! What the verbs do is behind [`Operations`]: the shim's driver calls there, anything in a test.

mod admit;
mod carry;
mod connection;
mod descriptors;
mod lane;
pub mod own;
mod phases;
mod reactor;
mod server;
pub mod socket;
mod thread;
mod wake;

use std::os::fd::OwnedFd;

use protocol::{ExportReply, ExportRequest, Failure, InspectRequest, Inventory, Reply, Request};

pub use admit::Refusal;
pub use descriptors::{Descriptors, Held};
pub use phases::Phases;
pub use server::{Limits, Server};
pub use thread::spawn;

/// What the server answers with. Called on the server's threads; a panic is caught there.
pub trait Operations: Sync {
    /// Lists what the process holds. Runs on the control thread: no driver call, no waiting.
    fn inspect(&self, request: InspectRequest) -> Result<Inventory, Failure>;

    /// Carries out a verb that changes the process. Runs on the worker thread, one at a time, in a phase that
    /// allows it.
    fn change(&self, request: &Request, phases: &Phases) -> Result<Reply, Failure>;

    /// Hands out a descriptor. Runs on the peer thread: never waits for a peer, takes no lock that is held
    /// across a driver call. `NotNow` parks the request until the phase changes.
    fn export(&self, request: ExportRequest) -> Result<(ExportReply, OwnedFd), Failure>;

    /// Whether what a peer asks for is here at all, in a phase in which nothing is handed out: who looks for something else
    /// must not wait until that is over. Runs on the control thread: no driver call, no waiting.
    fn has(&self, request: &ExportRequest) -> Result<(), Failure>;

    /// Looks after what nobody asks about. Runs on the worker thread while it has nothing to do and the process
    /// runs. Whether to be called again soon.
    fn tend(&self) -> bool;

    /// Whether a panic was caught earlier. Verbs that change something are refused then.
    fn poisoned(&self) -> bool;

    /// A panic was caught in a verb.
    fn poison(&self);

    /// A line for the log.
    fn note(&self, line: core::fmt::Arguments<'_>);
}
