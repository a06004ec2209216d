//! What the process owns, maps and shares.

/// Everything tracked of one process.
#[derive(Debug, Default)]
pub struct World {}

impl World {
    /// An empty world.
    pub const fn new() -> Self {
        Self {}
    }

    /// Forgets everything: a forked child owns nothing of its parent. Takes no lock.
    pub fn forked(&self) {}
}
