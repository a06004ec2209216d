//! The one who shows: starts the two processes, suspends and resumes them, and says what happened.

use std::io::{BufRead, BufReader, Lines, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use anyhow::{Context, Result, bail, ensure};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::worker::Layout;
use crate::machine::{Driver, Machine};

const NAMES: [&str; 2] = ["left", "right"];
/// Rounds that both have to do before and after, so that it is seen to work.
const ROUNDS: u64 = 20;

/// One of the two processes.
struct Process {
    child: Child,
    commands: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
    name: &'static str,
}

/// Shows it on this driver. An error means that what was to be shown is not true.
pub fn show(driver: Driver, layout: Layout) -> Result<()> {
    let machine = Machine::new(driver)?;
    println!(
        "Two processes share {} of GPU memory and have {} each to themselves.",
        size(layout.shared),
        size(layout.private)
    );
    println!("Each keeps changing its half of the shared buffer and checks every word after each round.");
    println!(
        "Driver: {}.\n",
        if driver == Driver::StandIn { "the stand-in, since no GPU is here" } else { "the real one" }
    );

    let mut pair = start(&machine, layout)?;
    let before = progress(&mut pair, [0, 0])?;
    let memory_before = memory(&machine, "before")?;
    let pids = [pid(&pair, 0)?, pid(&pair, 1)?];

    command(&machine, "suspend", &pids)?;
    let memory_during = memory(&machine, "while suspended")?;
    let freed = memory_before.saturating_sub(memory_during);
    let held = u64::try_from(layout.shared + 2 * layout.private)?;
    ensure!(freed >= held, "only {freed} bytes of GPU memory became free, of {held} that the two held");

    command(&machine, "resume", &pids)?;
    memory(&machine, "after")?;
    let after = progress(&mut pair, before)?;
    let checked = verify(&mut pair)?;
    for process in &mut pair {
        end(process)?;
    }
    let machine_is_clean = machine.take_violations()?;
    ensure!(machine_is_clean.is_empty(), "the driver was misused: {}", machine_is_clean.join("; "));

    let [left_before, right_before] = before;
    let [left_after, right_after] = after;
    println!(
        "\nBoth went on where they had stopped: {left_before} and {right_before} rounds before, {} and {} more after, {} \
         checked word by word, {} of GPU memory free in between.",
        left_after - left_before,
        right_after - right_before,
        size(checked),
        size(usize::try_from(freed)?)
    );
    println!("Processes that share GPU memory were suspended and resumed, and lost nothing.");
    Ok(())
}

fn start(machine: &Machine, layout: Layout) -> Result<[Process; 2]> {
    let (left, right) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None)?;
    let first = spawn(machine, 0, &left, layout)?;
    let second = spawn(machine, 1, &right, layout)?;
    drop((left, right));
    let mut pair = [first, second];
    for process in &mut pair {
        let answer = process.next()?;
        ensure!(answer.starts_with("ready"), "{} answered {answer}", process.name);
    }
    Ok(pair)
}

fn spawn(machine: &Machine, half: usize, socket: &OwnedFd, layout: Layout) -> Result<Process> {
    let mut command = machine.command(std::env::current_exe()?);
    command.env("LD_PRELOAD", &machine.artifacts().shim);
    command.args(["--work", &half.to_string(), &socket.as_raw_fd().to_string()]);
    command.args([layout.shared.to_string(), layout.private.to_string()]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (commands, answers) = (child.stdin.take(), child.stdout.take().context("no pipe")?);
    let name = NAMES.get(half).copied().unwrap_or_default();
    Ok(Process { child, commands, answers: BufReader::new(answers).lines(), name })
}

impl Process {
    fn ask(&mut self, line: &str) -> Result<String> {
        let commands = self.commands.as_mut().context("its pipe is closed")?;
        writeln!(commands, "{line}").with_context(|| format!("{} is gone", self.name))?;
        self.next()
    }

    fn next(&mut self) -> Result<String> {
        match self.answers.next() {
            Some(line) => Ok(line?),
            None => bail!("{} ended: {}", self.name, self.child.wait()?),
        }
    }

    fn rounds(&mut self, line: &str) -> Result<u64> {
        let answer = self.ask(line)?;
        answer.strip_prefix("rounds ").and_then(|rounds| rounds.parse().ok()).with_context(|| answer.clone())
    }
}

impl Drop for Process {
    /// Where the demonstration failed, the two are not to be left behind.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn pid(pair: &[Process; 2], half: usize) -> Result<i32> {
    Ok(i32::try_from(pair.get(half).context("two processes")?.child.id())?)
}

/// Waits until both have done enough rounds since `since`; how many they have done by then.
fn progress(pair: &mut [Process; 2], since: [u64; 2]) -> Result<[u64; 2]> {
    let mut reached = [0; 2];
    for ((process, since), reached) in pair.iter_mut().zip(since).zip(&mut reached) {
        // Each question is answered between two rounds, so this does not spin.
        while *reached < since + ROUNDS {
            *reached = process.rounds("report")?;
        }
    }
    Ok(reached)
}

/// Both stop, and each checks both halves and what it has to itself.
fn verify(pair: &mut [Process; 2]) -> Result<usize> {
    let [left, right] = pair;
    let rounds = [left.rounds("hold")?, right.rounds("hold")?];
    let mut checked = 0;
    for (process, other) in [(left, rounds[1]), (right, rounds[0])] {
        let answer = process.ask(&format!("verify {other}"))?;
        let bytes = answer.strip_prefix("verified ").and_then(|bytes| bytes.parse::<usize>().ok());
        checked += bytes.with_context(|| answer.clone())?;
    }
    Ok(checked)
}

/// The end of its input ends a process.
fn end(process: &mut Process) -> Result<()> {
    process.commands = None;
    let status = process.child.wait()?;
    ensure!(status.success(), "{} ended with {status}", process.name);
    Ok(())
}

fn command(machine: &Machine, verb: &str, pids: &[i32; 2]) -> Result<()> {
    let [left, right] = pids;
    println!("\n$ nvsnap-gpu-suspend {verb} {left} {right}");
    let outcome = machine.tool().verb(verb, pids)?;
    print!("{}", outcome.text());
    outcome.done().map(drop)
}

/// Prints memory in use on every device, and returns it for the first.
fn memory(machine: &Machine, when: &str) -> Result<u64> {
    let usage = machine.usage()?;
    let devices = usage.devices.iter().enumerate();
    let text: Vec<String> = devices
        .map(|(device, bytes)| format!("device {device}: {}", size(usize::try_from(*bytes).unwrap_or(0))))
        .collect();
    println!("GPU memory in use {when}: {}", text.join(", "));
    Ok(usage.device(0))
}

fn size(bytes: usize) -> String {
    format!("{} MiB", bytes >> 20)
}
