//! The command beside other commands, and where it may not do everything.

use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use integration::threads::{Thread, holder_of};
use integration::{Machine, Outcome, Target};

fn worker(machine: &Machine, name: &str) -> Result<Target> {
    let worker = machine.worker(name).preload().start()?;
    for line in ["begin 0", "new x 2M device:0 fd", "fill x 0 2M 7"] {
        worker.ok(line)?;
    }
    Ok(worker)
}

#[test]
fn a_second_command_on_one_of_the_processes_is_refused_and_the_first_is_not_disturbed() -> Result<()> {
    let machine = Machine::stand_in()?;
    let (one, two) = (worker(&machine, "one")?, worker(&machine, "two")?);
    let pids = [one.pid(), two.pid()];
    let before = one.ok("sum x 0 2M")?;
    let trace = machine.path("trace");
    let slow = machine.tool().set("NVSNAP_GPU_SUSPEND_FAULTS", "release:1:*=delay(1500)");
    let first = slow.set("NVSNAP_GPU_SUSPEND_TRACE", &trace).start_verb("suspend", &pids)?;
    let deadline = Instant::now() + Duration::from_secs(20);
    while !std::fs::read_to_string(&trace).unwrap_or_default().contains("release") {
        ensure!(Instant::now() < deadline, "the first does not get there");
        std::thread::sleep(Duration::from_millis(2));
    }
    for verb in ["suspend", "resume", "stop", "kill"] {
        let refused = machine.tool().verb(verb, &[two.pid()])?.exits(4)?;
        ensure!(refused.text().contains(&format!("process {}", first.pid()?)), "{}", refused.text());
    }
    first.outcome()?.done()?;
    machine.resume(&pids)?.done()?;
    ensure!(one.ok("sum x 0 2M")? == before);
    Ok(())
}

#[test]
fn a_program_that_becomes_another_while_it_is_suspended_is_left_out_and_the_rest_comes_back() -> Result<()> {
    let machine = Machine::stand_in()?;
    let (one, two) = (worker(&machine, "one")?, worker(&machine, "two")?);
    let before = two.ok("sum x 0 2M")?;
    machine.suspend_running(&[one.pid(), two.pid()])?.done()?;
    one.ok("exec")?;
    let resume = machine.resume(&[one.pid(), two.pid()])?.done()?;
    ensure!(resume.text().contains(&format!("process {}", one.pid())), "{}", resume.text());
    ensure!(two.ok("sum x 0 2M")? == before);
    // The new program is suspended like any other.
    for line in ["begin 0", "new x 2M device:0 fd", "fill x 0 2M 8"] {
        one.ok(line)?;
    }
    machine.suspend(&[one.pid(), two.pid()])?.done()?;
    machine.resume(&[one.pid(), two.pid()])?.done()?;
    ensure!(two.ok("sum x 0 2M")? == before);
    Ok(())
}

#[test]
fn one_initialisation_does_for_all_processes_and_one_holder_for_all_threads() -> Result<()> {
    let machine = Machine::stand_in()?;
    let names = ["a", "b", "c", "d"];
    let workers = names.map(|name| worker(&machine, name)).into_iter().collect::<Result<Vec<_>>>()?;
    let pids: Vec<i32> = workers.iter().map(Target::pid).collect();
    for outcome in [machine.suspend(&pids)?.done()?, machine.resume(&pids)?.done()?] {
        let calls = machine.calls(outcome.pid)?;
        ensure!(calls.iter().filter(|call| call.name == "cuInit").count() == 1, "{calls:?}");
    }
    machine.suspend(&pids)?.done()?;
    let holder = holder_of(pids[0])?;
    for pid in &pids {
        let threads = Thread::all(*pid)?;
        let held = threads.iter().filter(|thread| thread.tracer != 0);
        ensure!(held.map(|thread| Some(thread.tracer)).all(|tracer| tracer == holder), "{threads:?}");
    }
    // No CUDA in the holder, nothing of the test's open in it, and one thread.
    let holder = holder.context("a holder")?;
    let maps = std::fs::read_to_string(format!("/proc/{holder}/maps"))?;
    ensure!(!maps.contains("libcuda") && !maps.contains("nvsnap_gpushare"), "{maps}");
    ensure!(Thread::all(holder)?.len() == 1);
    machine.resume(&pids)?.done()?;
    Ok(())
}

/// The command, with something done in its process before it begins.
fn changed(
    machine: &Machine,
    arguments: &[&str],
    change: impl FnMut() -> std::io::Result<()> + Send + Sync + 'static,
) -> Result<Outcome> {
    let mut command = machine.command(&machine.artifacts().tool);
    // SAFETY: what the tests pass makes one system call.
    unsafe { command.args(arguments).pre_exec(change) };
    let child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn()?;
    let pid = i32::try_from(child.id())?;
    let output = child.wait_with_output()?;
    Ok(Outcome {
        pid,
        code: output.status.code().unwrap_or(-1),
        output: String::from_utf8_lossy(&output.stdout).into_owned(),
        errors: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

#[test]
fn from_another_network_namespace_the_cause_is_named() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = worker(&machine, "a")?;
    let pid = worker.pid().to_string();
    for verb in ["check", "suspend", "resume"] {
        let refused = changed(&machine, &[verb, &pid], || {
            // SAFETY: a process with one thread, which is about to become the command.
            unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }
                .map_err(Into::into)
        })?;
        let refused = refused.exits(4)?;
        ensure!(refused.text().contains("network namespace"), "{}", refused.text());
        ensure!(!refused.text().contains("refused (os error"), "{}", refused.text());
    }
    worker.ok("sum x 0 2M")?;
    Ok(())
}

#[test]
fn without_the_right_to_trace_freezing_is_refused_and_the_rest_is_possible() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = worker(&machine, "a")?;
    worker.ok("private")?;
    let before = worker.ok("sum x 0 2M")?;
    let pid = worker.pid().to_string();
    const CAP_SYS_PTRACE: libc::c_int = 19;
    let without_right = || {
        // SAFETY: takes a number; what it does holds for what this process executes.
        match unsafe { libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_PTRACE, 0, 0, 0) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    for verb in ["check", "suspend"] {
        let refused = changed(&machine, &[verb, &pid], without_right)?.exits(4)?;
        ensure!(refused.text().contains("CAP_SYS_PTRACE"), "{}", refused.text());
        ensure!(refused.text().contains("--no-freeze"), "{}", refused.text());
    }
    changed(&machine, &["suspend", "--no-freeze", &pid], without_right)?.done()?;
    changed(&machine, &["resume", &pid], without_right)?.done()?;
    ensure!(worker.ok("sum x 0 2M")? == before);
    Ok(())
}
