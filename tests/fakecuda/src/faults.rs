//! Faults on order: `FAKECUDA_FAULTS=call:nth:pid=effect[;call:nth:pid=effect...]`.
//!
//! * `call`: the name of a driver function; `cuMemcpy*` means every name that starts so, `*` every function.
//! * `nth`: which of the matching calls of a process, counted from 1 for each fault by itself; `3+` means the third
//!   and all after it, `*` all.
//! * `pid`: `*`, or the process: the number it was given in `FAKECUDA_INDEX`, or its pid. For the calls of the checkpoint
//!   API it is the process they are *about*, and they are counted in the process that makes them.
//! * `effect`: `error(N)` returns that error and does nothing else, `oom` is `error(2)`, `delay(MS)` waits first and
//!   then does the call, `hang` never returns, `kill` ends the process as `kill -9` does, `late(N)` does the call
//!   and returns the error all the same, `lost` answers success and does nothing, `twice` does the call two times,
//!   `meet(N)` waits until `N` threads are in calls that the fault hits, and then does the call; once they have met nobody
//!   waits any more. It is a violation if they do not meet within some seconds.
//!
//! Example: the third `cuMemCreate` of process 2 finds no memory, and every copy of any process takes 5 ms longer:
//! `cuMemCreate:3:2=oom;cuMemcpy*:*:*=delay(5)`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use cuda_sys::{CuError, CuResult};

use crate::config::config;
use crate::trace::violation;

/// One fault, with the count of calls it has matched so far.
#[derive(Debug)]
pub(crate) struct Fault {
    call: String,
    nth: Nth,
    process: Option<u32>,
    effect: Effect,
    seen: AtomicU32,
    meeting: Meeting,
}

/// Threads that wait for each other.
#[derive(Debug, Default)]
struct Meeting {
    inside: Mutex<u32>,
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Nth {
    Only(u32),
    From(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    Error(CuError),
    Late(CuError),
    Delay(Duration),
    Hang,
    Kill,
    Lost,
    Twice,
    Meet(u32),
}

/// Reads the whole variable. An error says which fault is wrong and why.
pub(crate) fn parse(text: &str) -> Result<Vec<Fault>, String> {
    text.split([';', '\n'])
        .map(str::trim)
        .filter(|fault| !fault.is_empty())
        .map(|fault| parse_one(fault).map_err(|why| format!("\"{fault}\": {why}")))
        .collect()
}

fn parse_one(text: &str) -> Result<Fault, String> {
    let (place, effect) = text.split_once('=').ok_or("there is no '=effect'")?;
    let mut fields = place.split(':');
    let (Some(call), Some(nth), Some(process), None) =
        (fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return Err("what stands before '=' is not call:nth:pid".into());
    };
    let number = |text: &str| text.parse::<u32>().map_err(|_| format!("'{text}' is not a number"));
    Ok(Fault {
        call: call.to_owned(),
        nth: match nth {
            "*" => Nth::From(1),
            nth => match nth.strip_suffix('+') {
                Some(first) => Nth::From(number(first)?),
                None => Nth::Only(number(nth)?),
            },
        },
        process: if process == "*" { None } else { Some(number(process)?) },
        effect: parse_effect(effect)?,
        seen: AtomicU32::new(0),
        meeting: Meeting::default(),
    })
}

fn parse_effect(text: &str) -> Result<Effect, String> {
    let (name, argument) = match text.split_once('(') {
        None => (text, None),
        Some((name, rest)) => (name, Some(rest.strip_suffix(')').ok_or("the ')' is missing")?)),
    };
    let number = || -> Result<u32, String> {
        argument
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| format!("'{name}' needs a number in parentheses"))
    };
    let error = || CuError::from_raw(number()?).ok_or_else(|| "error 0 is success".to_owned());
    match name {
        "error" => Ok(Effect::Error(error()?)),
        "late" => Ok(Effect::Late(error()?)),
        "delay" => Ok(Effect::Delay(Duration::from_millis(number()?.into()))),
        "oom" => Ok(Effect::Error(CuError::OUT_OF_MEMORY)),
        "hang" => Ok(Effect::Hang),
        "kill" => Ok(Effect::Kill),
        "lost" => Ok(Effect::Lost),
        "twice" => Ok(Effect::Twice),
        "meet" => Ok(Effect::Meet(number()?)),
        _ => Err(format!("there is no effect '{name}'")),
    }
}

/// How long threads wait for each other.
const PATIENCE: Duration = Duration::from_secs(20);

impl Meeting {
    fn wait_for(&self, wanted: u32, call: &str) {
        let mut inside = crate::lock(&self.inside);
        *inside += 1;
        self.changed.notify_all();
        // Who has come stays: the next ones do not wait.
        let waited = self.changed.wait_timeout_while(inside, PATIENCE, |inside| *inside < wanted);
        let (inside, time) = waited.unwrap_or_else(PoisonError::into_inner);
        if time.timed_out() {
            violation(format_args!("{call}: {} of {wanted} threads were in it at once", *inside));
        }
    }
}

impl Fault {
    fn names(&self, call: &str) -> bool {
        match self.call.strip_suffix('*') {
            Some(start) => call.starts_with(start),
            None => self.call == call,
        }
    }

