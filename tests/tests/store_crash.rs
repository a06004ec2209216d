//! A suspend to a chunk store, and a resume from it, of which the command is killed at every place, alone and together with the
//! process that watches over it; with the store where it was, and moved meanwhile.

mod pair;

use anyhow::{Result, ensure};
use integration::threads::{ends, signal};

use pair::{Pair, Saving, each, of_a_resume, of_a_suspend};

fn a_killed_suspend_is_undone(saving: Saving) -> Result<()> {
    each(saving, ["kill", "crash"], of_a_suspend, |pair, place, effect| {
        if pair.killed("suspend", place, effect)? && effect == "kill" {
            pair.runs()?;
        } else {
            pair.is_finished_as_status_says()?;
        }
        pair.is_as_it_was()
    })
}

#[test]
fn a_suspend_to_a_store_that_is_killed_is_undone_by_its_holder_or_as_status_says() -> Result<()> {
    a_killed_suspend_is_undone(Saving::Store)
}

#[test]
fn so_is_one_that_fills_a_cache_too() -> Result<()> {
    a_killed_suspend_is_undone(Saving::StoreAndCache)
}

#[test]
fn a_resume_from_a_store_that_is_killed_is_carried_on_by_its_holder_or_as_status_says() -> Result<()> {
    each(Saving::StoreAndCache, ["kill", "crash"], of_a_resume, |pair, place, effect| {
        pair.after_rescue("suspend", "")?.done()?;
        if pair.killed("resume", place, effect)? && effect == "kill" && place.is_begun() {
            pair.runs()?;
        } else {
            pair.is_finished_as_status_says()?;
        }
        pair.is_as_it_was()
    })
}

/// While nobody has yet noticed that the command is dead, the store goes elsewhere.
fn with_the_store_moved(pair: &Pair, holders: &[i32]) -> Result<()> {
    let elsewhere = pair.machine.path("elsewhere");
    let was_there = pair.store().exists();
    if was_there {
        std::fs::rename(pair.store(), &elsewhere)?;
    }
    for holder in holders {
        signal(*holder, libc::SIGCONT)?;
        ends(*holder)?;
    }
    if let Some(command) = pair.status_says()? {
        let lost = pair.carried_out(&command, None)?;
        if lost.code != 0 {
            let text = lost.exits(3)?.text();
            ensure!(text.contains("--store"), "what is to be done is not said: {text}");
            ensure!(pair.status_says()?.as_ref() == Some(&command), "{:?}", pair.status_says()?);
            pair.carried_out(&command, Some(&elsewhere))?.done()?;
        }
    }
    ensure!(pair.status_says()?.is_none(), "something is left to be done");
    if was_there {
        // What was begun in the old place before the move was noticed.
        let _ = std::fs::remove_dir_all(pair.store());
        std::fs::rename(&elsewhere, pair.store())?;
    }
    pair.is_as_it_was()
}

#[test]
fn a_suspend_that_is_killed_while_its_store_is_moved_is_undone_once_the_store_is_named() -> Result<()> {
    each(Saving::Store, ["stall"], of_a_suspend, |pair, place, _| {
        with_the_store_moved(pair, &pair.stalled("suspend", place)?)
    })
}

#[test]
fn a_resume_that_is_killed_while_its_store_is_moved_is_done_once_the_store_is_named() -> Result<()> {
    each(Saving::Store, ["stall"], of_a_resume, |pair, place, _| {
        pair.after_rescue("suspend", "")?.done()?;
        with_the_store_moved(pair, &pair.stalled("resume", place)?)
    })
}

#[test]
fn a_signal_while_the_cache_is_filled_ends_that_and_the_processes_are_suspended() -> Result<()> {
    let pair = Pair::new(Saving::StoreAndCache)?;
    let outcome = pair.after_rescue("suspend", "keep:1:*=int")?.done()?;
    let text = outcome.text();
    ensure!(text.contains("cache was not filled: SIGINT"), "{text}");
    let command =
        text.split('`').find(|part| part.contains("cache-prefetch")).map(|part| part.replace('\'', ""));
    pair.carried_out(&command.unwrap_or_default(), None)?.done()?;
    ensure!(pair.status_says()?.is_some(), "it was not suspended");
    pair.is_finished_as_status_says()?;
    pair.is_as_it_was()
}
