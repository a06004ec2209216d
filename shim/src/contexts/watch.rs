//! A thread that waits for the work of one context.
//!
//! Waiting for a context has no time limit and cannot be called off, so a thread of its own does it. It lives
//! while there is something to wait for. A round that begins while the thread still waits for an earlier one makes
//! it wait once more: only a wait that began after the round did says anything about it.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use cuda_sys::{Context, CuError, CuResult};
use protocol::ContextState;

use super::Known;
use crate::driver::real;
use crate::fresh::lock;

/// What the driver needs while it waits.
const STACK: usize = 256 << 10;

/// One context, and the thread that waits for it.
#[derive(Debug)]
pub(super) struct Watch {
    known: Known,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// The last round begun.
    wanted: u64,
    /// The last round whose work is done, and how it ended.
    done: u64,
    result: CuResult,
    /// A thread is at it.
    running: bool,
    /// The context is about to go.
    retired: bool,
}

impl Watch {
    pub(super) fn new(known: Known) -> Self {
        let state = State { wanted: 0, done: 0, result: Ok(()), running: false, retired: false };
        Self { known, state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn known(&self) -> Known {
        self.known
    }

    pub(super) fn state(&self) -> ContextState {
        ContextState { device: self.known.device.0, busy: lock(&self.state).running }
    }

    /// Begins a round.
    pub(super) fn begin(self: &Arc<Self>, round: u64) {
        let mut state = lock(&self.state);
        if state.retired {
            return;
        }
        state.wanted = round;
        if state.running {
            return;
        }
        state.running = true;
        drop(state);
        let watch = self.clone();
        if let Err(error) = shim_core::control::spawn(c"nvsnap-drain", STACK, move || watch.run()) {
            // The context counts as busy, and the next round tries again.
            log!("no thread to wait for the work of {:?}: {error}", self.known.context);
            lock(&self.state).running = false;
            self.changed.notify_all();
        }
    }

    /// How the round ended: `None` if it has not by `deadline`.
    pub(super) fn wait(&self, round: u64, deadline: Instant) -> Option<CuResult> {
        let mut state = lock(&self.state);
        loop {
            if state.retired {
                return Some(Ok(()));
            }
            if state.done >= round {
                return Some(state.result);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || !state.running {
                return None;
            }
            state = match self.changed.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// Lets no further round begin, and returns when the thread is gone.
    pub(super) fn retire(&self) {
        let mut state = lock(&self.state);
        state.retired = true;
        while state.running {
            state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        self.changed.notify_all();
    }

    fn run(&self) {
        loop {
            let round = lock(&self.state).wanted;
            let result = synchronize(self.known.context);
            let mut state = lock(&self.state);
            state.done = round;
            state.result = result;
            state.running = state.wanted != round && !state.retired;
            self.changed.notify_all();
            if !state.running {
                return;
            }
        }
    }
}

/// Waits for all work that the context has been given.
fn synchronize(context: Context) -> CuResult {
    // SAFETY: the context lives: who destroys it waits for this thread first.
    let result = unsafe { real::cuCtxSetCurrent(context) }.and_then(|()| {
        // SAFETY: the context just made current.
        unsafe { real::cuCtxSynchronize() }
    });
    // SAFETY: none is current afterwards.
    let _ = unsafe { real::cuCtxSetCurrent(Context::NULL) };
    match result {
        // It went without passing a hook, and its work with it.
        Err(CuError::CONTEXT_IS_DESTROYED | CuError::INVALID_CONTEXT | CuError::DEINITIALIZED) => Ok(()),
        result => result,
    }
}
