//! Host memory that is kept between suspends in place: what is moved again, what is not, and when it is given back.
#![allow(clippy::indexing_slicing, reason = "a test that cannot go on fails, and says where")]

mod depot;

use anyhow::{Context, Result, ensure};
use integration::Outcome;

use depot::{Depot, fates};

const GRAIN: u64 = 2 << 20;

fn keeping(depot: &Depot) -> Result<Outcome> {
    depot.look()?;
    depot.machine.tool().option("--json").option("--keep-arena").verb("suspend", &depot.pids())?.done()
}

/// What both processes keep.
fn kept(depot: &Depot) -> Result<u64> {
    let mut sum = 0;
    for pid in depot.pids() {
        let status = depot.machine.status(pid)?;
        sum += status["bytes"]["kept"].as_u64().with_context(|| status.to_string())?;
    }
    Ok(sum)
}

#[test]
fn what_has_not_changed_is_not_moved_again() -> Result<()> {
    let depot = Depot::new()?;
    let [moved, zero, deduplicated] = fates(&keeping(&depot)?, "save")?;
    ensure!(moved > 140 << 20 && deduplicated == 0, "{moved} moved, {deduplicated} there already");
    depot.resume()?.done()?;
    depot.is_as_it_was()?;
    ensure!(kept(&depot)? >= moved, "{} kept of {moved}", kept(&depot)?);

    let second = fates(&keeping(&depot)?, "save")?;
    ensure!(second == [0, zero, moved], "{second:?}");
    depot.resume()?.done()?;
    depot.is_as_it_was()?;

    // One byte of what had some, and one of what was zero.
    let a = &depot.workers[0];
    depot.look()?;
    a.ok("write large 70000001 55")?;
    a.ok("write zero 10000000 66")?;
    let tool = depot.machine.tool().option("--json").option("--keep-arena");
    let third = tool.verb("suspend", &depot.pids())?.done()?;
    let told = fates(&third, "save")?;
    ensure!(told == [2 * GRAIN, zero - GRAIN, moved - GRAIN], "{told:?}");
    let status = depot.machine.status(a.pid())?;
    ensure!(status["last_save"]["moved"] == 2 * GRAIN, "{status}");
    depot.resume()?.done()?;
    ensure!(a.ok("read large 70000000 3")? == "015503" && a.ok("read zero 9999999 3")? == "006600");
    a.ok("write large 70000001 02")?;
    a.ok("write zero 10000000 00")?;
    depot.is_as_it_was()
}

#[test]
fn what_is_kept_goes_with_its_object_and_with_a_suspend_that_keeps_nothing() -> Result<()> {
    let depot = Depot::new()?;
    let a = &depot.workers[0];
    let before = a.snapshot()?.resident_kib;
    keeping(&depot)?;
    depot.resume()?.done()?;
    let all = kept(&depot)?;
    ensure!(a.snapshot()?.resident_kib > before + 130 * 1024, "nothing is kept");
    // The largest object is gone: so is its room, the next time.
    a.ok("drop large")?;
    let tool = depot.machine.tool().option("--keep-arena");
    tool.verb("suspend", &depot.pids())?.done()?;
    depot.resume()?.done()?;
    ensure!(kept(&depot)? + (130 << 20) <= all + GRAIN, "{} kept of {all}", kept(&depot)?);
    ensure!(a.snapshot()?.resident_kib < before + 40 * 1024, "its memory is still there");
    // A suspend in place without the option, and one to a store, begin with giving back.
    for to_store in [false, true] {
        let tool = depot.machine.tool().option("--keep-arena");
        tool.verb("suspend", &depot.pids())?.done()?;
        depot.resume()?.done()?;
        ensure!(kept(&depot)? > 0, "nothing is kept");
        if to_store {
            depot.suspend()?.done()?;
        } else {
            depot.machine.suspend(&depot.pids())?.done()?;
        }
        ensure!(kept(&depot)? == 0, "{} are still kept", kept(&depot)?);
        depot.resume()?.done()?;
    }
    ensure!(a.ok("sum shared 0 4M")? == depot.workers[1].ok("sum shared 0 4M")?);
    Ok(())
}

#[test]
fn a_store_and_a_kept_arena_exclude_each_other() -> Result<()> {
    let depot = Depot::new()?;
    let refused = depot.saving().option("--keep-arena").verb("suspend", &depot.pids())?.exits(2)?;
    ensure!(refused.text().contains("--keep-arena"), "{}", refused.text());
    depot.is_as_it_was()
}
