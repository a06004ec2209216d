//! What a stranger may ask of the command, and from where: it says what is wrong, and harms nobody.
#![allow(clippy::indexing_slicing, reason = "a test that cannot go on fails, and says where")]

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use integration::threads::Thread;
use integration::{Machine, Target};

const LOOKING: [&str; 2] = ["check", "status"];
const CHANGING: [&str; 12] = [
    "suspend",
    "resume",
    "stop",
    "kill",
    "quiesce",
    "release",
    "checkpoint",
    "restore",
    "stage",
    "load",
    "remap",
    "reopen",
];

fn worker(machine: &Machine) -> Result<Target> {
    let worker = machine.worker("a").preload().start()?;
    for line in ["begin 0", "new x 4M device:0 fd", "fill x 0 4M 7"] {
        worker.ok(line)?;
    }
    Ok(worker)
}

/// Runs the command by a shell that prepares something for it. What was printed, and the exit status.
fn by_shell(machine: &Machine, script: &str) -> Result<(String, Option<i32>)> {
    let tool = &machine.artifacts().tool;
    let output = machine.command("/bin/sh").arg("-c").arg(script).env("TOOL", tool).output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok((String::from_utf8_lossy(&text).into_owned(), output.status.code()))
}

#[test]
fn a_thread_is_not_taken_for_a_process_by_any_verb() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = worker(&machine)?;
    let thread = Thread::all(worker.pid())?.into_iter().find(|thread| thread.tid != worker.pid());
    let tid = thread.context("a thread")?.tid;
    for verb in LOOKING.iter().chain(&CHANGING) {
        let outcome = machine.tool().verb(verb, &[tid])?;
        let text = outcome.text();
        ensure!(text.contains(&format!("{tid} is a thread of process {}", worker.pid())), "{verb}: {text}");
        ensure!(outcome.code == if *verb == "status" { 1 } else { 4 }, "{verb}: {} {text}", outcome.code);
    }
    ensure!(machine.status(worker.pid())?["phase"] == "running");
    Ok(())
}

#[test]
fn the_command_does_nothing_to_itself() -> Result<()> {
    let machine = Machine::stand_in()?;
    for verb in LOOKING.iter().chain(&CHANGING) {
        let (text, code) = by_shell(&machine, &format!("exec \"$TOOL\" {verb} $$"))?;
        ensure!(code == Some(4) && text.contains("is this command itself"), "{verb}: {code:?} {text}");
    }
    Ok(())
}

#[test]
fn a_zombie_is_as_good_as_gone() -> Result<()> {
    let machine = Machine::stand_in()?;
    let mut zombie = Command::new("/bin/true").spawn()?;
    let pid = i32::try_from(zombie.id())?;
    Thread::all_until(pid, |threads| threads.iter().all(|thread| thread.state == 'Z'))?;
    for pid in [pid, i32::MAX] {
        for verb in CHANGING {
            let text = machine.tool().verb(verb, &[pid])?.exits(4)?.text();
            ensure!(text.contains(&format!("process {pid}: there is no such process")), "{verb}: {text}");
        }
    }
    zombie.wait()?;
    Ok(())
}

#[test]
fn output_that_cannot_be_written_is_a_failure_where_it_is_all_there_is() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = worker(&machine)?;
    let (before, pid) = (worker.ok("sum x 0 4M")?, worker.pid());
    for verb in ["gpus", "list", &format!("status {pid}"), &format!("check {pid}"), "completions bash"] {
        let (text, code) = by_shell(&machine, &format!("\"$TOOL\" {verb} >/dev/full"))?;
        ensure!(code == Some(1) && text.contains("output cannot be written"), "{verb}: {code:?} {text}");
        // A reader that has gone away has what it wanted.
        let gone = format!("{{ \"$TOOL\" {verb}; echo $? >{pid}.code; }} | true");
        by_shell(&machine, &gone)?;
        let code = std::fs::read_to_string(machine.path(&format!("{pid}.code")))?;
        ensure!(code.trim() == "0", "{verb}: {code}");
    }
    for (verb, phase) in [("suspend", "released"), ("resume", "running")] {
        for output in [">/dev/full", ">&-", ">&- 2>&-", "<&- >&- 2>&-"] {
            let (text, code) = by_shell(&machine, &format!("\"$TOOL\" {verb} {pid} {output}"))?;
            ensure!(code == Some(0), "{verb} {output}: {code:?} {text}");
            ensure!(machine.status(pid)?["phase"] == phase, "{verb} {output}: {text}");
        }
    }
    ensure!(worker.ok("sum x 0 4M")? == before);
    Ok(())
}

