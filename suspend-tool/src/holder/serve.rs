//! What the holder does.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;

use super::{RESCUE_VARIABLE, Reply, Request, hear, tell};
use crate::faults::{FAULTS_VARIABLE, TRACE_VARIABLE};
use crate::freeze::{Freezer, tracers};
use crate::proc::ProcFs;
use crate::state::Run;

/// How often a rescue is tried.
const ATTEMPTS: u32 = 3;

/// The program to run when the command has died, and where.
struct Rescue {
    run: Run,
    arguments: Vec<OsString>,
    folder: PathBuf,
}

/// Everything the holder knows.
struct Holder {
    freezer: Freezer,
    /// To the command, until that is gone.
    channel: Option<OwnedFd>,
    rescue: Option<Rescue>,
    /// The rescue under way.
    running: Option<i32>,
    attempts: u32,
    /// What is held is meant to stay held.
    kept: bool,
    /// Nothing is to be held any more.
    finished: bool,
}

/// Serves one command, and holds what it leaves behind. The descriptors are those that the command passed on; somebody
/// who calls this by hand has none.
pub fn serve(channel: RawFd, command: RawFd) -> io::Result<()> {
    close_others(&BTreeSet::from([channel, command]));
    for fd in [channel, command] {
        // SAFETY: a number and a question; nothing is done to what it stands for.
        if fd <= 2 || channel == command || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
    }
    // SAFETY: passed on for us, and nobody else in this process knows it.
    let channel = unsafe { OwnedFd::from_raw_fd(channel) };
    // SAFETY: as above.
    let command = unsafe { OwnedFd::from_raw_fd(command) };
    rustix::io::fcntl_setfd(&channel, rustix::io::FdFlags::CLOEXEC)?;
    rustix::io::fcntl_setfd(&command, rustix::io::FdFlags::CLOEXEC)?;
    rustix::thread::set_name(tracers::HOLDER)?;
    let signals = signals()?;
    let mut holder = Holder {
        freezer: Freezer::new(ProcFs::default()),
        channel: Some(channel),
        rescue: None,
        running: None,
        attempts: 0,
        kept: false,
        finished: false,
    };
    holder.run(&signals, &command)
}

impl Holder {
    fn run(&mut self, signals: &OwnedFd, command: &OwnedFd) -> io::Result<()> {
        let mut orphaned = false;
        while !self.is_done(orphaned) {
            let mut waits = vec![PollFd::new(signals, PollFlags::IN)];
            if !orphaned {
                waits.push(PollFd::new(command, PollFlags::IN));
            }
            if let Some(channel) = &self.channel {
                waits.push(PollFd::new(channel, PollFlags::IN));
            }
            retry_on_intr(|| poll(&mut waits, None))?;
            let ready: Vec<bool> = waits.iter().map(|wait| !wait.revents().is_empty()).collect();
            drop(waits);
            if ready.first() == Some(&true) && was_asked_to_let_go(signals) {
                self.freezer.thaw();
                self.finished |= self.kept;
            }
            self.freezer.look();
            self.look_after_rescue();
            // What the command said before it died counts.
            if ready.get(if orphaned { 1 } else { 2 }) == Some(&true) {
                self.answer();
            } else if !orphaned && ready.get(1) == Some(&true) {
                orphaned = true;
                self.channel = None;
                self.begin_rescue();
            }
        }
        Ok(())
    }

    fn is_done(&self, orphaned: bool) -> bool {
        let idle = self.running.is_none() && (orphaned || self.finished);
        idle && (self.finished || self.freezer.is_empty() || !self.kept)
    }

    /// Answers one request.
    fn answer(&mut self) {
        let Some(channel) = &self.channel else { return };
        let reply = match hear(channel) {
            Ok(Some(Request::Watch { run, arguments, folder })) => {
                let arguments = arguments.into_iter().map(OsString::from_vec).collect();
                self.rescue = Some(Rescue { run, arguments, folder: OsString::from_vec(folder).into() });
                Reply::Watching(rustix::process::getpid().as_raw_nonzero().get())
            }
            Ok(Some(Request::Freeze { orders })) => match self.freezer.freeze(&orders) {
                Ok(()) => Reply::Done,
                Err(failed) => Reply::NotFrozen(failed),
            },
            Ok(Some(Request::Keep)) => {
                self.rescue = None;
                self.kept = true;
                Reply::Done
            }
            Ok(Some(Request::Finish)) => {
                self.rescue = None;
                self.finished = true;
                Reply::Done
            }
            Ok(None) | Err(_) => {
                // Its death is noticed by another descriptor.
                self.channel = None;
                return;
            }
        };
        // A command that does not read the answer is about to be found dead.
        let _ = tell(channel, &reply);
    }

    fn begin_rescue(&mut self) {
        let Some(rescue) = self.rescue.as_ref().filter(|_| self.attempts < ATTEMPTS) else { return };
        self.attempts += 1;
        // Relative paths count from where the command was, if that is still there.
        let folder = if rescue.folder.is_dir() { &rescue.folder } else { Path::new("/") };
        let started = Command::new("/proc/self/exe")
            .args(&rescue.arguments)
            .current_dir(folder)
            .env(RESCUE_VARIABLE, rescue.run.to_string())
            .env_remove(FAULTS_VARIABLE)
            .env_remove(TRACE_VARIABLE)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        // Its end is noticed with that of the traced threads.
        self.running = started.ok().and_then(|child| i32::try_from(child.id()).ok());
    }

    fn look_after_rescue(&mut self) {
        for (pid, status) in self.freezer.take_ended() {
            if self.running == Some(pid) {
                self.running = None;
                if !(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0) {
                    self.begin_rescue();
                }
            }
        }
    }
}

/// The signals that are taken, as a descriptor: the end of a child or a change of a traced thread, and the request to let
/// go. What a terminal sends is not for this process.
fn signals() -> io::Result<OwnedFd> {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: writes the whole set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for number in [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: an initialised set and a valid number.
        unsafe { libc::sigaddset(set.as_mut_ptr(), number) };
    }
    // SAFETY: an initialised set; the old mask is not asked for.
    let blocked = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) };
    if blocked != 0 {
        return Err(io::Error::from_raw_os_error(blocked));
    }
    // SAFETY: an initialised set; -1 asks for a new descriptor.
    let fd = unsafe { libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether SIGTERM is among the signals that came.
fn was_asked_to_let_go(signals: &OwnedFd) -> bool {
    let mut asked = false;
    while let Some(signal) = crate::interrupt::read_signal(signals) {
        asked |= signal.0 == libc::SIGTERM;
    }
    asked
}

/// Closes every descriptor but these and the standard ones: what the command has inherited is not ours to keep open.
fn close_others(kept: &BTreeSet<RawFd>) {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<RawFd> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd > 2 && !kept.contains(fd)) {
        // SAFETY: nothing in this process owns a descriptor yet. The one that the listing used is closed already.
        unsafe { libc::close(fd) };
    }
}
