//! Random loads under random actions and faults, for as long as one likes, from a seed that says it all.
//!
//! A run is made of worlds: a few processes with a few loads. In each, one thing after the other is done to them that may be done
//! at any time, and after each the loads must go on, whatever came of it. At the end of a world every load has to have seen all its
//! rounds.

mod kind;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use crate::crowd::Crowd;
use crate::machine::Machine;
use crate::tool::{Outcome, Running, Tool};

pub use kind::Kind;

/// How long a world lasts at least, so that many are seen.
const WORLD: Duration = Duration::from_secs(8);

/// Calls of the checkpoint API, in which a fault is put.
const FAULTY: [&str; 4] = [
    "cuCheckpointProcessLock",
    "cuCheckpointProcessCheckpoint",
    "cuCheckpointProcessRestore",
    "cuCheckpointProcessUnlock",
];

/// What was done how often.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Worlds.
    pub worlds: u64,
    /// Suspends with a resume.
    pub cycles: u64,
    /// Quiesces that were taken back.
    pub pauses: u64,
    /// Commands that were interrupted or killed.
    pub interrupted: u64,
    /// Commands that met a fault, or too short a time.
    pub faults: u64,
    /// Rounds of all loads.
    pub rounds: u64,
}

/// Runs worlds until the time is up.
pub fn soak(time: Duration, seed: u64) -> Result<Tally> {
    let mut chance = Rng::with_seed(seed);
    let mut tally = Tally::default();
    let end = Instant::now() + time;
    while Instant::now() < end {
        let seed = chance.u64(..);
        world(seed, end, &mut tally).with_context(|| format!("in a world of seed {seed}"))?;
        tally.worlds += 1;
    }
    Ok(tally)
}

fn world(seed: u64, end: Instant, tally: &mut Tally) -> Result<()> {
    let mut chance = Rng::with_seed(seed);
    let mut machine = Machine::stand_in()?;
    // Full queues are as likely as empty ones.
    let queue = chance.choice(["6", "32", "1024"]).unwrap_or("1024");
    machine.set("FAKECUDA_QUEUE", queue);
    let ranks = chance.usize(2..=4);
    let mut crowd = Crowd::new(machine, ranks)?;
    let mut kinds = Vec::new();
    for _ in 0..chance.usize(1..=2) {
        kinds.push(Kind::draw(&mut chance, &kinds).context("a kind that may join")?);
    }
    let loads = Kind::start_all(&kinds, &mut crowd, &mut chance)?;
    let until = end.min(Instant::now() + WORLD);
    let mut done = Vec::new();
    while done.is_empty() || Instant::now() < until {
        let before = crowd.progress()?;
        let goes_on = || format!("queue of {queue}, {ranks} ranks with {loads:?}, after {done:?}");
        crowd.goes_on(&before).with_context(goes_on)?;
        thread::sleep(Duration::from_micros(chance.u64(0..20_000)));
        let action = act(&crowd, &mut chance, tally);
        done.push(action.with_context(goes_on)?);
    }
    crowd.is_well()?;
    tally.rounds += crowd.finish()?.iter().sum::<u64>();
    Ok(())
}

/// Does one thing to all. What it was comes back.
fn act(crowd: &Crowd, chance: &mut Rng, tally: &mut Tally) -> Result<String> {
    let pids = crowd.pids();
    let when_free =
        |ready: &dyn Fn(Tool) -> Tool, verb: &str| crowd.machine().verb_when_free(ready, verb, &pids);
    Ok(match chance.u8(0..10) {
        0..4 => {
            crowd.cycle()?;
            tally.cycles += 1;
            "a cycle".to_owned()
        }
        4..6 => {
            crowd.pause()?;
            tally.pauses += 1;
            "a pause".to_owned()
        }
        6 => {
            when_free(&|tool| tool, "check")?.done()?;
            when_free(&|tool| tool, "status")?.done()?;
            "check and status".to_owned()
        }
        7 => {
            let verb = chance.choice(["suspend", "quiesce"]).unwrap_or("suspend");
            let hard = chance.bool();
            let delay = chance.u64(0..120_000);
            tally.interrupted += 1;
            let running = crowd.machine().tool().start_verb(verb, &pids)?;
            thread::sleep(Duration::from_micros(delay));
            let outcome = interrupted(running, hard)?;
            let what =
                format!("{verb} that was {} after {delay} us", if hard { "killed" } else { "asked to stop" });
            all_run_again(crowd, &outcome).with_context(|| what.clone())?;
            what
        }
        8 => {
            let call = chance.choice(FAULTY).unwrap_or(FAULTY[0]);
            let fault = format!("{call}:1:*=error(999)");
            tally.faults += 1;
            let suspend = when_free(&|tool| tool.set("FAKECUDA_FAULTS", &fault), "suspend")?;
            all_run_again(crowd, &suspend).with_context(|| fault.clone())?;
            fault
        }
        _ => {
            tally.faults += 1;
            let suspend = when_free(&|tool| tool.option("--timeout=0.01"), "suspend")?;
            all_run_again(crowd, &suspend).context("a suspend with little time")?;
            "a suspend with little time".to_owned()
        }
    })
}

fn interrupted(running: Running, hard: bool) -> Result<Outcome> {
    let pid = rustix::process::Pid::from_raw(running.pid()?).context("a pid")?;
    let signal = if hard { rustix::process::Signal::KILL } else { rustix::process::Signal::TERM };
    // It is our child, so the number is its own until it was waited for.
    rustix::process::kill_process(pid, signal)?;
    running.outcome()
}

/// Whatever a command came to: all run again, if need be by the command that finishes the job.
fn all_run_again(crowd: &Crowd, outcome: &Outcome) -> Result<()> {
    // Refused: it came while the holder of an earlier one still worked on them.
    ensure!([-1, 0, 1, 3, 4].contains(&outcome.code), "exit status {}: {}", outcome.code, outcome.text());
    if outcome.code == 1 {
        for pid in crowd.pids() {
            let status = crowd.machine().status(pid)?;
            let runs = status.get("phase").is_some_and(|phase| phase == "running");
            ensure!(runs, "after exit status 1: {status}");
        }
        return Ok(());
    }
    let resume = || crowd.machine().verb_when_free(|tool| tool, "resume", &crowd.pids());
    let first = resume()?;
    if first.code == 3 {
        let again = resume()?;
        again.done().with_context(|| first.text())?;
        return Ok(());
    }
    first.done()?;
    Ok(())
}
