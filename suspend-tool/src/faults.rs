//! Faults on order, for tests: `NVSNAP_GPU_SUSPEND_FAULTS=call:nth:pid=effect[;call:nth:pid=effect...]`.
//!
//! * `call`: what the command asks about a process: a verb of the protocol (`release`), a function of the driver's
//!   checkpoint API (`cuCheckpointProcessLock`), what it asks of its holder (`freeze`, `thaw`, `keep`), or `cache-prefetch`, which
//!   is about the command's own process; `cuCheckpoint*` means every name that starts so, `*` all.
//! * `nth`: which of the matching calls, counted from 1 for each fault by itself; `3+` means the third and all after it,
//!   `*` all.
//! * `pid`: the process the call is about, or `*`.
//! * `effect`: `error` does nothing and fails, `late` does the call and fails all the same, `delay(MS)` waits first,
//!   `term`, `int` and `kill` send that signal to this command before the call; `crash` kills its holder as well, and
//!   `stall` stops its holder (SIGSTOP) and then kills this command.
//!
//! `NVSNAP_GPU_SUSPEND_TRACE=FILE` appends a line `call pid` for every such call before it is made, so that a test can take
//! the places from a run that succeeds.

mod faulty;

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

use crate::pid::Pid;

pub use faulty::{FaultyDriver, FaultyHold, FaultyShims};

/// Orders faults.
pub const FAULTS_VARIABLE: &str = "NVSNAP_GPU_SUSPEND_FAULTS";
/// Orders a trace.
pub const TRACE_VARIABLE: &str = "NVSNAP_GPU_SUSPEND_TRACE";

/// One fault, with the count of calls it has matched so far.
#[derive(Debug)]
struct Fault {
    call: String,
    nth: Nth,
    pid: Option<i32>,
    effect: Effect,
    seen: AtomicU32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Nth {
    Only(u32),
    From(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    Error,
    Late,
    Delay(Duration),
    /// A signal to this command, behind one to its holder or 0.
    Signal {
        holder: i32,
        command: i32,
    },
}

/// What a call has to do in place of, or beside, what it is there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Do,
    Fail,
    DoAndFail,
}

/// The faults that were ordered.
#[derive(Debug, Default)]
pub struct Faults {
    faults: Vec<Fault>,
    trace: Option<File>,
    /// The holder of this command, once it is known.
    holder: AtomicI32,
}

impl Faults {
    /// What the environment orders; `None` where it orders nothing, as it does outside of tests.
    pub fn ordered() -> Result<Option<Arc<Self>>, String> {
        let text = std::env::var(FAULTS_VARIABLE).unwrap_or_default();
        let trace = std::env::var_os(TRACE_VARIABLE).filter(|path| !path.is_empty());
        if text.is_empty() && trace.is_none() {
            return Ok(None);
        }
        let faults = parse(&text).map_err(|why| format!("{FAULTS_VARIABLE}: {why}"))?;
        let open = |path| File::options().create(true).append(true).open(path);
        let trace = trace.map(open).transpose().map_err(|error| format!("{TRACE_VARIABLE}: {error}"))?;
        Ok(Some(Arc::new(Self { faults, trace, holder: AtomicI32::new(0) })))
    }

    /// Meets what was ordered for a verb that is about no other process, where a delay or a signal may come.
    pub fn meet(&self, verb: &str) {
        if let Some(own) = Pid::new(rustix::process::getpid().as_raw_nonzero().get()) {
            self.order(verb, own);
        }
    }

    fn order(&self, call: &str, pid: Pid) -> Order {
        if let Some(mut trace) = self.trace.as_ref() {
            // One write, so that lines of several threads do not mix.
            let _ = trace.write_all(format!("{call} {pid}\n").as_bytes());
        }
        let mut order = Order::Do;
        for fault in self.faults.iter().filter(|fault| fault.hits(call, pid)) {
            match fault.effect {
                Effect::Error => return Order::Fail,
                Effect::Late => order = Order::DoAndFail,
                Effect::Delay(time) => std::thread::sleep(time),
                Effect::Signal { holder, command } => {
                    signal(self.holder.load(Ordering::Relaxed).unsigned_abs(), holder);
                    signal(std::process::id(), command);
                }
            }
        }
        order
    }

