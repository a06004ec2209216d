//! Threads held still while their process is suspended: all of them but ours, whatever they do, and never longer than
//! somebody holds them.

use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use integration::threads::{Thread, ends, holder_of, signal};
use integration::{Machine, Snapshot, Target};

fn worker(machine: &Machine) -> Result<Target> {
    let worker = machine.worker("a").preload().start()?;
    for line in ["begin 0", "new x 4M device:0 fd", "fill x 0 4M 7"] {
        worker.ok(line)?;
    }
    Ok(worker)
}

/// A machine, a worker on it, and what the worker holds.
fn begin() -> Result<(Machine, Target, String)> {
    let machine = Machine::stand_in()?;
    let worker = worker(&machine)?;
    let before = sum(&worker)?;
    Ok((machine, worker, before))
}

fn sum(worker: &Target) -> Result<String> {
    worker.ok("sum x 0 4M")
}

/// All threads but the spared ones are in the hands of the tracer.
fn is_frozen(worker: &Target) -> Result<()> {
    let threads = Thread::all(worker.pid())?;
    ensure!(threads.iter().filter(|thread| thread.is_spared()).count() >= 4, "{threads:?}");
    for thread in threads {
        ensure!((thread.state == 't') != thread.is_spared(), "{thread:?}");
        ensure!((thread.tracer != 0) != thread.is_spared(), "{thread:?}");
    }
    Ok(())
}

fn goes_on(worker: &Target) -> Result<()> {
    let threads = Thread::all(worker.pid())?;
    let held = |thread: &&Thread| thread.tracer != 0 || matches!(thread.state, 't' | 'T');
    ensure!(!threads.iter().any(|thread| held(&thread)), "{threads:?}");
    Ok(())
}

/// Nothing of ours stays open, for CRIU to stumble over. A connection that has ended is closed a little later.
fn holds_no_more_descriptors(worker: &Target, before: &Snapshot) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let mut left = before.left_behind(&worker.snapshot()?, u64::MAX >> 1);
        left.retain(|line| line.contains("descriptors"));
        if left.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{left:?}");
    }
}

#[test]
fn all_threads_but_ours_stand_still_until_the_resume() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = worker(&machine)?;
    worker.ok("on other context 0")?;
    let (before, snapshot) = (sum(&worker)?, worker.snapshot()?);
    for _ in 0..3 {
        machine.suspend(&[worker.pid()])?.done()?;
        is_frozen(&worker)?;
        let holder = holder_of(worker.pid())?.context("a holder")?;
        let status = machine.status(worker.pid())?;
        ensure!(status["phase"] == "released" && status["held_by"] == holder, "{status}");
        holds_no_more_descriptors(&worker, &snapshot)?;
        machine.resume(&[worker.pid()])?.done()?;
        ends(holder)?;
        goes_on(&worker)?;
        ensure!(sum(&worker)? == before);
    }
    Ok(())
}

#[test]
fn threads_are_left_running_where_that_is_asked_for_and_nobody_stays_behind() -> Result<()> {
    let (machine, worker, before) = begin()?;
    machine.suspend_running(&[worker.pid()])?.done()?;
    goes_on(&worker)?;
    ensure!(worker.ok("echo here")? == "here");
    machine.resume(&[worker.pid()])?.done()?;
    ensure!(sum(&worker)? == before);
    Ok(())
}

#[test]
fn threads_that_come_and_go_are_all_caught() -> Result<()> {
    let (machine, worker, before) = begin()?;
    worker.ok("unrest")?;
    for _ in 0..5 {
        let born = |worker: &Target| -> Result<u64> { Ok(worker.ok("born")?.parse()?) };
        let start = born(&worker)?;
        let deadline = Instant::now() + Duration::from_secs(20);
        while born(&worker)? < start + 100 {
            ensure!(Instant::now() < deadline, "no threads are born");
        }
        machine.suspend(&[worker.pid()])?.done()?;
        is_frozen(&worker)?;
        let ids = |threads: Vec<Thread>| threads.into_iter().map(|thread| thread.tid).collect::<Vec<_>>();
        ensure!(
            ids(Thread::all(worker.pid())?) == ids(Thread::all(worker.pid())?),
            "threads still come and go"
        );
        machine.resume(&[worker.pid()])?.done()?;
    }
    ensure!(sum(&worker)? == before);
    Ok(())
}

