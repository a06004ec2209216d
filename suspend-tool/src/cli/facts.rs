//! What is true of each verb.

use super::Verb;

impl Verb {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Check { .. } => "check",
            Self::Status { .. } => "status",
            Self::List { .. } => "list",
            Self::Suspend { .. } => "suspend",
            Self::Resume { .. } => "resume",
            Self::Stop { .. } => "stop",
            Self::Kill { .. } => "kill",
            Self::Gpus { .. } => "gpus",
            Self::Run { .. } => "run",
            Self::Quiesce { .. } => "quiesce",
            Self::Release { .. } => "release",
            Self::Checkpoint { .. } => "checkpoint",
            Self::Restore { .. } => "restore",
            Self::Stage { .. } => "stage",
            Self::Load { .. } => "load",
            Self::Remap { .. } => "remap",
            Self::Reopen { .. } => "reopen",
            Self::CachePrefetch(_) => "cache-prefetch",
            Self::CacheGc(_) => "cache-gc",
            Self::StoreGc(_) => "store-gc",
            Self::StoreVerify(_) => "store-verify",
            Self::Hold { .. } => "hold",
            Self::Completions { .. } => "completions",
            Self::Man { .. } => "man",
        }
    }

    /// Whether it does something to processes.
    pub const fn changes(&self) -> bool {
        match self {
            Self::Suspend { .. }
            | Self::Resume { .. }
            | Self::Stop { .. }
            | Self::Kill { .. }
            | Self::Quiesce { .. }
            | Self::Release { .. }
            | Self::Checkpoint { .. }
            | Self::Restore { .. }
            | Self::Stage { .. }
            | Self::Load { .. }
            | Self::Remap { .. }
            | Self::Reopen { .. } => true,
            Self::Check { .. }
            | Self::Status { .. }
            | Self::List { .. }
            | Self::Gpus { .. }
            | Self::Run { .. }
            | Self::CachePrefetch(_)
            | Self::CacheGc(_)
            | Self::StoreGc(_)
            | Self::StoreVerify(_)
            | Self::Hold { .. }
            | Self::Completions { .. }
            | Self::Man { .. } => false,
        }
    }

    /// Whether threads are to be held still. The single phases leave that to whoever drives them.
    pub const fn freezes(&self) -> bool {
        match self {
            Self::Check { freeze, .. } | Self::Suspend { freeze, .. } => !freeze.no_freeze,
            _ => false,
        }
    }

    /// Whether it is finished or undone by somebody else should this command die.
    pub const fn is_watched_over(&self) -> bool {
        matches!(self, Self::Suspend { .. } | Self::Resume { .. } | Self::Kill { .. })
    }

    /// Whether its events are to be printed as JSON.
    pub fn json(&mut self) -> bool {
        self.output().is_some_and(|output| output.json)
    }
}
