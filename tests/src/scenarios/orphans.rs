//! Memory whose exporter let go of it, or is gone.

use anyhow::{Result, ensure};

use crate::stage::{Actor, Stage};

/// The exporter's process ends; its two importers go on sharing one memory.
pub(super) fn an_orphan_stays_one_memory_for_two_importers(stage: &mut Stage) -> Result<()> {
    let (a, b, c) = (stage.worker("a")?, stage.worker("b")?, stage.worker("c")?);
    a.all(&["new x 4M device:0 fd", "fill x 0 4M 50", "export fd x"])?;
    for importer in [&b, &c] {
        a.hand("fd", importer)?;
        importer.all(&["import x fd", "show x 4M"])?;
    }
    a.target().end()?;
    for _ in 0..2 {
        share(&b, &c)?;
        stage.cycle(&[&b, &c])?;
    }
    share(&b, &c)?;
    // One of the two lets go; the other has the bytes still.
    b.all(&["drop x", "close fd"])?;
    stage.cycle(&[&b, &c])?;
    c.ok("sum x 0 4M").map(drop)
}

/// The exporter lives on but has freed the memory, after the import of one and before that of the other.
pub(super) fn an_exporter_that_freed_its_memory_leaves_an_orphan(stage: &mut Stage) -> Result<()> {
    let [a, b, c] = handed_out(stage, "", "device:0", 60)?;
    b.all(&["import x fd", "show x 4M"])?;
    a.all(&["close fd", "drop x"])?;
    c.all(&["import x fd", "show x 4M"])?;
    for _ in 0..2 {
        share(&b, &c)?;
        stage.cycle(&[&a, &b, &c])?;
    }
    share(&b, &c)
}

/// The exporter lets go of the memory first and closes its descriptor afterwards, without another word to the driver: nobody
/// may count on it any more. Told many times, since whether anybody notices before the suspend is a matter of time.
pub(super) fn a_descriptor_closed_just_before_a_suspend_holds_nothing(stage: &mut Stage) -> Result<()> {
    let (a, b) = (stage.worker("a")?, stage.worker("b")?);
    for round in 0..5 {
        a.all(&["new x 4M device:0 fd", &format!("fill x 0 4M {round}"), "export fd x"])?;
        a.hand("fd", &b)?;
        b.all(&["import x fd", "close fd", "show x 4M"])?;
        a.all(&["drop x", "close fd"])?;
        stage.cycle(&[&a, &b])?;
        b.all(&["sum x 0 4M", "drop x"])?;
    }
    Ok(())
}

/// The exporter crashes after one has imported; another still imports from its copy of the descriptor.
pub(super) fn an_importer_comes_after_the_exporter_has_crashed(stage: &mut Stage) -> Result<()> {
    let [a, b, c] = handed_out(stage, "", "device:0", 80)?;
    b.all(&["import x fd", "show x 4M", "sum x 0 4M"])?;
    a.target().kill()?;
    c.all(&["import x fd", "show x 4M", "sum x 0 4M"])?;
    for _ in 0..2 {
        share(&b, &c)?;
        stage.cycle(&[&b, &c])?;
    }
    c.all(&["import late fd", "show late 4M", "sum late 0 4M", "drop late"])?;
    share(&b, &c)
}

/// The exporter's process ends, or is killed, before anybody has imported: the descriptor alone keeps the memory, and two who
/// import it later share it.
pub(super) fn a_descriptor_alone_holds_the_memory_of_an_exporter_that_is_gone(
    stage: &mut Stage,
) -> Result<()> {
    for (number, place) in ["device:0", "numa:0"].into_iter().enumerate() {
        let [a, b, c] = handed_out(stage, &number.to_string(), place, 90)?;
        match number {
            0 => a.target().kill().map(drop),
            _ => a.target().end().map(drop),
        }?;
        b.all(&["import x fd", "show x 4M", "sum x 0 4M"])?;
        c.all(&["import x fd", "show x 4M", "sum x 0 4M"])?;
        for _ in 0..2 {
            share(&b, &c)?;
            stage.cycle(&[&b, &c])?;
        }
        share(&b, &c)?;
        c.all(&["import late fd", "show late 4M", "sum late 0 4M", "drop late"])?;
    }
    Ok(())
}

/// The same, and one of the two imports after the other has been suspended with the memory.
pub(super) fn an_importer_comes_after_a_cycle_that_the_exporter_did_not_see(stage: &mut Stage) -> Result<()> {
    let [a, b, c] = handed_out(stage, "", "device:0", 91)?;
    a.target().kill()?;
    // Once with nobody who has imported it.
    stage.cycle(&[&b, &c])?;
    b.all(&["import x fd", "show x 4M", "sum x 0 4M"])?;
    stage.cycle(&[&b, &c])?;
    b.ok("add x 0 4M 1")?;
    c.all(&["import x fd", "show x 4M", "sum x 0 4M"])?;
    share(&b, &c)
}

/// The last importer lets go of the memory; the descriptor has it still.
pub(super) fn a_descriptor_holds_the_memory_when_all_have_let_go_of_it(stage: &mut Stage) -> Result<()> {
    let [a, b, c] = handed_out(stage, "", "device:0", 92)?;
    a.target().end()?;
    b.all(&["import x fd", "show x 4M", "add x 0 4M 1", "sum x 0 4M", "drop x", "close fd"])?;
    c.all(&["import x fd", "show x 4M", "sum x 0 4M"])?;
    stage.cycle(&[&b, &c])?;
    c.ok("sum x 0 4M").map(drop)
}

/// An exporter of x, and two who have its descriptor and have not imported it.
fn handed_out(stage: &Stage, suffix: &str, place: &str, seed: u32) -> Result<[Actor; 3]> {
    let worker = |name: &str| stage.worker(&format!("{name}{suffix}"));
    let (a, b, c) = (worker("a")?, worker("b")?, worker("c")?);
    a.all(&[&format!("new x 4M {place} fd"), &format!("fill x 0 4M {seed}"), "export fd x"])?;
    for importer in [&b, &c] {
        a.hand("fd", importer)?;
    }
    Ok([a, b, c])
}

/// What one adds the other sees.
fn share(one: &Actor, other: &Actor) -> Result<()> {
    for (writer, reader) in [(one, other), (other, one)] {
        writer.ok("add x 0 4M 1")?;
        let (written, read) = (writer.ok("sum x 0 4M")?, reader.ok("sum x 0 4M")?);
        ensure!(written == read, "x is not one memory any more: {written} and {read}");
    }
    Ok(())
}