#[test]
fn a_thread_in_a_vfork_is_no_obstacle() -> Result<()> {
    let (machine, worker, before) = begin()?;
    for order in [["suspend", "end", "resume"], ["suspend", "resume", "end"]] {
        worker.ok("start v vfork")?;
        Thread::all_until(worker.pid(), |threads| threads.iter().any(|thread| thread.state == 'D'))?;
        for step in order {
            match step {
                "suspend" => drop(machine.suspend(&[worker.pid()])?.done()?),
                "resume" => drop(machine.resume(&[worker.pid()])?.done()?),
                // While the process is frozen, its child is ended for it.
                _ if holder_of(worker.pid())?.is_some() => end_children(worker.pid())?,
                _ => drop(worker.ok("vfork-end")?),
            }
        }
        worker.ok("wait v")?;
        ensure!(sum(&worker)? == before);
        goes_on(&worker)?;
    }
    Ok(())
}

fn end_children(pid: i32) -> Result<()> {
    let mut ended = 0;
    for thread in Thread::all(pid)? {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{}/children", thread.tid))?;
        for child in children.split_whitespace() {
            signal(child.parse()?, libc::SIGKILL)?;
            ended += 1;
        }
    }
    ensure!(ended == 1, "{ended} children");
    Ok(())
}

/// This process as a tracer, on a thread of its own: a thread is traced by the thread that seized it.
struct Tracing {
    end: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Tracing {
    fn of(tid: i32) -> Result<Self> {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (begun, begins) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let null = std::ptr::null_mut::<libc::c_void>();
            // SAFETY: a request that touches no memory.
            let answer = unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, null, null) };
            let _ = begun.send(answer);
            // The tracing ends with this thread.
            let _ = ended.recv();
        });
        ensure!(begins.recv()? == 0, "{}", std::io::Error::last_os_error());
        Ok(Self { end, thread })
    }

    fn end(self) {
        drop(self.end);
        self.thread.join().expect("it ends");
    }
}

#[test]
fn a_process_that_somebody_else_traces_is_refused_and_the_tracer_named() -> Result<()> {
    let (machine, worker, before) = begin()?;
    worker.ok("on other echo x")?;
    let thread = Thread::all(worker.pid())?.into_iter().find(|thread| thread.name == "other");
    let tracing = Tracing::of(thread.context("the thread")?.tid)?;
    let own = std::process::id().to_string();
    for verb in ["check", "suspend"] {
        let refused = machine.tool().verb(verb, &[worker.pid()])?.exits(4)?;
        ensure!(refused.text().contains(&format!("process {own}")), "{}", refused.text());
        ensure!(refused.text().contains("--no-freeze"), "{}", refused.text());
    }
    ensure!(sum(&worker)? == before);
    // The tracer does not stop it, so that all but the freezing is possible.
    machine.suspend_running(&[worker.pid()])?.done()?;
    machine.resume(&[worker.pid()])?.done()?;
    ensure!(sum(&worker)? == before);
    tracing.end();
    machine.suspend(&[worker.pid()])?.done()?;
    machine.resume(&[worker.pid()])?.done()?;
    Ok(())
}

#[test]
fn a_tracer_that_comes_after_the_check_makes_the_suspend_fail_and_everything_is_undone() -> Result<()> {
    let machine = Machine::stand_in()?;
    let (one, worker) = (machine.worker("one").preload().start()?, worker(&machine)?);
    one.ok("begin 0")?;
    let before = sum(&worker)?;
    let trace = machine.path("trace");
    let delayed = machine.tool().set("NVSNAP_GPU_SUSPEND_FAULTS", "cuCheckpointProcessLock:1:*=delay(1500)");
    let running =
        delayed.set("NVSNAP_GPU_SUSPEND_TRACE", &trace).start_verb("suspend", &[one.pid(), worker.pid()])?;
    let deadline = Instant::now() + Duration::from_secs(20);
    while !std::fs::read_to_string(&trace).unwrap_or_default().contains("cuCheckpointProcessLock") {
        ensure!(Instant::now() < deadline, "the suspend does not get there");
        std::thread::sleep(Duration::from_millis(2));
    }
    let tracing = Tracing::of(worker.pid())?;
    let failed = running.outcome()?.exits(1)?;
    ensure!(failed.text().contains(&format!("process {}", std::process::id())), "{}", failed.text());
    tracing.end();
    for target in [&one, &worker] {
        goes_on(target)?;
        ensure!(machine.status(target.pid())?["phase"] == "running");
    }
    ensure!(sum(&worker)? == before);
    Ok(())
}

