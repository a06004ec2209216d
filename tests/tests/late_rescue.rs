//! A process that watches over a command, and notices its death late: what other commands have done since is not undone.
#![allow(clippy::indexing_slicing, reason = "a test that cannot go on fails, and says where")]

mod pair;

use anyhow::{Result, ensure};
use integration::threads::{ends, signal};

use pair::{Pair, Place, Saving, each, of_a_resume, of_a_suspend};

/// Kills a verb at a place and stops its holder; others finish what it began, and suspend anew; the holder goes on.
fn a_late_rescue_undoes_nothing(pair: &Pair, verb: &str, place: &Place) -> Result<()> {
    let holders = pair.stalled(verb, place)?;
    pair.after_rescue("resume", "")?.done()?;
    pair.after_rescue("suspend", "")?.done()?;
    for holder in &holders {
        // One that was asked to let threads go is awake already, and may have ended.
        let _ = signal(*holder, libc::SIGCONT);
        ends(*holder)?;
    }
    for pid in pair.pids() {
        let status = pair.machine.status(pid)?;
        let is_suspended = status["phase"] == "released" && status["driver"] == "checkpointed";
        ensure!(is_suspended && status["held_by"].is_number(), "after {} woke up: {status}", holders.len());
    }
    pair.after_rescue("resume", "")?.done()?;
    pair.is_as_it_was()
}

#[test]
fn the_rescue_of_a_suspend_that_comes_late_leaves_a_later_suspend_alone() -> Result<()> {
    each(Saving::InPlace, ["stall"], of_a_suspend, |pair, place, _| {
        a_late_rescue_undoes_nothing(pair, "suspend", place)
    })
}

#[test]
fn the_rescue_of_a_resume_that_comes_late_leaves_a_later_suspend_alone() -> Result<()> {
    each(Saving::InPlace, ["stall"], of_a_resume, |pair, place, _| {
        pair.after_rescue("suspend", "")?.done()?;
        a_late_rescue_undoes_nothing(pair, "resume", place)
    })
}

/// Who is refused because of what a killed command has left behind takes nothing over.
#[test]
fn a_rescue_waits_for_a_command_that_is_at_work_and_then_refused() -> Result<()> {
    each(Saving::InPlace, ["stall"], of_a_suspend, |pair, place, _| {
        let holders = pair.stalled("suspend", place)?;
        let slow = pair.machine.tool().set(pair::FAULTS, "inspect:1:*=delay(400)");
        let other = pair.start_traced(slow, "suspend", "inspect")?;
        for holder in &holders {
            signal(*holder, libc::SIGCONT)?;
        }
        let outcome = other.outcome()?;
        if outcome.code == 0 {
            // The killed command had begun nothing.
            pair.after_rescue("resume", "")?.done()?;
        } else {
            let outcome = outcome.exits(4)?;
            ensure!(!outcome.text().contains("another nvsnap-gpu-suspend"), "{}", outcome.text());
            pair.runs()?;
        }
        pair.is_as_it_was()
    })
}

#[test]
fn status_says_who_is_at_work_and_names_a_command_only_when_nobody_is() -> Result<()> {
    let pair = Pair::new(Saving::InPlace)?;
    let slow = pair.machine.tool().set(pair::FAULTS, "cuCheckpointProcessLock:1:*=delay(1500)");
    let running = pair.start_traced(slow, "suspend", "cuCheckpointProcessLock")?;
    let status = pair.machine.tool().verb("status", &pair.pids())?.done()?.text();
    ensure!(status.contains(&format!("nvsnap-gpu-suspend (process {})", running.pid()?)), "{status}");
    ensure!(pair.status_says()?.is_none(), "{status}");
    running.outcome()?.done()?;
    ensure!(pair.status_says()?.is_some_and(|command| command.contains(" resume ")));
    pair.is_finished_as_status_says()?;
    pair.is_as_it_was()
}
