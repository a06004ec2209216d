//! A program under test, and the talk with it: a command in, an answer out, line by line over pipes.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::failure::fail;
use crate::machine::Machine;
use crate::process::Snapshot;

/// How long an answer may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process of a test.
pub struct Target {
    name: String,
    child: Mutex<Child>,
    talk: Mutex<Talk>,
    log: PathBuf,
    pid: i32,
}

struct Talk {
    commands: Option<ChildStdin>,
    answers: ChildStdout,
    read: Vec<u8>,
}

/// A program that is about to be started.
#[derive(Debug)]
pub struct Start<'m> {
    machine: &'m Machine,
    command: Command,
    name: String,
}

impl Target {
    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Its name in this test.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives a command and waits for the answer.
    pub fn ask(&self, line: &str) -> Result<String> {
        let mut talk = self.lock()?;
        self.send(&mut talk, line)?;
        match self.receive(&mut talk, PATIENCE)? {
            Some(answer) => Ok(answer),
            None => fail!("{}: no answer to `{line}`\n{}", self.name, self.state()),
        }
    }

    /// Gives a command that must succeed; what stands behind the `ok` comes back.
    pub fn ok(&self, line: &str) -> Result<String> {
        let answer = self.ask(line)?;
        match answer.strip_prefix("ok") {
            Some(rest) => Ok(rest.trim().to_owned()),
            None => fail!("{}: `{line}` answered `{answer}`", self.name),
        }
    }

    /// Gives a command that the driver must refuse, with this number.
    pub fn refused(&self, line: &str, number: u32) -> Result<()> {
        let answer = self.ask(line)?;
        if answer.split_whitespace().take(2).eq(["error", &number.to_string()]) {
            return Ok(());
        }
        fail!("{}: `{line}` answered `{answer}`, not error {number}", self.name)
    }

