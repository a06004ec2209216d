//! A fault at every call, of the driver and of files, that a suspend and a resume of a process with two devices make in it:
//! afterwards everything is as it was, or the next `resume` makes it so.
//!
//! The places are never listed by hand: they come from the logs of a run without faults.
#![allow(clippy::indexing_slicing, reason = "a test that cannot go on fails, and says where")]

mod rig;

use anyhow::{Context, Result, ensure};

use integration::{Calls, Place, at_each};
use rig::{Rig, Way};

/// Where the process logs its calls on files. Relative to the machine's own folder, which is where its processes start.
const TRACE: &str = "logs/files";

fn rig(fault: Option<(Calls, &Place, &str)>) -> Result<Rig> {
    Rig::new(2, |start| match fault {
        Some((calls, place, effect)) => {
            let (variable, value) = calls.fault(place, effect);
            start.set(variable, value)
        }
        None => start.set(Calls::FILE_TRACE, TRACE),
    })
}

/// Where a suspend makes such calls, and where a resume does.
fn all_places(calls: Calls, way: Way) -> Result<[Vec<Place>; 2]> {
    let rig = rig(None)?;
    let log = || calls.so_far(&rig.machine, rig.pid(), TRACE);
    rig.hide()?;
    let start = log()?.len();
    rig.suspend(way)?.done()?;
    let middle = log()?.len();
    rig.resume()?.done()?;
    let log = log()?;
    let names = || log.iter().map(String::as_str);
    let mut found = [Place::among(names().take(middle), start, 1), Place::among(names(), middle, 1)];
    found.iter_mut().for_each(Place::without_most_questions);
    Ok(found)
}

fn each(
    (calls, way): (Calls, Way),
    places: &[Place],
    effect: &str,
    check: impl Fn(&Rig, Way) -> Result<bool> + Sync,
) -> Result<()> {
    ensure!(places.len() > 12, "only {} places: {places:?}", places.len());
    let bitten = at_each(places, |place| {
        let rig = rig(Some((calls, place, effect))).with_context(|| effect.to_owned())?;
        check(&rig, way).with_context(|| effect.to_owned())
    })?;
    println!("{way:?}: {bitten} of {} faults of {calls:?} calls made a command fail", places.len());
    ensure!(bitten > 0, "no fault made a command fail");
    Ok(())
}

/// A suspend that fails is undone by itself; one that gets over the fault is whole.
fn undone_or_whole(rig: &Rig, way: Way) -> Result<bool> {
    rig.hide()?;
    let suspend = rig.suspend(way)?;
    match suspend.code {
        0 => drop(rig.resume()?.done().context("the resume")?),
        1 => {}
        // What failed while it was taken apart is put together again by a resume.
        3 => drop(rig.resume()?.done().with_context(|| suspend.text())?),
        code => anyhow::bail!("exit status {code}: {}", suspend.text()),
    }
    rig.show()?;
    rig.is_as_it_was().with_context(|| suspend.text())?;
    rig.cycle(way).context("a later cycle")?;
    Ok(suspend.code != 0)
}

/// A resume that fails says of which process and which object, and the next one makes it good.
fn made_good(rig: &Rig, way: Way) -> Result<bool> {
    rig.hide()?;
    rig.suspend(way)?.done()?;
    let resume = rig.resume()?;
    if resume.code != 0 {
        ensure!(resume.code == 3, "exit status {}: {}", resume.code, resume.text());
        ensure!(resume.text().contains(&rig.pid().to_string()), "it names no process: {}", resume.text());
        ensure!(!resume.text().contains("another device"), "it names no cause: {}", resume.text());
        rig.resume()?.done().with_context(|| resume.text())?;
    }
    rig.show()?;
    rig.is_as_it_was()?;
    rig.cycle(way).context("a later cycle")?;
    Ok(resume.code != 0)
}

#[test]
fn a_failing_driver_call_in_a_suspend_of_two_devices_in_place_is_undone() -> Result<()> {
    let [suspending, _] = all_places(Calls::Driver, Way::Kept)?;
    each((Calls::Driver, Way::Kept), &suspending, "error(999)", undone_or_whole)
}

#[test]
fn a_failing_driver_call_in_a_resume_of_two_devices_in_place_is_made_good() -> Result<()> {
    let [_, resuming] = all_places(Calls::Driver, Way::InPlace)?;
    each((Calls::Driver, Way::InPlace), &resuming, "oom", made_good)
}

#[test]
fn a_failing_driver_call_in_a_suspend_of_two_devices_to_a_store_is_undone() -> Result<()> {
    let [suspending, _] = all_places(Calls::Driver, Way::Store)?;
    each((Calls::Driver, Way::Store), &suspending, "oom", undone_or_whole)
}

#[test]
fn a_failing_driver_call_in_a_resume_of_two_devices_from_a_store_is_made_good() -> Result<()> {
    let [_, resuming] = all_places(Calls::Driver, Way::Store)?;
    each((Calls::Driver, Way::Store), &resuming, "error(999)", made_good)
}

#[test]
fn a_failing_call_on_files_is_undone_or_made_good() -> Result<()> {
    let [suspending, resuming] = all_places(Calls::File, Way::Store)?;
    each((Calls::File, Way::Store), &suspending, "EIO", undone_or_whole)?;
    each((Calls::File, Way::Store), &resuming, "EIO", made_good)
}
