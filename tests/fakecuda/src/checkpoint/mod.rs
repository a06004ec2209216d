//! The checkpoint API: one process locks, checkpoints, restores and unlocks another.
//!
//! ```text
//! running ──lock──▶ locked ──checkpoint──▶ checkpointed
//!    ▲                │ ▲                        │
//!    └─────unlock─────┘ └────────restore─────────┘
//! ```
//!
//! The process itself does the work, on a thread that `cuInit` started and that is the restore thread; the caller asks it
//! over a socket in the machine's directory. While locked or checkpointed the calls of the process wait.
//!
//! What a restore cannot bring back is remembered at the checkpoint, which succeeds; the restore then fails, and every
//! later one too (docs/DRIVER-VERSIONS.md, what a process holds).

pub(crate) mod calls;
pub(crate) mod save;
pub(crate) mod service;
mod wire;
