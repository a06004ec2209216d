//! Where processes stand after something failed.

use std::collections::BTreeMap;

use cuda_sys::ProcessState;
use protocol::Phase;

use super::session::inspect;
use super::{Participant, Session, StepError, Trouble};
use crate::pid::Pid;
use crate::report::chain;

/// A process that does not run as it did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Left {
    /// The process.
    pub pid: Pid,
    /// The driver's state.
    pub driver: String,
    /// The phase of its shim.
    pub phase: String,
    /// What went wrong with it, where something did.
    pub reason: Option<String>,
}

/// What became of the processes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Aftermath {
    /// Those that do not run as before.
    pub left: Vec<Left>,
    /// Those that have ended.
    pub ended: Vec<Pid>,
    /// Those that run as before.
    pub running: Vec<Pid>,
}

impl Session {
    /// Looks where every process stands. `undo` is what could not be undone.
    pub fn aftermath(&self, undo: &[StepError]) -> Aftermath {
        let reasons = reasons(undo);
        let mut aftermath = Aftermath::default();
        let states: BTreeMap<Pid, _> =
            self.driver_states().into_iter().map(|(target, state)| (target.pid, state)).collect();
        for participant in &self.participants {
            let pid = participant.target.pid;
            let phase = self.phase_of(*participant);
            let state = states.get(&pid);
            let unknown_to_driver = matches!(state, Some(Err(trouble)) if trouble.is_gone());
            if phase.as_ref().is_err_and(Trouble::is_gone) || !participant.shimmed && unknown_to_driver {
                aftermath.ended.push(pid);
                continue;
            }
            let runs = matches!(state, Some(Ok(ProcessState::RUNNING)))
                && matches!(phase, Ok(None | Some(Phase::Running)));
            if runs {
                aftermath.running.push(pid);
                continue;
            }
            aftermath.left.push(Left {
                pid,
                driver: match state {
                    Some(Ok(state)) => crate::driver::state_name(*state),
                    Some(Err(trouble)) => chain(trouble),
                    None => "unknown".into(),
                },
                phase: match &phase {
                    Ok(Some(phase)) => phase.name().into(),
                    Ok(None) => "no library".into(),
                    Err(trouble) => chain(trouble),
                },
                reason: reasons.get(&pid).cloned(),
            });
        }
        aftermath
    }

    fn phase_of(&self, participant: Participant) -> Result<Option<Phase>, Trouble> {
        if participant.shimmed {
            inspect(&*self.shims, participant.target, false).map(|inventory| Some(inventory.phase))
        } else {
            Ok(None)
        }
    }
}

fn reasons(undo: &[StepError]) -> BTreeMap<Pid, String> {
    let mut reasons = BTreeMap::new();
    for error in undo {
        if let StepError::Processes { failures, .. } = error {
            for (pid, trouble) in failures {
                reasons.entry(*pid).or_insert_with(|| chain(trouble));
            }
        }
    }
    reasons
}