/// With ever more of a resource the command comes ever further; wherever it ends, it says why, and nothing is half done.
#[test]
fn without_descriptors_or_room_for_files_nothing_is_left_half_done() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = worker(&machine)?;
    let (before, pid) = (worker.ok("sum x 0 4M")?, worker.pid());
    // Files no larger than so many blocks of half a KiB; descriptors.
    let limits = [("f", 0..3), ("n", 4..40)];
    for (limit, range) in limits {
        let mut codes = Vec::new();
        for count in range {
            let run =
                |verb: &str| by_shell(&machine, &format!("ulimit -{limit} {count}; \"$TOOL\" {verb} {pid}"));
            let (text, code) = run("suspend")?;
            let phase = machine.status(pid)?["phase"].clone();
            ensure!(!text.is_empty() && matches!(code, Some(0 | 1 | 4)), "{limit} {count}: {code:?} {text}");
            ensure!((code == Some(0)) == (phase == "released"), "{limit} {count}: {phase} {code:?} {text}");
            codes.push(code);
            if code == Some(0) {
                let (text, code) = run("resume")?;
                ensure!(matches!(code, Some(0 | 1 | 3 | 4)), "{limit} {count}: {code:?} {text}");
                machine.resume(&[pid])?.done()?;
            }
            ensure!(worker.ok("sum x 0 4M")? == before, "{limit} {count}");
        }
        ensure!(codes.first() != Some(&Some(0)), "{limit}: {codes:?}");
        ensure!(limit == "f" || codes.last() == Some(&Some(0)), "{limit}: {codes:?}");
    }
    Ok(())
}

#[test]
fn a_command_that_is_stopped_keeps_others_away_and_goes_on_where_it_was() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = worker(&machine)?;
    let before = worker.ok("sum x 0 4M")?;
    let trace = machine.path("trace");
    let tool = machine.tool().set("NVSNAP_GPU_SUSPEND_TRACE", &trace);
    let tool = tool.set("NVSNAP_GPU_SUSPEND_FAULTS", "cuCheckpointProcessLock:1:*=delay(1000)");
    let suspend = tool.start_verb("suspend", &[worker.pid()])?;
    while !std::fs::read_to_string(&trace).unwrap_or_default().contains("cuCheckpointProcessLock") {
        ensure!(std::path::Path::new(&format!("/proc/{}", suspend.pid()?)).exists(), "it has ended");
    }
    integration::threads::signal(suspend.pid()?, libc::SIGSTOP)?;
    for verb in CHANGING {
        let refused = machine.tool().verb(verb, &[worker.pid()])?.exits(4)?;
        ensure!(
            refused.text().contains(&format!("process {}", suspend.pid()?)),
            "{verb}: {}",
            refused.text()
        );
    }
    integration::threads::signal(suspend.pid()?, libc::SIGCONT)?;
    suspend.outcome()?.done()?;
    machine.resume(&[worker.pid()])?.done()?;
    ensure!(worker.ok("sum x 0 4M")? == before);
    Ok(())
}

/// Every verb beside every other, begun in the same moment: each ends with an exit code that says how, and afterwards a resume
/// makes all as it was.
#[test]
fn two_commands_at_once_do_not_get_into_each_others_way() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = worker(&machine)?;
    let (before, pid) = (worker.ok("sum x 0 4M")?, worker.pid());
    let verbs = CHANGING.iter().filter(|verb| **verb != "kill").chain(&LOOKING);
    for first in verbs.clone() {
        for second in verbs.clone() {
            let running = [first, second].map(|verb| {
                let mut command = machine.command(&machine.artifacts().tool);
                command.arg(verb).arg(pid.to_string()).stdin(Stdio::null()).process_group(0);
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
            });
            for child in running {
                let output = child?.wait_with_output()?;
                let text = String::from_utf8_lossy(&output.stderr).into_owned();
                ensure!(matches!(output.status.code(), Some(0 | 1 | 3 | 4)), "{first} {second}: {text}");
                ensure!(!text.contains("panicked"), "{first} {second}: {text}");
            }
            machine.resume(&[pid])?.done().with_context(|| format!("after {first} and {second}"))?;
            ensure!(worker.ok("sum x 0 4M")? == before, "after {first} and {second}");
        }
    }
    Ok(())
}

/// Nothing in the state directory is needed to resume.
#[test]
fn records_that_cannot_be_understood_are_named_and_keep_nobody_from_a_resume() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = worker(&machine)?;
    let (before, pid) = (worker.ok("sum x 0 4M")?, worker.pid());
    machine.suspend(&[pid])?.done()?;
    let record = machine.path(&format!("state/{pid}.json"));
    let whole = std::fs::read(&record)?;
    std::fs::write(&record, &whole[..whole.len() / 2])?;
    std::fs::write(machine.path("state/1.json"), "")?;
    std::os::unix::fs::symlink("/etc/passwd", machine.path("state/2.json"))?;
    let text = machine.resume(&[pid])?.done()?.text();
    for name in [&format!("{pid}.json"), "1.json", "2.json"] {
        ensure!(
            text.lines().any(|line| line.starts_with("warning: ") && line.contains(name)),
            "{name}: {text}"
        );
    }
    ensure!(worker.ok("sum x 0 4M")? == before);
    machine.suspend(&[pid])?.done()?;
    machine.resume(&[pid])?.done()?;
    ensure!(worker.ok("sum x 0 4M")? == before);
    Ok(())
}

#[test]
fn what_the_command_starts_itself_is_of_no_use_by_hand() -> Result<()> {
    let machine = Machine::stand_in()?;
    for numbers in ["0 1", "7 8", "3 3", "-- -1 2000000000"] {
        let (text, code) = by_shell(&machine, &format!("\"$TOOL\" hold {numbers}"))?;
        ensure!(code == Some(1) && text.contains("of no use by hand"), "{numbers}: {code:?} {text}");
    }
    Ok(())
}
