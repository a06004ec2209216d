//! On which GPUs processes come back: where they were, where they are sent, or nowhere.

use anyhow::{Context, Result, ensure};
use integration::{Machine, Target};

const MIB: u64 = 1 << 20;

/// A worker that sees these GPUs and has 64 MiB on its first.
fn worker(machine: &Machine, name: &str, visible: &str) -> Result<Target> {
    let mut start = machine.worker(name).preload();
    if !visible.is_empty() {
        start = start.set("CUDA_VISIBLE_DEVICES", visible);
    }
    let worker = start.start()?;
    for line in ["begin 0", "new x 64M device:0 fd", "fill x 0 64M 9"] {
        worker.ok(line)?;
    }
    Ok(worker)
}

fn sum(worker: &Target) -> Result<String> {
    worker.ok("sum x 0 64M")
}

/// The GPU that holds the worker's memory.
fn place(machine: &Machine) -> Result<usize> {
    let usage = machine.usage()?;
    let holds = |device: &usize| usage.device(*device) >= 64 * MIB;
    let places: Vec<usize> = [0, 1].into_iter().filter(holds).collect();
    match places[..] {
        [place] => Ok(place),
        _ => anyhow::bail!("{usage:?}"),
    }
}

/// The list of GPUs, as `gpus` writes it.
fn list(machine: &Machine) -> Result<Vec<String>> {
    let file = machine.path("gpus");
    machine.tool().option("gpus").option(&file.display().to_string()).run()?.done()?;
    Ok(std::fs::read_to_string(file)?.lines().map(str::to_owned).collect())
}

fn uuid(machine: &Machine, number: usize) -> Result<String> {
    let list = list(machine)?;
    let line = list.get(number).context("a GPU")?;
    Ok(line.split_whitespace().next().unwrap_or_default().to_owned())
}

#[test]
fn a_process_that_sees_one_gpu_by_number_or_uuid_comes_back_there() -> Result<()> {
    for by_uuid in [false, true] {
        let machine = Machine::stand_in()?;
        let visible = if by_uuid { uuid(&machine, 1)? } else { "1".to_owned() };
        let worker = worker(&machine, "a", &visible)?;
        let before = sum(&worker)?;
        ensure!(place(&machine)? == 1);
        machine.suspend(&[worker.pid()])?.done()?;
        machine.resume(&[worker.pid()])?.done()?;
        ensure!(place(&machine)? == 1 && sum(&worker)? == before);
    }
    Ok(())
}

#[test]
fn a_list_of_gpus_in_another_order_moves_a_process() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = worker(&machine, "a", "")?;
    let before = sum(&worker)?;
    let file = machine.path("map").display().to_string();
    for round in 0..2 {
        ensure!(place(&machine)? == round % 2);
        let mut lines = list(&machine)?;
        lines.reverse();
        std::fs::write(&file, lines.join("\n"))?;
        machine.suspend(&[worker.pid()])?.done()?;
        let outcome =
            machine.tool().option("--gpu-map").option(&file).verb("resume", &[worker.pid()])?.done()?;
        ensure!(outcome.text().contains("takes the place of"), "{}", outcome.text());
        ensure!(place(&machine)? == (round + 1) % 2 && sum(&worker)? == before);
    }
    Ok(())
}

#[test]
fn a_process_whose_gpu_cannot_be_opened_comes_back_on_the_one_that_can() -> Result<()> {
    for by_uuid in [false, true] {
        let machine = Machine::stand_in()?;
        let worker = worker(&machine, "a", "0")?;
        let before = sum(&worker)?;
        machine.suspend(&[worker.pid()])?.done()?;
        let visible = if by_uuid { uuid(&machine, 1)? } else { "1".to_owned() };
        machine.tool().set("CUDA_VISIBLE_DEVICES", visible).verb("resume", &[worker.pid()])?.done()?;
        ensure!(place(&machine)? == 1 && sum(&worker)? == before);
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused_before_the_driver_is_asked_and_nothing_is_lost() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = worker(&machine, "a", "")?;
    let before = sum(&worker)?;
    machine.suspend(&[worker.pid()])?.done()?;
    let other = machine.path("other").display().to_string();
    std::fs::write(&other, "GPU-01010101-0101-0101-0101-010101010101  x\n")?;
    let missing = machine.path("missing").display().to_string();
    let few = machine.tool().set("CUDA_VISIBLE_DEVICES", "1").verb("resume", &[worker.pid()])?;
    let strange = machine.tool().option("--gpu-map").option(&other).verb("resume", &[worker.pid()])?;
    let unread = machine.tool().option("--gpu-map").option(&missing).verb("resume", &[worker.pid()])?;
    for (outcome, reason) in [(few, "2 GPU(s)"), (strange, "does not have"), (unread, "cannot read")] {
        let outcome = outcome.exits(4)?;
        ensure!(outcome.text().contains(reason), "{}", outcome.text());
        let asked = machine.calls(outcome.pid)?;
        ensure!(!asked.iter().any(|call| call.name == "cuCheckpointProcessRestore"), "{asked:?}");
    }
    machine.resume(&[worker.pid()])?.done()?;
    ensure!(place(&machine)? == 0 && sum(&worker)? == before);
    Ok(())
}
