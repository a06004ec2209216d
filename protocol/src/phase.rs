//! Where a process stands between running and suspended, and which verb leads where.
//!
//! ```text
//!              quiesce              quiesce            release            load             remap
//!   Running ------------> Quiescing --------> Quiesced -------> Released ------> Loaded ------> Remapped
//!      ^                  |   ^  | step          |               |    ^                            |
//!      |<-----------------+   +--+<-----step-----+               +----+ stage                      |
//!      |          reopen                reopen   |                                                 |
//!      +<----------------------------------------+-------------------------------------------------+
//!                                                                               reopen
//! ```
//!
//! A verb may be repeated in the phase it leads to and does nothing twice. A `quiesce` that has not drained yet
//! leaves the process in `Quiescing`. A `step` of a process that has drained takes it back there: a peer waits
//! for work that is held here. A `release` that is only to save drops nothing and leads nowhere, and so does a
//! `remap` that is to stop for others. One that fails before anything was dropped leaves `Quiesced`, one that
//! fails later leaves `Released`: `load`, `remap` and `reopen` then undo exactly what was dropped.

use serde::{Deserialize, Serialize};

/// Where a process stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Phase {
    /// All gates are open.
    #[default]
    Running,
    /// At least the launch gate is closed; work may still run.
    Quiescing,
    /// All gates are closed and every context is idle.
    Quiesced,
    /// Shares are taken apart, contents are saved, the GPU holds none of the tracked memory.
    Released,
    /// Own allocations exist again at their addresses, with their bytes.
    Loaded,
    /// Imports are mapped again: everything is as it was, behind closed gates.
    Remapped,
}

/// The verbs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum VerbKind {
    /// Lists what the process holds. Changes nothing.
    Inspect = 1,
    /// Closes gates and drains.
    Quiesce = 2,
    /// Lets one held launch through.
    Step = 3,
    /// Saves and frees.
    Release = 4,
    /// Reads saved bytes ahead.
    Stage = 5,
    /// Re-creates own allocations.
    Load = 6,
    /// Imports again from peers.
    Remap = 7,
    /// Opens the gates.
    Reopen = 8,
    /// Asked by a peer: hands over a descriptor for a ticket.
    Export = 9,
}

impl VerbKind {
    /// All verbs.
    pub const ALL: [Self; 9] = [
        Self::Inspect,
        Self::Quiesce,
        Self::Step,
        Self::Release,
        Self::Stage,
        Self::Load,
        Self::Remap,
        Self::Reopen,
        Self::Export,
    ];

    /// The verb with this number on the wire.
    pub fn from_wire(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| *verb as u8 == number)
    }

    /// Whether the verb may change the process. Such verbs run one at a time.
    pub const fn changes(self) -> bool {
        !matches!(self, Self::Inspect | Self::Export)
    }

    /// The verb's name, as in the command line and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inspect => "inspect",
            Self::Quiesce => "quiesce",
            Self::Step => "step",
            Self::Release => "release",
            Self::Stage => "stage",
            Self::Load => "load",
            Self::Remap => "remap",
            Self::Reopen => "reopen",
            Self::Export => "export",
        }
    }
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 6] =
        [Self::Running, Self::Quiescing, Self::Quiesced, Self::Released, Self::Loaded, Self::Remapped];

    /// The phase `verb` leads to when it succeeds, or `None` where it is not allowed.
    pub const fn after(self, verb: VerbKind) -> Option<Self> {
        use VerbKind as V;
        match (self, verb) {
            (phase, V::Inspect) => Some(phase),
            (Self::Running | Self::Quiescing | Self::Quiesced, V::Quiesce) => Some(Self::Quiesced),
            (Self::Quiescing | Self::Quiesced, V::Step) => Some(Self::Quiescing),
            (Self::Quiesced | Self::Released, V::Release) => Some(Self::Released),
            (Self::Released, V::Stage) => Some(Self::Released),
            (Self::Released | Self::Loaded, V::Load) => Some(Self::Loaded),
            (Self::Loaded | Self::Remapped, V::Remap) => Some(Self::Remapped),
            (Self::Running | Self::Quiescing | Self::Quiesced | Self::Remapped, V::Reopen) => {
                Some(Self::Running)
            }
            (Self::Running | Self::Quiescing | Self::Quiesced | Self::Loaded | Self::Remapped, V::Export) => {
                Some(self)
            }
            _ => None,
        }
    }

    /// The phase's name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Quiescing => "quiescing",
            Self::Quiesced => "quiesced",
            Self::Released => "released",
            Self::Loaded => "loaded",
            Self::Remapped => "remapped",
        }
    }
}
