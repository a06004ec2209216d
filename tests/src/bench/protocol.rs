//! What a cycle costs when no byte moves: two processes that share very many small pieces of memory, all of them zero.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::crowd::Crowd;
use crate::machine::{Driver, Machine};

/// Pieces that each process makes and the other imports: a process has twice as many mappings.
const PIECES: usize = 500;
/// What is not the driver's and moves nothing.
const STAGES: [&str; 4] = ["quiesce", "release", "remap", "reopen"];
/// Two cycles: in the first one buffers are made and threads started.
const CYCLES: usize = 2;

/// Measures, and prints a line per cycle.
pub(super) fn protocol(driver: Driver) -> Result<()> {
    let mut machine = Machine::new(driver)?;
    if driver == Driver::StandIn {
        machine.set("FAKECUDA_MEMORY", (16_u64 << 30).to_string());
    }
    let crowd = Crowd::new(machine, 2)?;
    (0..PIECES).try_for_each(|number| crowd.share(&piece(number)))?;
    println!();
    for cycle in 1..=CYCLES {
        let mut stages = BTreeMap::new();
        let begin = Instant::now();
        for verb in ["suspend", "resume"] {
            let outcome = crowd.machine().tool().option("--json").verb(verb, &crowd.pids())?.done()?;
            for event in outcome.events()?.iter().filter(|event| event["event"] == "end") {
                let (stage, seconds) = (event["stage"].as_str(), event["seconds"].as_f64());
                *stages.entry(stage.context("a stage")?.to_owned()).or_insert(0.0) +=
                    seconds.context("its seconds")?;
            }
        }
        let whole = begin.elapsed().as_secs_f64();
        still_shares(&crowd, cycle)?;
        let of = |stage: &str| stages.get(stage).copied().unwrap_or_default();
        let alone: f64 = STAGES.iter().map(|stage| of(stage)).sum();
        let parts = STAGES.map(|stage| format!("{stage} {:.3}", of(stage))).join(", ");
        let mappings = 2 * PIECES;
        match driver {
            Driver::Real => {
                println!("{mappings} mappings in each of 2 processes: {parts}: {alone:.3} s of {whole:.2} s")
            }
            Driver::StandIn => {
                println!("{mappings} mappings in each of 2 processes: {:.2} of the cycle", alone / whole)
            }
        }
    }
    Ok(())
}

/// The name that a piece begins with.
fn piece(number: usize) -> String {
    format!("p{number}-")
}

/// What the one writes into the first and the last piece is read by the other.
fn still_shares(crowd: &Crowd, value: usize) -> Result<()> {
    let (first, second) = (crowd.worker(0)?, crowd.worker(1)?);
    for number in [0, PIECES - 1] {
        for (writer, reader, rank) in [(first, second, 1), (second, first, 0)] {
            let name = format!("{}{rank}", piece(number));
            writer.ok(&format!("fill {name} 0 2M {value}"))?;
            let [written, read] = [writer, reader].map(|worker| worker.ok(&format!("sum {name} 0 2M")));
            ensure!(written? == read?, "{name} is not one memory any more");
            writer.ok(&format!("fill {name} 0 2M 0"))?;
        }
    }
    Ok(())
}
