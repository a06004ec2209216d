//! Processes that are stopped: by `stop`, for a dump, and by job control; and processes that are ended.

use anyhow::{Context, Result, ensure};
use integration::threads::{Thread, ends, holder_of, signal};
use integration::{Machine, Target};

/// Two workers that share a buffer.
struct Pair {
    machine: Machine,
    workers: [Target; 2],
    sum: String,
}

impl Pair {
    fn new() -> Result<Self> {
        let machine = Machine::stand_in()?;
        let workers = [machine.worker("a").preload().start()?, machine.worker("b").preload().start()?];
        let [a, b] = &workers;
        for worker in &workers {
            worker.ok("listen")?;
            worker.ok("begin 0")?;
        }
        for line in ["new x 4M device:0 fd", "fill x 0 4M 3", "export x x", "send x b"] {
            a.ok(line)?;
        }
        for line in ["receive x", "import x x", "show x 4M", "close x"] {
            b.ok(line)?;
        }
        let sum = a.ok("sum x 0 4M")?;
        Ok(Self { machine, workers, sum })
    }

    fn pids(&self) -> [i32; 2] {
        [self.workers[0].pid(), self.workers[1].pid()]
    }

    fn is_as_it_was(&self) -> Result<()> {
        for worker in &self.workers {
            ensure!(worker.ok("sum x 0 4M")? == self.sum, "the bytes changed");
            let threads = Thread::all(worker.pid())?;
            ensure!(threads.iter().all(|thread| thread.tracer == 0 && thread.state != 'T'), "{threads:?}");
        }
        Ok(())
    }
}

fn is_stopped(threads: &[Thread]) -> bool {
    threads.iter().all(|thread| thread.state == 'T' && thread.tracer == 0)
}

#[test]
fn stop_leaves_whole_processes_stopped_with_nobody_holding_them_and_resume_continues_them() -> Result<()> {
    let pair = Pair::new()?;
    for freezes in [true, false] {
        let (machine, pids) = (&pair.machine, pair.pids());
        let suspend = if freezes { machine.suspend(&pids)? } else { machine.suspend_running(&pids)? };
        suspend.done()?;
        let holder = holder_of(pids[0])?;
        ensure!(holder.is_some() == freezes);
        machine.tool().verb("stop", &pids)?.done()?;
        for pid in pids {
            let threads = Thread::all(pid)?;
            ensure!(threads.len() >= 5 && is_stopped(&threads), "{threads:?}");
        }
        holder.map_or(Ok(()), ends)?;
        let status = machine.tool().verb("status", &pids)?;
        ensure!(status.text().contains("nvsnap-gpu-suspend resume"), "{}", status.text());
        machine.resume(&pids)?.done()?;
        pair.is_as_it_was()?;
    }
    Ok(())
}

#[test]
fn what_is_not_suspended_is_not_stopped() -> Result<()> {
    let pair = Pair::new()?;
    let refused = pair.machine.tool().verb("stop", &pair.pids())?.exits(4)?;
    for pid in pair.pids() {
        ensure!(refused.text().contains(&format!("process {pid} is not suspended")), "{}", refused.text());
    }
    pair.is_as_it_was()
}

#[test]
fn a_process_that_job_control_stopped_while_it_was_suspended_is_resumed_and_stays_stopped() -> Result<()> {
    let pair = Pair::new()?;
    for freezes in [true, false] {
        let (machine, pids) = (&pair.machine, pair.pids());
        let suspend = if freezes { machine.suspend(&pids)? } else { machine.suspend_running(&pids)? };
        suspend.done()?;
        signal(pids[0], libc::SIGSTOP)?;
        Thread::all_until(pids[0], |threads| threads.iter().all(|thread| matches!(thread.state, 'T' | 't')))?;
        machine.resume(&pids)?.done()?;
        Thread::all_until(pids[0], is_stopped)?;
        let others = Thread::all(pids[1])?;
        ensure!(!others.iter().any(|thread| thread.state == 'T'), "{others:?}");
        signal(pids[0], libc::SIGCONT)?;
        pair.is_as_it_was()?;
    }
    Ok(())
}

#[test]
fn a_process_that_is_stopped_is_not_suspended() -> Result<()> {
    let pair = Pair::new()?;
    let (machine, pids) = (&pair.machine, pair.pids());
    signal(pids[1], libc::SIGSTOP)?;
    Thread::all_until(pids[1], is_stopped)?;
    for verb in ["check", "suspend"] {
        let refused = machine.tool().verb(verb, &pids)?.exits(4)?;
        ensure!(refused.text().contains(&format!("process {} is stopped", pids[1])), "{}", refused.text());
    }
    ensure!(is_stopped(&Thread::all(pids[1])?));
    signal(pids[1], libc::SIGCONT)?;
    pair.is_as_it_was()
}

#[test]
fn processes_are_suspended_before_they_are_ended() -> Result<()> {
    for suspended in [false, true] {
        let pair = Pair::new()?;
        let (machine, pids) = (&pair.machine, pair.pids());
        let mut holder = None;
        if suspended {
            machine.suspend(&pids)?.done()?;
            holder = holder_of(pids[0])?;
            holder.context("a holder")?;
        }
        let kill = machine.tool().verb("kill", &pids)?.done()?;
        for worker in &pair.workers {
            use std::os::unix::process::ExitStatusExt;
            ensure!(worker.wait()?.signal() == Some(libc::SIGKILL));
        }
        holder.map_or(Ok(()), ends)?;
        if !suspended {
            let calls = machine.calls(kill.pid)?;
            let checkpoints =
                calls.iter().filter(|call| call.name == "cuCheckpointProcessCheckpoint").count();
            ensure!(checkpoints == 2, "{calls:?}");
        }
        let left = std::fs::read_dir(machine.path("state"))?.flatten();
        let records: Vec<_> = left
            .map(|entry| entry.file_name())
            .filter(|name| name.to_string_lossy().ends_with(".json"))
            .collect();
        ensure!(records.is_empty(), "{records:?}");
    }
    Ok(())
}

#[test]
fn what_cannot_be_suspended_is_not_ended_either() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = machine.worker("a").preload().start()?;
    for line in ["begin 0", "new x 2M device:0 fd", "managed m 2M"] {
        worker.ok(line)?;
    }
    let refused = machine.tool().verb("kill", &[worker.pid()])?.exits(4)?;
    ensure!(refused.text().contains("managed"), "{}", refused.text());
    ensure!(worker.ok("echo here")? == "here");
    Ok(())
}

#[test]
fn what_is_refused_leaves_a_stopped_process_stopped_and_status_names_what_continues_it() -> Result<()> {
    let pair = Pair::new()?;
    let (machine, pids) = (&pair.machine, pair.pids());
    machine.suspend(&pids)?.done()?;
    machine.tool().verb("stop", &pids)?.done()?;
    let nowhere = machine.tool().option("--store").argument(machine.path("nowhere"));
    let refused = nowhere.verb("resume", &pids)?.exits(4)?;
    ensure!(refused.text().contains("nowhere"), "{}", refused.text());
    for pid in pids {
        Thread::all_until(pid, is_stopped)?;
        // Each of the two knows the other.
        let status = machine.tool().option("--json").verb("status", &[pid])?.done()?;
        let summary = status.events()?.pop().context("a summary")?;
        let command = format!("nvsnap-gpu-suspend resume {} {}", pids[0].min(pids[1]), pids[0].max(pids[1]));
        ensure!(summary["next"] == command, "{summary}");
    }
    machine.resume(&pids)?.done()?;
    pair.is_as_it_was()
}
