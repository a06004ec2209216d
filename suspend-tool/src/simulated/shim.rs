//! Made-up shims, which speak the real protocol.

use std::sync::{Arc, Mutex};

use cuda_sys::ProcessState;
use protocol::{
    Cause, Contents, Decoder, Drain, Extent, Facts, Failure, Frame, GateLevel, Held, Inventory, LoadExtent,
    Moved, Phase, QuiesceReply, ReleaseRequest, RemapReply, RemapRequest, ReopenReply, Reply, Request, Side,
    Transferred, Turn, Unreachable, VerbKind,
};

use super::process::SIZE;
use super::{Fault, Inner, locked};
use crate::client::{Patience, ShimError, Shims};
use crate::pid::Target;

pub(super) struct Simulated(pub(super) Arc<Mutex<Inner>>);

impl Shims for Simulated {
    fn exchange(
        &self,
        target: Target,
        verb: VerbKind,
        request: &[u8],
        _patience: Patience,
    ) -> Result<Frame, ShimError> {
        let pid = target.pid.number();
        let mut inner = locked(&self.0);
        let fault = inner.called(pid, verb.name());
        if fault == Some(Fault::Dies) {
            return Err(ShimError::Died { pid: target.pid, verb: verb.name() });
        }
        let Some(process) = inner.processes.get(&pid) else {
            return Err(Unreachable::from_facts(pid, Facts::default()).into());
        };
        if process.idle || process.bare {
            let facts = Facts { alive: true, preloaded: Some(!process.bare), ..Facts::default() };
            return Err(Unreachable::from_facts(pid, facts).into());
        }
        let frame = decoded(request, Side::Server);
        let id = frame.header.id;
        let failure = |inner: &Inner| {
            let phase = inner.processes.get(&pid).map_or(Phase::Running, |process| process.phase);
            let message = "made to fail".to_owned();
            let failure = Failure { cause: Cause::Driver(999), message, phase };
            protocol::encode_failure(verb as u8, id, &failure).unwrap()
        };
        if fault == Some(Fault::Before) {
            return Ok(decoded(&failure(&inner), Side::Client));
        }
        let reply = inner.answer(pid, Request::decode(&frame).unwrap());
        let bytes = match (reply, fault) {
            (Ok(reply), None) => reply.encode(id).unwrap(),
            (Ok(_), Some(_)) => failure(&inner),
            (Err(failure), _) => protocol::encode_failure(verb as u8, id, &failure).unwrap(),
        };
        Ok(decoded(&bytes, Side::Client))
    }
}

fn decoded(mut bytes: &[u8], side: Side) -> Frame {
    Decoder::new(side).feed(&mut bytes).unwrap().unwrap()
}

impl Inner {
    fn answer(&mut self, pid: i32, request: Request) -> Result<Reply, Failure> {
        let verb = request.verb();
        let phase = self.processes[&pid].phase;
        let Some(after) = phase.after(verb) else {
            self.violation(format!("{} was asked of {pid}, which is {phase:?}", verb.name()));
            return Err(refusal(phase));
        };
        if verb.changes() && self.processes[&pid].at_work > 0 {
            return Err(Failure { cause: Cause::Busy, ..refusal(phase) });
        }
        if verb.changes() && self.processes[&pid].state != ProcessState::RUNNING {
            // Its driver calls would never come back.
            self.violation(format!("{} was asked of {pid}, which the driver holds", verb.name()));
        }
        if verb.changes() && self.processes[&pid].frozen {
            self.violation(format!("{} was asked of {pid}, whose threads are frozen", verb.name()));
        }
        let reply = match request {
            Request::Inspect(asked) => {
                let inspected = self.inspected(pid, asked.allocations);
                self.work_on(pid);
                return Ok(Reply::Inspect(inspected));
            }
            Request::Quiesce(asked) => return Ok(Reply::Quiesce(self.quiesce(pid, asked.level))),
            Request::Step(asked) => return Ok(Reply::Step(self.step(pid, asked.held))),
            Request::Release(asked) => Reply::Release(self.release(pid, &asked)),
            Request::Load(asked) if asked.extent == LoadExtent::Make => {
                return Ok(Reply::Load(Transferred::default()));
            }
            Request::Load(_) => Reply::Load(self.load(pid)),
            Request::Remap(asked) => {
                let done = Reply::Remap(self.remap(pid, &asked)?);
                if asked.turn != Turn::Map {
                    return Ok(done);
                }
                done
            }
            Request::Reopen(_) => {
                let process = self.processes.get_mut(&pid).unwrap();
                process.gates_closed = false;
                process.memory_gate_closed = false;
                Reply::Reopen(ReopenReply { waiting: process.held })
            }
            Request::Stage(_) | Request::Export(_) => return Err(refusal(phase)),
        };
        self.processes.get_mut(&pid).unwrap().phase = after;
        Ok(reply)
    }