    fn hits(&self, call: &str, pid: u32, index: Option<u32>) -> bool {
        if !self.names(call) || self.process.is_some_and(|wanted| wanted != pid && Some(wanted) != index) {
            return false;
        }
        let nth = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        match self.nth {
            Nth::Only(wanted) => nth == wanted,
            Nth::From(first) => nth >= first,
        }
    }
}

/// Does what the faults for this call of this process ask for, and then the call, unless a fault stands for its result.
pub(crate) fn around(call: &str, body: impl FnMut() -> CuResult) -> CuResult {
    around_process(call, std::process::id(), config().index, body)
}

/// [`around`] for a call about the process `pid`, which was given the number `index`.
pub(crate) fn around_process(
    call: &str,
    pid: u32,
    index: Option<u32>,
    body: impl FnMut() -> CuResult,
) -> CuResult {
    with(&config().faults, call, pid, index, body)
}

fn with(
    faults: &[Fault],
    call: &str,
    pid: u32,
    index: Option<u32>,
    mut body: impl FnMut() -> CuResult,
) -> CuResult {
    let mut late = None;
    for fault in faults.iter().filter(|fault| fault.hits(call, pid, index)) {
        match fault.effect {
            Effect::Error(error) => return Err(error),
            Effect::Late(error) => late = Some(error),
            Effect::Delay(time) => std::thread::sleep(time),
            Effect::Lost => return Ok(()),
            Effect::Twice => body()?,
            Effect::Meet(wanted) => fault.meeting.wait_for(wanted, call),
            Effect::Hang => loop {
                std::thread::park();
            },
            Effect::Kill => {
                let this = libc::pid_t::try_from(std::process::id()).unwrap_or(0);
                // SAFETY: ends this process; that is what was ordered.
                unsafe { libc::kill(this, libc::SIGKILL) };
            }
        }
    }
    let result = body();
    match late {
        Some(error) => Err(error),
        None => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_hits_the_nth_matching_call_of_its_process() {
        let faults = parse("cuMemCreate:2:7=oom; cuMemcpy*:1+:*=delay(1)").unwrap();
        let create = &faults[0];
        assert!(!create.hits("cuMemCreate", 100, Some(7)));
        assert!(!create.hits("cuMemCreate", 100, Some(8)), "another process does not count");
        assert!(create.hits("cuMemCreate", 100, Some(7)));
        assert!(!create.hits("cuMemCreate", 100, Some(7)));
        assert!(faults[1].hits("cuMemcpyHtoD_v2", 1, None));
        assert!(faults[1].hits("cuMemcpy", 1, None));
        assert!(!faults[1].hits("cuMemset", 1, None));
    }

    #[test]
    fn a_call_can_be_lost_or_made_twice() {
        let count = |effect| {
            let fault = parse(&format!("call:2:*={effect}")).unwrap();
            let (mut calls, mut results) = (0, Vec::new());
            for _ in 0..3 {
                let body = || {
                    calls += 1;
                    Err(CuError::INVALID_VALUE)
                };
                results.push(with(&fault, "call", 1, None, body).is_ok());
            }
            (calls, results)
        };
        assert_eq!(count("lost"), (2, vec![false, true, false]));
        let mut calls = 0;
        let twice = parse("call:1:*=twice").unwrap();
        let body = || {
            calls += 1;
            Ok(())
        };
        assert_eq!(with(&twice, "call", 1, None, body), Ok(()));
        assert_eq!(calls, 2);
    }

    #[test]
    fn threads_meet_once() {
        let meet = parse("call:2+:*=meet(3)").unwrap();
        let enter = || with(&meet, "call", 1, None, || Ok(()));
        assert_eq!(enter(), Ok(()), "the first call is not hit");
        std::thread::scope(|scope| {
            let threads = [(); 3].map(|()| scope.spawn(enter));
            threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), Ok(())));
        });
        assert_eq!(enter(), Ok(()), "they have met");
        assert_eq!(*crate::lock(&meet[0].meeting.inside), 4);
    }

    #[test]
    fn a_wrong_fault_is_named() {
        for (text, why) in [
            ("cuMemCreate=oom", "call:nth:pid"),
            ("a:1:1", "'=effect'"),
            ("a:x:1=oom", "'x'"),
            ("a:1:1=error", "needs a number"),
            ("a:1:1=error(0)", "success"),
            ("a:1:1=error(2", "')'"),
            ("a:1:1=flood", "flood"),
            ("a:1:1=meet", "needs a number"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(text) && error.contains(why), "{error}");
        }
    }
}