#[test]
fn a_holder_that_is_killed_leaves_nobody_stopped() -> Result<()> {
    let (machine, worker, before) = begin()?;
    machine.suspend(&[worker.pid()])?.done()?;
    let holder = holder_of(worker.pid())?.context("a holder")?;
    signal(holder, libc::SIGKILL)?;
    Thread::all_until(worker.pid(), |threads| threads.iter().all(|thread| thread.tracer == 0))?;
    goes_on(&worker)?;
    ensure!(worker.ok("echo here")? == "here");
    machine.resume(&[worker.pid()])?.done()?;
    ensure!(sum(&worker)? == before);
    Ok(())
}

#[test]
fn a_holder_ends_with_the_last_process_it_holds() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = worker(&machine)?;
    machine.suspend(&[worker.pid()])?.done()?;
    let holder = holder_of(worker.pid())?.context("a holder")?;
    worker.kill()?;
    ends(holder)
}

#[test]
fn a_signal_to_a_frozen_program_waits_and_is_delivered_once_it_goes_on() -> Result<()> {
    let (machine, worker, before) = begin()?;
    worker.ok("on-term")?;
    machine.suspend(&[worker.pid()])?.done()?;
    signal(worker.pid(), libc::SIGTERM)?;
    is_frozen(&worker)?;
    machine.resume(&[worker.pid()])?.done()?;
    ensure!(worker.ok("terminated")? == "true");
    ensure!(sum(&worker)? == before);
    Ok(())
}

#[test]
fn a_program_that_a_signal_ended_while_it_was_suspended_is_said_to_have_ended() -> Result<()> {
    for frozen in [true, false] {
        let machine = Machine::stand_in()?;
        let (worker, other) = (worker(&machine)?, machine.worker("other").preload().start()?);
        for line in ["begin 0", "new x 4M device:0 fd", "fill x 0 4M 9"] {
            other.ok(line)?;
        }
        let (before, pids) = (sum(&other)?, [worker.pid(), other.pid()]);
        let suspend = if frozen { machine.suspend(&pids)? } else { machine.suspend_running(&pids)? };
        suspend.done()?;
        signal(worker.pid(), libc::SIGTERM)?;
        if !frozen {
            worker.wait()?;
        }
        let resume = machine.resume(&pids)?;
        ensure!(resume.text().contains(&worker.pid().to_string()), "{}", resume.text());
        // The one that lives is back, by this resume or by the one that it names.
        if resume.code != 0 {
            machine.resume(&[other.pid()])?.done().with_context(|| resume.text())?;
        }
        worker.wait()?;
        ensure!(sum(&other)? == before);
        goes_on(&other)?;
    }
    Ok(())
}

/// Asks for a sign of life, and says whether one came in time.
fn is_alive(port: u16) -> Result<bool> {
    let mut connection = TcpStream::connect(("127.0.0.1", port))?;
    connection.set_read_timeout(Some(Duration::from_millis(300)))?;
    let mut greeting = [0; 6];
    match connection.read_exact(&mut greeting) {
        Ok(()) => Ok(&greeting == b"alive\n"),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[test]
fn a_heartbeat_and_a_probe_outlive_a_suspend_that_is_longer_than_they_allow() -> Result<()> {
    for frozen in [true, false] {
        let (machine, worker, before) = begin()?;
        let port = worker.ok("probe")?.parse()?;
        worker.ok("heartbeat 2000")?;
        ensure!(is_alive(port)?);
        let pids = [worker.pid()];
        let suspend = if frozen { machine.suspend(&pids)? } else { machine.suspend_running(&pids)? };
        suspend.done()?;
        let begun = Instant::now();
        ensure!(is_alive(port)? != frozen, "a probe of a process that is frozen: {frozen}");
        // What is waited for is the time itself.
        std::thread::sleep(Duration::from_millis(4500).saturating_sub(begun.elapsed()));
        machine.resume(&pids)?.done()?;
        ensure!(is_alive(port)?, "frozen: {frozen}");
        ensure!(sum(&worker)? == before);
    }
    Ok(())
}
