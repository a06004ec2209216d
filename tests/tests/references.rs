//! What holds memory: handles, retained handles, mappings and descriptors, let go of in every order.

use anyhow::Result;
use integration::{Machine, Target, Usage};

/// What can be done with one allocation, its range and its descriptor. `N` is the number of the set.
const STEPS: [&str; 6] =
    ["release xN", "retain xN rN", "map rN 0 2M xN", "unmap rN 0 2M", "export fN xN", "close fN"];
const BEGIN: &str = "create xN 2M device:0 fd; reserve rN 2M; export fN xN; map rN 0 2M xN";

/// Everything is let go of as often as it may be held: once more than needed is refused, and so compared as well.
fn end(steps: &[&str]) -> String {
    let releases = vec!["release xN"; steps.len() + 2].join("; ");
    format!("unmap rN 0 2M; {releases}; import iN fN; release iN; close fN; unreserve rN")
}

/// All sequences of `length` steps.
fn sequences(length: usize) -> Vec<Vec<&'static str>> {
    let mut all = vec![Vec::new()];
    for _ in 0..length {
        all = all
            .into_iter()
            .flat_map(|sequence: Vec<&'static str>| {
                STEPS.iter().map(move |step| sequence.iter().copied().chain([*step]).collect())
            })
            .collect();
    }
    all
}

/// A machine, a worker without the library and one with it, and the memory in use before they begin.
fn twins() -> Result<(Machine, Target, Target, Usage)> {
    let mut machine = Machine::stand_in()?;
    machine.unset("FAKECUDA_LOG");
    machine.set("FAKECUDA_MEMORY", (64_u64 << 30).to_string());
    let (without, with) = (machine.worker("without").start()?, machine.worker("with").preload().start()?);
    for worker in [&without, &with] {
        worker.ok("init")?;
        worker.ok("context 0")?;
    }
    let usage = machine.usage()?;
    Ok((machine, without, with, usage))
}

fn compare(without: &Target, with: &Target, line: &str) -> Result<()> {
    let (native, shimmed) = (without.ask(line)?, with.ask(line)?);
    let usable = !native.contains("usage no verb") && !native.contains("lacks");
    assert!(usable, "`{line}` answered `{native}`");
    assert!(native == shimmed, "{line}\nwithout: {native}\nwith:    {shimmed}");
    Ok(())
}

/// Some sequences of `length` steps, always the same: all of that length would take too long.
fn samples(length: usize, count: usize) -> Vec<Vec<&'static str>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut step = || {
        // A linear congruential generator: its upper bits are good enough to pick with.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        STEPS.iter().cycle().nth(usize::try_from((state >> 33) % 6).unwrap_or(0)).copied().unwrap_or_default()
    };
    (0..count).map(|_| (0..length).map(|_| step()).collect()).collect()
}

#[test]
fn every_order_of_four_steps_and_many_of_seven_answer_as_without_the_library() -> Result<()> {
    let (machine, without, with, usage) = twins()?;
    for sequence in sequences(4).into_iter().chain(samples(7, 500)) {
        let line = format!("each {BEGIN}; {}; {}", sequence.join("; "), end(&sequence));
        compare(&without, &with, &line.replace('N', ""))?;
    }
    machine.take_violations()?;
    machine.usage_until(|now| *now == usage)?;
    Ok(())
}

#[test]
fn every_order_of_three_steps_survives_a_cycle_in_its_middle() -> Result<()> {
    let (machine, without, with, usage) = twins()?;
    // A handle without references and mappings means nothing any more, nor does the number of a closed descriptor; among
    // as many as here somebody else has got them by the time of the third step.
    let means_nothing = |sequence: &[&str]| {
        let first = sequence.get(..2).unwrap_or_default();
        let gone = first.contains(&"release xN") && first.contains(&"unmap rN 0 2M");
        gone || sequence.contains(&"close fN")
    };
    let sequences: Vec<_> = sequences(3).into_iter().filter(|sequence| !means_nothing(sequence)).collect();
    let number = |line: &str, set: usize| line.replace('N', &set.to_string());
    for (set, sequence) in sequences.iter().enumerate() {
        let [first, second, _] = sequence.as_slice() else { anyhow::bail!("three steps") };
        compare(&without, &with, &number(&format!("each {BEGIN}; {first}; {second}"), set))?;
    }
    machine.suspend(&[with.pid()])?.done()?;
    machine.resume(&[with.pid()])?.done()?;
    for (set, sequence) in sequences.iter().enumerate() {
        let [.., third] = sequence.as_slice() else { anyhow::bail!("three steps") };
        compare(&without, &with, &number(&format!("each {third}; {}", end(sequence)), set))?;
    }
    machine.take_violations()?;
    machine.usage_until(|now| *now == usage)?;
    Ok(())
}
