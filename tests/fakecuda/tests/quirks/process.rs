//! Each test in a fresh process of its own, on a machine of its own, with as many others as it needs.
//!
//! A test calls [`test`] with what its process does. The process is this test program once more; the driver's violations
//! and its exit status decide. A test with several processes names them: the closure runs in each, and asks for its role.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use crate::cuda::{LIBRARY, library};

const TEST: &str = "FAKECUDA_TEST";
const ROLE: &str = "FAKECUDA_TEST_ROLE";
const LINK: &str = "FAKECUDA_TEST_LINK";

/// How long anything in a test may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What is said about a test before it runs.
#[derive(Debug, Default)]
pub(crate) struct Setup {
    environment: Vec<(String, String)>,
    violations: Vec<&'static str>,
}

/// A machine with nothing special.
pub(crate) fn machine() -> Setup {
    Setup::default()
}

impl Setup {
    /// Sets a variable of all processes of the test.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The test commits violations on purpose: one line with each of these words, in this order, and no other.
    pub(crate) fn violates(mut self, words: &[&'static str]) -> Self {
        self.violations.extend(words);
        self
    }

    /// Runs the test. `name` is the path of its function in this program.
    pub(crate) fn test(self, name: &str, body: impl FnOnce(&Me)) {
        if std::env::var(TEST).as_deref() == Ok(name) {
            return body(&Me { role: std::env::var(ROLE).unwrap_or_default(), link: own_link() });
        }
        let directory = tempfile::tempdir().unwrap();
        let strict = directory.path().join("violations");
        let mut command = program(name);
        command.env("FAKECUDA_DIR", directory.path().join("machine")).env("FAKECUDA_STRICT_LOG", &strict);
        command.env(LIBRARY, library());
        for (variable, value) in &self.environment {
            command.env(variable, value.replace("$DIR", directory.path().to_str().unwrap()));
        }
        let mut child = Guard(command.spawn().unwrap());
        let status = child.wait();
        let found = std::fs::read_to_string(&strict).unwrap_or_default();
        assert!(status.success(), "{status}; violations:\n{found}");
        let lines: Vec<&str> = found.lines().collect();
        let as_expected = lines.len() == self.violations.len()
            && lines.iter().zip(&self.violations).all(|(line, words)| line.contains(words));
        assert!(as_expected, "violations are not {:?} but:\n{found}", self.violations);
    }
}

fn program(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    // SAFETY: makes one system call, and a child has its own parent.
    unsafe {
        command.pre_exec(|| {
            Ok(rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?)
        })
    };
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(TEST, name).stdout(Stdio::null());
    command
}

/// A child that does not outlive the test.
struct Guard(Child);

impl Guard {
    fn wait(&mut self) -> std::process::ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        // A pidfd becomes readable when the process ends.
        let pid = rustix::process::Pid::from_child(&self.0);
        let end = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = rustix::event::Timespec { tv_sec: left.as_secs().try_into().unwrap(), tv_nsec: 0 };
        let mut polled = [rustix::event::PollFd::new(&end, rustix::event::PollFlags::IN)];
        let ready = rustix::event::poll(&mut polled, Some(&timeout)).unwrap();
        assert!(ready > 0, "process {} did not end", self.0.id());
        self.0.wait().unwrap()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn own_link() -> Option<Link> {
    let number: RawFd = std::env::var(LINK).ok()?.parse().unwrap();
    // SAFETY: the parent made this descriptor for us, and nobody else takes it.
    Some(Link(unsafe { OwnedFd::from_raw_fd(number) }))
}

/// A process of a test, as it sees itself.
pub(crate) struct Me {
    role: String,
    link: Option<Link>,
}

impl Me {
    /// The name under which it was started; empty for the first process.
    pub(crate) fn role(&self) -> &str {
        &self.role
    }

    /// The connection to whoever started it.
    pub(crate) fn parent(&self) -> &Link {
        self.link.as_ref().unwrap()
    }

    /// Starts another process of the test.
    pub(crate) fn start(&self, role: &str) -> Other {
        self.start_with(role, &[])
    }