    fn around<T, E>(
        &self,
        call: &str,
        pid: Pid,
        error: impl FnOnce() -> E,
        body: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        match self.order(call, pid) {
            Order::Do => body(),
            Order::Fail => Err(error()),
            Order::DoAndFail => body().and_then(|_| Err(error())),
        }
    }
}

/// Sends a signal to this process or its holder; that is what was ordered.
fn signal(pid: u32, number: i32) {
    if let Some(pid) = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0) {
        // SAFETY: a process of ours, never a group.
        unsafe { libc::kill(pid, number) };
    }
}

impl Fault {
    fn hits(&self, call: &str, pid: Pid) -> bool {
        let named = match self.call.strip_suffix('*') {
            Some(start) => call.starts_with(start),
            None => self.call == call,
        };
        if !named || self.pid.is_some_and(|wanted| wanted != pid.number()) {
            return false;
        }
        let nth = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        match self.nth {
            Nth::Only(wanted) => nth == wanted,
            Nth::From(first) => nth >= first,
        }
    }
}

/// Reads the whole variable. An error says which fault is wrong and why.
fn parse(text: &str) -> Result<Vec<Fault>, String> {
    text.split([';', '\n'])
        .map(str::trim)
        .filter(|fault| !fault.is_empty())
        .map(|fault| parse_one(fault).map_err(|why| format!("\"{fault}\": {why}")))
        .collect()
}

fn parse_one(text: &str) -> Result<Fault, String> {
    let (place, effect) = text.split_once('=').ok_or("there is no '=effect'")?;
    let fields: Vec<&str> = place.split(':').collect();
    let [call, nth, pid] = fields[..] else { return Err("the place has to be call:nth:pid".into()) };
    let number = |text: &str| text.parse().map_err(|_| format!("'{text}' is no number"));
    let nth = match (nth, nth.strip_suffix('+')) {
        ("*", _) => Nth::From(1),
        (_, Some(first)) => Nth::From(number(first)?),
        (only, None) => Nth::Only(number(only)?),
    };
    let pid = match pid {
        "*" => None,
        pid => Some(pid.parse().map_err(|_| format!("'{pid}' is no pid"))?),
    };
    let effect = match effect {
        "error" => Effect::Error,
        "late" => Effect::Late,
        "term" => Effect::Signal { holder: 0, command: libc::SIGTERM },
        "int" => Effect::Signal { holder: 0, command: libc::SIGINT },
        "kill" => Effect::Signal { holder: 0, command: libc::SIGKILL },
        "crash" => Effect::Signal { holder: libc::SIGKILL, command: libc::SIGKILL },
        "stall" => Effect::Signal { holder: libc::SIGSTOP, command: libc::SIGKILL },
        other => {
            let time = other.strip_prefix("delay(").and_then(|rest| rest.strip_suffix(')'));
            let time = time.ok_or_else(|| format!("there is no effect '{other}'"))?;
            Effect::Delay(Duration::from_millis(number(time)?.into()))
        }
    };
    Ok(Fault { call: call.into(), nth, pid, effect, seen: AtomicU32::new(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(text: &str, calls: &[(&str, i32)]) -> Vec<Order> {
        let faults = Faults { faults: parse(text).unwrap(), ..Faults::default() };
        calls.iter().map(|(call, pid)| faults.order(call, Pid::new(*pid).unwrap())).collect()
    }

    #[test]
    fn a_fault_hits_the_nth_matching_call_about_its_process() {
        let calls = [("load", 7), ("load", 8), ("load", 7), ("load", 7)];
        use Order::{Do, DoAndFail, Fail};
        assert_eq!(orders("load:2:7=error", &calls), [Do, Do, Fail, Do]);
        assert_eq!(orders("load:2+:*=late", &calls), [Do, DoAndFail, DoAndFail, DoAndFail]);
        assert_eq!(orders("lo*:*:8=error; remap:1:7=late", &calls), [Do, Fail, Do, Do]);
    }

    #[test]
    fn a_wrong_fault_is_named() {
        for (text, why) in [
            ("load=error", "call:nth:pid"),
            ("load:1:1", "'=effect'"),
            ("load:x:1=error", "'x'"),
            ("load:1:y=error", "'y'"),
            ("load:1:1=flood", "flood"),
            ("load:1:1=delay(x)", "'x'"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(text) && error.contains(why), "{error}");
        }
    }
}
