//! What the verbs do.

pub(crate) mod export;
pub(crate) mod load;
pub(crate) mod release;
pub(crate) mod remap;
mod trouble;
mod views;

use std::sync::Mutex;

use protocol::Phase;

#[derive(Debug)]
pub(crate) struct Phases(Mutex<Phase>);

impl Phases {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Phase::Running))
    }
    pub(crate) fn get(&self) -> Phase {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
    pub(crate) fn set(&self, phase: Phase) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = phase;
    }
    pub(crate) fn expect(&self, _total: u64) {}
    pub(crate) fn advance(&self, _bytes: u64) {}
}