    /// The same, with variables of its own.
    pub(crate) fn start_with(&self, role: &str, environment: &[(&str, &str)]) -> Other {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::empty(), None).unwrap();
        rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC).unwrap();
        let mut command = program(&std::env::var(TEST).unwrap());
        command.env(ROLE, role).env(LINK, std::os::fd::AsRawFd::as_raw_fd(&theirs).to_string());
        command.envs(environment.iter().copied());
        let child = command.spawn().unwrap();
        Other { process: Guard(child), link: Link(ours) }
    }
}

/// Another process of the test.
pub(crate) struct Other {
    process: Guard,
    pub(crate) link: Link,
}

impl Other {
    pub(crate) fn pid(&self) -> i32 {
        self.process.0.id().try_into().unwrap()
    }

    /// How often its threads have gone to sleep.
    pub(crate) fn sleeps(&self) -> u64 {
        let sleeps = |task: std::fs::DirEntry| {
            let status = std::fs::read_to_string(task.path().join("status")).ok()?;
            let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            count.trim().parse::<u64>().ok()
        };
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        tasks.filter_map(|task| sleeps(task.ok()?)).sum()
    }

    /// Ends it as `kill -9` does, and waits until it is gone.
    pub(crate) fn kill(mut self) {
        self.process.0.kill().unwrap();
        self.process.0.wait().unwrap();
    }

    /// Waits until it has been ended by a signal, and gives that.
    pub(crate) fn signal(mut self) -> i32 {
        let status = self.process.wait();
        std::os::unix::process::ExitStatusExt::signal(&status).unwrap_or_else(|| panic!("{status}"))
    }

    /// Waits until it has ended well.
    pub(crate) fn finish(mut self) {
        let status = self.process.wait();
        assert!(status.success(), "{status}");
    }
}

/// A connection over which words and descriptors go.
pub(crate) struct Link(OwnedFd);

impl Link {
    pub(crate) fn send(&self, words: &[u64]) {
        self.send_with(words, &[]);
    }

    pub(crate) fn send_with(&self, words: &[u64], descriptors: &[BorrowedFd<'_>]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
        }
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
    }

    /// The next message; an empty one when the other end is gone.
    pub(crate) fn receive_with(&self) -> (Vec<u64>, Vec<OwnedFd>) {
        rustix::net::sockopt::set_socket_timeout(
            &self.0,
            rustix::net::sockopt::Timeout::Recv,
            Some(PATIENCE),
        )
        .unwrap();
        let mut bytes = [0; 512];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        // A stop by a tracer interrupts a receive that has a timeout.
        let message = retry_on_intr(|| {
            recvmsg(self.0.as_fd(), &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)
        })
        .unwrap();
        let descriptors = control.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
            _ => Vec::new(),
        });
        let descriptors = descriptors.collect();
        let words =
            bytes[..message.bytes].chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
        (words.collect(), descriptors)
    }

    pub(crate) fn receive(&self) -> Vec<u64> {
        self.receive_with().0
    }

    /// Whether a message waits to be received.
    pub(crate) fn has_message(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
    }
}

/// Threads of another process that are stopped until this is dropped.
pub(crate) struct Stopped(Vec<i32>);

/// Stops all threads of a process but one.
pub(crate) fn stop_threads(pid: i32, but: i32) -> Stopped {
    let mut stopped = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let tid: i32 = entry.unwrap().file_name().to_str().unwrap().parse().unwrap();
        if tid == but {
            continue;
        }
        // SAFETY: these requests touch no memory of ours.
        let result = unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, 0, 0) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: as above.
        let result = unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: waits for the stop of a thread that we trace.
        let result = unsafe { libc::waitpid(tid, std::ptr::null_mut(), libc::__WALL) };
        assert_eq!(result, tid);
        stopped.push(tid);
    }
    Stopped(stopped)
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for &tid in &self.0 {
            // SAFETY: touches no memory of ours.
            unsafe { libc::ptrace(libc::PTRACE_DETACH, tid, 0, 0) };
        }
    }
}

/// A file of the test in the directory that only it has.
pub(crate) fn file(name: &str) -> PathBuf {
    Path::new(&std::env::var("FAKECUDA_DIR").unwrap()).parent().unwrap().join(name)
}
