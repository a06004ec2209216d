//! At every place of a suspend and of a resume the command is killed, alone and together with the process that watches over
//! it; or asked to stop; or a call fails. Everything runs again by itself, or `resume` makes it so. Contents are looked at each
//! time.

mod pair;

use anyhow::{Context, Result, ensure};

use pair::{Saving, each, of_a_resume, of_a_suspend};

#[test]
fn a_suspend_that_is_killed_is_undone_by_its_holder_or_finished_by_a_resume() -> Result<()> {
    each(Saving::InPlace, ["kill", "crash"], of_a_suspend, |pair, place, effect| {
        // The order in which processes are looked at is not always the same: a place may not be reached.
        if pair.killed("suspend", place, effect)? && effect == "kill" {
            pair.runs()?;
        } else {
            pair.after_rescue("resume", "")?.done()?;
        }
        pair.is_as_it_was()
    })
}

#[test]
fn a_resume_that_is_killed_is_carried_on_by_its_holder_or_by_the_next() -> Result<()> {
    each(Saving::InPlace, ["kill", "crash"], of_a_resume, |pair, place, effect| {
        pair.after_rescue("suspend", "")?.done()?;
        if pair.killed("resume", place, effect)? {
            // Where nothing had been begun yet, nobody carries on.
            if effect == "kill" && place.is_begun() {
                pair.runs()?;
            } else {
                pair.after_rescue("resume", "")?.done()?;
            }
        }
        pair.is_as_it_was()
    })
}

#[test]
fn a_suspend_that_is_asked_to_stop_or_meets_a_fault_undoes_itself_or_says_what_does() -> Result<()> {
    each(Saving::InPlace, ["term", "int", "error", "late"], of_a_suspend, |pair, place, effect| {
        let outcome = pair.disturbed("suspend", place, effect)?;
        match outcome.code {
            // Undone, or refused before anything was begun.
            1 | 4 => {}
            // Not reached, or not in the way of anything; or left to the command that is named.
            0 | 3 => {
                let named = outcome.text().contains("to finish: nvsnap-gpu-suspend resume");
                ensure!(named == (outcome.code == 3), "{}", outcome.text());
                pair.machine.resume(&pair.pids())?.done()?;
            }
            _ => anyhow::bail!("{}", outcome.text()),
        }
        pair.is_as_it_was().with_context(|| outcome.text())
    })
}

#[test]
fn a_resume_that_meets_a_fault_is_finished_by_the_next() -> Result<()> {
    each(Saving::InPlace, ["term", "int", "error", "late"], of_a_resume, |pair, place, effect| {
        pair.after_rescue("suspend", "")?.done()?;
        let outcome = pair.disturbed("resume", place, effect)?;
        // A signal does not keep a resume from its end.
        ensure!(outcome.code == 0 || matches!(effect, "error" | "late"), "{}", outcome.text());
        if outcome.code != 0 {
            pair.machine.resume(&pair.pids())?.done().with_context(|| outcome.text())?;
        }
        pair.is_as_it_was().with_context(|| outcome.text())
    })
}
