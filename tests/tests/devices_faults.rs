//! A fault at every call, of the driver and of files, that a suspend and a resume of a process with two devices make in it:
//! afterwards everything is as it was, or the next `resume` makes it so.
//!
//! The places are never listed by hand: they come from the logs of a run without faults.
#![allow(clippy::indexing_slicing, reason = "a test that cannot go on fails, and says where")]

mod rig;

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};

use rig::{Rig, Way};

const TRACE: &str = "NVSNAP_GPUSHARE_FILE_TRACE";
const FAULTS: &str = "NVSNAP_GPUSHARE_FILE_FAULTS";

/// Which calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Driver,
    File,
}

/// A call, counted from the start of the process.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Place {
    call: String,
    nth: usize,
}

fn rig(kind: Kind, fault: Option<(&Place, &str)>) -> Result<Rig> {
    Rig::new(2, |start| match (kind, fault) {
        (Kind::Driver, Some((place, effect))) => {
            start.set("FAKECUDA_FAULTS", format!("{}:{}:1={effect}", place.call, place.nth))
        }
        (Kind::File, Some((place, effect))) => {
            start.set(FAULTS, format!("{}:{}:*={effect}", place.call, place.nth))
        }
        (Kind::Driver, None) => start,
        // A name relative to the machine's own folder, which is where its processes start.
        (Kind::File, None) => start.set(TRACE, "logs/files"),
    })
}

fn log(rig: &Rig, kind: Kind) -> Result<Vec<String>> {
    Ok(match kind {
        Kind::Driver => rig.machine.calls(rig.pid())?.into_iter().map(|call| call.name).collect(),
        Kind::File => match fs::read_to_string(rig.machine.path("logs/files")) {
            Ok(text) => text.lines().map(str::to_owned).collect(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error.into()),
        },
    })
}

/// The calls of `log` behind the first `before`, each with its number among those of its name.
fn places(log: &[String], before: usize) -> Vec<Place> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut found: Vec<Place> = Vec::new();
    for (position, call) in log.iter().enumerate() {
        let nth = counts.entry(call).or_insert(0);
        *nth += 1;
        if position < before {
            continue;
        }
        // Those that ask how far work has come are made as often as the moment wants: the first few stand for all.
        let asks = call.ends_with("Query") || call.ends_with("Synchronize");
        if !asks || found.iter().filter(|place| place.call == *call).count() < 4 {
            found.push(Place { call: call.clone(), nth: *nth });
        }
    }
    found
}

/// Where a suspend makes such calls, and where a resume does.
fn all_places(kind: Kind, way: Way) -> Result<[Vec<Place>; 2]> {
    let rig = rig(kind, None)?;
    rig.hide()?;
    let start = log(&rig, kind)?.len();
    rig.suspend(way)?.done()?;
    let middle = log(&rig, kind)?.len();
    rig.resume()?.done()?;
    let log = log(&rig, kind)?;
    Ok([places(&log[..middle], start), places(&log, middle)])
}

fn each(
    (kind, way): (Kind, Way),
    places: &[Place],
    effect: &str,
    check: impl Fn(&Rig, Way) -> Result<bool> + Sync,
) -> Result<()> {
    ensure!(places.len() > 12, "only {} places: {places:?}", places.len());
    let (next, bitten) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failures = Mutex::new(Vec::new());
    let work = || {
        while let Some(place) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
            match rig(kind, Some((place, effect))).and_then(|rig| check(&rig, way)) {
                Ok(failed) => drop(bitten.fetch_add(usize::from(failed), Ordering::Relaxed)),
                Err(error) => {
                    let text = format!("{place:?}={effect}: {error:#}");
                    failures.lock().unwrap_or_else(PoisonError::into_inner).push(text);
                }
            }
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(failures.is_empty(), "{} of {} faults:\n{}", failures.len(), places.len(), failures.join("\n"));
    let bitten = bitten.into_inner();
    println!("{way:?}: {bitten} of {} faults of {kind:?} calls made a command fail", places.len());
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
    let [suspending, _] = all_places(Kind::Driver, Way::Kept)?;
    each((Kind::Driver, Way::Kept), &suspending, "error(999)", undone_or_whole)
}

#[test]
fn a_failing_driver_call_in_a_resume_of_two_devices_in_place_is_made_good() -> Result<()> {
    let [_, resuming] = all_places(Kind::Driver, Way::InPlace)?;
    each((Kind::Driver, Way::InPlace), &resuming, "oom", made_good)
}

#[test]
fn a_failing_driver_call_in_a_suspend_of_two_devices_to_a_store_is_undone() -> Result<()> {
    let [suspending, _] = all_places(Kind::Driver, Way::Store)?;
    each((Kind::Driver, Way::Store), &suspending, "oom", undone_or_whole)
}

#[test]
fn a_failing_driver_call_in_a_resume_of_two_devices_from_a_store_is_made_good() -> Result<()> {
    let [_, resuming] = all_places(Kind::Driver, Way::Store)?;
    each((Kind::Driver, Way::Store), &resuming, "error(999)", made_good)
}

#[test]
fn a_failing_call_on_files_is_undone_or_made_good() -> Result<()> {
    let [suspending, resuming] = all_places(Kind::File, Way::Store)?;
    each((Kind::File, Way::Store), &suspending, "EIO", undone_or_whole)?;
    each((Kind::File, Way::Store), &resuming, "EIO", made_good)
}