    /// The load that another command began comes to its end.
    fn work_on(&mut self, pid: i32) {
        let process = self.processes.get_mut(&pid).unwrap();
        if process.at_work > 0 {
            process.at_work -= 1;
            if process.at_work == 0 {
                self.load(pid);
                self.processes.get_mut(&pid).unwrap().phase = Phase::Loaded;
            }
        }
    }

    fn drain(&self, pid: i32) -> Drain {
        let process = &self.processes[&pid];
        let busy = process.waits_for.is_some_and(|(peer, launches)| {
            self.processes.get(&peer).is_some_and(|peer| peer.launched < launches)
        });
        process.drain(busy)
    }

    fn inspected(&self, pid: i32, allocations: bool) -> Inventory {
        let mut inventory = self.processes[&pid].inventory(self.drain(pid));
        if !allocations {
            inventory.allocations.clear();
        }
        inventory
    }

    fn quiesce(&mut self, pid: i32, level: GateLevel) -> QuiesceReply {
        let process = self.processes.get_mut(&pid).unwrap();
        process.gates_closed = true;
        process.memory_gate_closed |= level == GateLevel::Memory;
        let closed = process.memory_gate_closed;
        let drain = self.drain(pid);
        let phase = if closed && drain.drained { Phase::Quiesced } else { Phase::Quiescing };
        self.processes.get_mut(&pid).unwrap().phase = phase;
        QuiesceReply { drain }
    }

    fn step(&mut self, pid: i32, held: Held) -> QuiesceReply {
        let process = self.processes.get_mut(&pid).unwrap();
        process.phase = Phase::Quiescing;
        if held == Held::Memory {
            process.memory_gate_closed = false;
        } else if process.memory_gate_closed && process.needs_copies > 0 {
            process.needs_copies -= 1;
        } else if process.held > 0 {
            process.held -= 1;
            process.launched += 1;
        }
        QuiesceReply { drain: self.drain(pid) }
    }

    fn release(&mut self, pid: i32, asked: &ReleaseRequest) -> Transferred {
        let all_at_once = self.all_at_once;
        let process = self.processes.get_mut(&pid).unwrap();
        let mut bytes = Moved::default();
        if asked.extent == Extent::Save && !all_at_once {
            return Transferred::default();
        }
        for holding in &mut process.holdings {
            let saves = !holding.is_import() || asked.heir_of.contains(&holding.id);
            holding.memory = None;
            if saves {
                holding.contents = Contents::Host;
                bytes.objects += 1;
                bytes.moved += SIZE;
            } else {
                holding.contents = Contents::Elsewhere;
                // What is in it is only known to who saved it.
                holding.value = 0;
            }
        }
        Transferred { bytes, mappings: process.holdings.len() as u64 }
    }

    fn load(&mut self, pid: i32) -> Transferred {
        let count = self.processes[&pid].holdings.len();
        let fresh: Vec<u64> = (0..count).map(|_| self.new_memory()).collect();
        let process = self.processes.get_mut(&pid).unwrap();
        for (holding, memory) in process.holdings.iter_mut().zip(fresh) {
            if holding.contents == Contents::Host {
                holding.contents = Contents::Live;
                holding.memory = Some(memory);
            }
        }
        Transferred::default()
    }

    fn remap(&mut self, pid: i32, asked: &RemapRequest) -> Result<RemapReply, Failure> {
        let missing: Vec<_> = self.processes[&pid]
            .holdings
            .iter()
            .enumerate()
            .filter(|(_, holding)| holding.contents == Contents::Elsewhere)
            .map(|(at, holding)| (at, holding.id))
            .collect();
        for (at, id) in missing {
            let from = asked.sources.iter().find(|source| source.allocation == id).map(|source| source.pid);
            let provider = from.and_then(|pid| self.processes.get(&pid));
            let found = provider
                .filter(|provider| provider.phase.after(VerbKind::Export).is_some())
                .and_then(|provider| provider.holdings.iter().find(|holding| holding.id == id))
                .filter(|holding| holding.contents == Contents::Live)
                .map(|holding| (holding.memory, holding.value));
            let Some((memory, value)) = found else { return Err(refusal(Phase::Loaded)) };
            let holding = &mut self.processes.get_mut(&pid).unwrap().holdings[at];
            holding.memory = memory;
            holding.value = value;
            holding.contents = Contents::Live;
        }
        Ok(RemapReply::default())
    }
}

fn refusal(phase: Phase) -> Failure {
    Failure { cause: Cause::WrongPhase, message: "not in this phase".into(), phase }
}
