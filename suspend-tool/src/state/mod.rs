//! What the command remembers between runs, and who works on which processes.
//!
//! Everything lies in one directory, which has to be a real directory of the command's own user with mode 0700. It is
//! opened once without following links, and all access is relative to that descriptor. Nothing in it is needed to
//! resume: the driver and the shims know where each process stands. It adds what they cannot know, and a claim that
//! keeps a second command away.

mod claim;
mod dir;
mod record;

pub use claim::{Claim, Run};
pub use dir::{DIRECTORY_VARIABLE, StateDir, StateError};
pub use record::{Needed, Record, RecordedGpu, StateJournal};