    /// Gives a command whose answer comes later.
    pub fn begin(&self, line: &str) -> Result<Pending<'_>> {
        let mut talk = self.lock()?;
        self.send(&mut talk, line)?;
        drop(talk);
        Ok(Pending { target: self, line: line.to_owned() })
    }

    /// What the kernel says it holds.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::of(self.pid)
    }

    /// Insists that it holds no more than `before`, but for `slack_kib` of memory. Connections that have just ended are closed a
    /// little later, so this looks again until the time is up.
    pub fn settles_to(&self, before: &Snapshot, slack_kib: u64) -> Result<()> {
        let deadline = Instant::now() + PATIENCE / 6;
        loop {
            let left = before.left_behind(&self.snapshot()?, slack_kib);
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                fail!("{} holds more than before:\n{}", self.name, left.join("\n"));
            }
        }
    }

    /// What the library wrote into its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Closes the command pipe and waits for the end of the process.
    pub fn end(&self) -> Result<ExitStatus> {
        self.lock()?.commands = None;
        self.wait()
    }

    /// Waits for the end of the process.
    pub fn wait(&self) -> Result<ExitStatus> {
        let pid = rustix::process::Pid::from_raw(self.pid).context("a pid")?;
        match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
            Ok(fd) if readable(&fd, Instant::now() + PATIENCE)? => {}
            // Newer kernels give none out for one that has ended.
            Err(rustix::io::Errno::SRCH) => {}
            Ok(_) => fail!("{} does not end\n{}", self.name, self.state()),
            Err(error) => return Err(error.into()),
        }
        Ok(self.child.lock().map_err(|_| anyhow::anyhow!("a test panicked"))?.wait()?)
    }

    /// Ends the process as a crash would.
    pub fn kill(&self) -> Result<()> {
        let mut child = self.child.lock().map_err(|_| anyhow::anyhow!("a test panicked"))?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    fn lock(&self) -> Result<std::sync::MutexGuard<'_, Talk>> {
        self.talk.lock().map_err(|_| anyhow::anyhow!("a test panicked while it talked to {}", self.name))
    }

    fn send(&self, talk: &mut Talk, line: &str) -> Result<()> {
        let commands = talk.commands.as_mut().context("its command pipe is closed")?;
        commands
            .write_all(format!("{line}\n").as_bytes())
            .with_context(|| format!("{}: cannot give `{line}`\n{}", self.name, self.state()))
    }

    /// The next answer, or nothing within `patience`.
    fn receive(&self, talk: &mut Talk, patience: Duration) -> Result<Option<String>> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(end) = talk.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = talk.read.drain(..=end).collect();
                return Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned()));
            }
            if !readable(&talk.answers, deadline)? {
                return Ok(None);
            }
            let mut part = [0; 4096];
            match talk.answers.read(&mut part) {
                Ok(0) => fail!("{} closed its pipe\n{}", self.name, self.state()),
                Ok(count) => talk.read.extend(part.iter().take(count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// For messages: whether it lives, what its threads wait for, and what the library logged.
    fn state(&self) -> String {
        let mut text = match self.child.lock().map(|mut child| child.try_wait()) {
            Ok(Ok(Some(status))) => format!("it ended: {status}"),
            _ => format!("it lives as pid {}", self.pid),
        };
        for task in std::fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten() {
            let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let syscall = read("syscall");
            let syscall = syscall.split(' ').next().unwrap_or_default().trim();
            text += &format!("\nthread {} in system call {syscall}", read("comm").trim());
        }
        let log = self.log();
        if !log.is_empty() {
            text += &format!("\nits log:\n{log}");
        }
        text
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({}, pid {})", self.name, self.pid)
    }
}

impl Drop for Target {
    /// A target that the test has not ended is not of interest any more.
    fn drop(&mut self) {
        if let Ok(child) = self.child.get_mut()
            && matches!(child.try_wait(), Ok(None))
        {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// An answer that is still to come.
#[derive(Debug)]
pub struct Pending<'t> {
    target: &'t Target,
    line: String,
}

impl Pending<'_> {
    /// The answer.
    pub fn answer(self) -> Result<String> {
        let answer = self.within(PATIENCE)?;
        answer.with_context(|| {
            format!("{}: no answer to `{}`\n{}", self.target.name, self.line, self.target.state())
        })
    }

    /// The answer, if it comes within this time. For what must come soon, or is shown not to come by other means.
    pub fn within(&self, patience: Duration) -> Result<Option<String>> {
        let mut talk = self.target.lock()?;
        self.target.receive(&mut talk, patience)
    }
}

impl<'m> Start<'m> {
    /// A program of the artifacts, to be started on `machine` under a name that tells two of them apart.
    pub(crate) fn new(machine: &'m Machine, program: &str, name: &str) -> Self {
        let mut command = machine.command(machine.artifacts().programs.join(program));
        command.env("WORKER_NAME", name).env("WORKER_SOCKETS", machine.path(""));
        Self { machine, command, name: name.to_owned() }
    }

    /// Puts the library in front of the driver.
    pub fn preload(mut self) -> Self {
        let shim = &self.machine.artifacts().shim;
        self.command.env("LD_PRELOAD", shim);
        self.command.env("NVSNAP_GPUSHARE_LOG", self.log());
        self
    }

    /// The same, if `yes`.
    pub fn preload_if(self, yes: bool) -> Self {
        if yes { self.preload() } else { self }
    }

    /// Sets a variable for this process only.
    pub fn set(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Gives it an argument.
    pub fn argument(mut self, argument: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// Starts it.
    pub fn start(mut self) -> Result<Target> {
        let errors = std::fs::File::create(self.machine.path(&format!("logs/{}.stderr", self.name)))?;
        let mut child = self
            .command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .with_context(|| format!("cannot start {:?}", self.command.get_program()))?;
        let pid = i32::try_from(child.id())?;
        let commands = child.stdin.take();
        let answers = child.stdout.take().context("no pipe")?;
        let talk = Mutex::new(Talk { commands, answers, read: Vec::new() });
        let log = self.log();
        Ok(Target { name: self.name, child: Mutex::new(child), talk, log, pid })
    }

    fn log(&self) -> PathBuf {
        self.machine.path(&format!("logs/{}.shim", self.name))
    }
}

/// Waits until `fd` can be read, or for the deadline.
fn readable(fd: &impl AsFd, deadline: Instant) -> Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left =
            Timespec { tv_sec: i64::try_from(left.as_secs())?, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&left)) {
            Ok(count) => return Ok(count > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
