//! CASES 47: one's own memory handed out by an IPC handle, opened, closed and freed in every order. A process with the library and
//! one without are asked the same, and answer the same, also where a suspend comes in between.

use anyhow::{Result, ensure};
use integration::{Machine, Target};

/// What can be done: the opener opens or closes, the exporter frees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Open,
    Close,
    Free,
}

const STEPS: [Step; 3] = [Step::Open, Step::Close, Step::Free];
/// One block has its memory to itself, the other shares it.
const SIZES: [&str; 2] = ["4M", "64K"];

/// All sequences of `length` steps.
fn sequences(length: usize) -> Vec<Vec<Step>> {
    let mut all = vec![Vec::new()];
    for _ in 0..length {
        let longer = |sequence: Vec<Step>| STEPS.map(|step| [sequence.as_slice(), &[step]].concat());
        all = all.into_iter().flat_map(longer).collect();
    }
    all
}

/// An exporter and an opener.
struct Side {
    exporter: Target,
    opener: Target,
}

/// A block of the exporter, by its number, and the handle of it.
struct Block {
    number: usize,
    handle: String,
}

impl Side {
    fn new(machine: &Machine, preload: bool) -> Result<Self> {
        let start = |name: &str| -> Result<Target> {
            let worker = machine.worker(&format!("{name}-{preload}")).preload_if(preload).start()?;
            worker.ok("begin 0")?;
            Ok(worker)
        };
        Ok(Self { exporter: start("exporter")?, opener: start("opener")? })
    }

    fn make(&self, number: usize, size: &str) -> Result<Block> {
        self.exporter.ok(&format!("malloc x{number} {size}"))?;
        self.exporter.ok(&format!("memset x{number} 0 4096 {}", number % 251))?;
        self.exporter.ok("sync")?;
        let handle = self.exporter.ok(&format!("ipc-get x{number} 0"))?;
        Ok(Block { number, handle })
    }

    /// What is answered to a step, and what can be read afterwards.
    fn step(&self, block: &Block, step: Step) -> Result<[String; 3]> {
        let number = block.number;
        let answer = match step {
            Step::Open => self.opener.ask(&format!("ipc-open o{number} 64K {}", block.handle))?,
            Step::Close => self.opener.ask(&format!("ipc-close o{number}"))?,
            Step::Free => self.exporter.ask(&format!("free x{number}"))?,
        };
        Ok([
            answer,
            self.opener.ask(&format!("read o{number} 0 2"))?,
            self.opener.ask(&format!("extent o{number} 5"))?,
        ])
    }

    /// Gives everything back: closes until that is refused, and frees.
    fn end(&self, block: &Block) -> Result<Vec<String>> {
        let mut said = Vec::new();
        loop {
            let answer = self.opener.ask(&format!("ipc-close o{}", block.number))?;
            let last = !answer.starts_with("ok");
            said.push(answer);
            if last {
                said.push(self.exporter.ask(&format!("free x{}", block.number))?);
                return Ok(said);
            }
        }
    }
}

/// How often the memory is open after these steps, if every one of them that can works.
fn opens(steps: &[Step]) -> usize {
    let mut count = 0_usize;
    let mut freed = false;
    for step in steps {
        match step {
            Step::Open if !freed => count += 1,
            Step::Close => count = count.saturating_sub(1),
            Step::Free => freed = true,
            Step::Open => {}
        }
    }
    count
}

#[test]
fn every_order_of_five_steps_answers_as_without_the_library() -> Result<()> {
    let machine = Machine::stand_in()?;
    let (native, shimmed) = (Side::new(&machine, false)?, Side::new(&machine, true)?);
    let before = machine.usage()?;
    let mut number = 0;
    for size in SIZES {
        for sequence in sequences(5) {
            // The name has to stand for something.
            let mut said = Vec::new();
            for side in [&native, &shimmed] {
                let block = side.make(number, size)?;
                let mut answers = vec![side.step(&block, Step::Open)?.concat()];
                for step in &sequence {
                    answers.push(side.step(&block, *step)?.concat());
                }
                answers.extend(side.end(&block)?);
                said.push(answers);
            }
            let [native, shimmed] = said.as_slice() else { anyhow::bail!("two sides") };
            machine.take_violations()?;
            ensure!(native == shimmed, "{size} {sequence:?}:\nwithout {native:#?}\nwith {shimmed:#?}");
            number += 1;
        }
    }
    machine.take_violations()?;
    // A slab is kept for the next small block.
    machine.usage_until(|now| now.device(0) <= before.device(0) + (2 << 20))?;
    Ok(())
}

#[test]
fn every_order_of_four_steps_goes_on_after_a_cycle_in_its_middle() -> Result<()> {
    let machine = Machine::stand_in()?;
    let (native, shimmed) = (Side::new(&machine, false)?, Side::new(&machine, true)?);
    // A name that is closed for good means nothing any more: somebody else may have its address by then.
    let all: Vec<Vec<Step>> = sequences(4)
        .into_iter()
        .filter(|sequence| {
            let whole = [&[Step::Open, Step::Open], sequence.as_slice()].concat();
            (2..=whole.len()).all(|end| opens(whole.get(..end).unwrap_or_default()) > 0)
        })
        .collect();
    ensure!(all.len() > 40, "only {} orders", all.len());
    let mut sets = Vec::new();
    for (size, sequence) in
        SIZES.into_iter().flat_map(|size| all.iter().map(move |sequence| (size, sequence)))
    {
        let number = sets.len();
        let blocks = [native.make(number, size)?, shimmed.make(number, size)?];
        sets.push((blocks, sequence));
    }
    let compare = |half: fn(&[Step]) -> &[Step]| -> Result<()> {
        for ([plain, ours], sequence) in &sets {
            for step in half(sequence) {
                let (said, found) = (native.step(plain, *step)?, shimmed.step(ours, *step)?);
                ensure!(said == found, "{sequence:?}, {step:?}: without {said:?}, with {found:?}");
            }
        }
        Ok(())
    };
    compare(|_| &[Step::Open, Step::Open])?;
    compare(|sequence| sequence.get(..2).unwrap_or_default())?;
    for _ in 0..2 {
        let pids = [shimmed.exporter.pid(), shimmed.opener.pid()];
        machine.suspend(&pids)?.done()?;
        machine.resume(&pids)?.done()?;
    }
    compare(|sequence| sequence.get(2..).unwrap_or_default())?;
    for ([plain, ours], sequence) in &sets {
        let (said, found) = (native.end(plain)?, shimmed.end(ours)?);
        ensure!(said.len() == found.len(), "{sequence:?}: without {said:?}, with {found:?}");
    }
    machine.take_violations()?;
    Ok(())
}
