//! Signals that ask the command to stop.
//!
//! They are blocked and read from a descriptor: no work is done in a handler, and a call that is in flight is
//! finished before anybody looks.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The signals that are taken.
const TAKEN: [(libc::c_int, &str); 3] =
    [(libc::SIGINT, "SIGINT"), (libc::SIGTERM, "SIGTERM"), (libc::SIGHUP, "SIGHUP")];

/// A signal that came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signal(pub i32);

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match TAKEN.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "signal {}", self.0),
        }
    }
}

/// Knows whether the command was asked to stop. Once it was, it stays so.
pub struct Interrupt {
    source: Box<dyn Fn() -> Option<Signal>>,
    seen: Cell<Option<Signal>>,
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interrupt").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl Interrupt {
    /// Takes the signals of this process. Call it before any thread is started: threads inherit the mask.
    pub fn take() -> io::Result<Self> {
        // A file that may grow no more is an error like any other, and no reason to end in the middle.
        // SAFETY: no handler is installed.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        let set = taken();
        // SAFETY: an initialised set; the old mask is not asked for.
        let blocked = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if blocked != 0 {
            return Err(io::Error::from_raw_os_error(blocked));
        }
        // SAFETY: an initialised set; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self::from_source(move || read_signal(&fd)))
    }

    /// Asks `source` each time.
    pub fn from_source(source: impl Fn() -> Option<Signal> + 'static) -> Self {
        Self { source: Box::new(source), seen: Cell::new(None) }
    }

    /// The signal that asked the command to stop, if one has.
    pub fn pending(&self) -> Option<Signal> {
        if self.seen.get().is_none() {
            self.seen.set((self.source)());
        }
        self.seen.get()
    }
}

/// Has a program begin with these signals as anybody would: what is blocked here stays so across an exec, and who does not
/// read it from a descriptor would never meet it.
pub(crate) fn left_to(command: &mut Command) {
    let set = taken();
    let unblock = move || {
        // SAFETY: an initialised set; the old mask is not asked for.
        match unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    };
    // SAFETY: between fork and exec it makes one system call, and allocates nothing.
    unsafe { command.pre_exec(unblock) };
}

/// The signals that are taken, as a set.
fn taken() -> libc::sigset_t {
    let mut set = empty_set();
    for (number, _) in TAKEN {
        // SAFETY: an initialised set and a valid number.
        unsafe { libc::sigaddset(&raw mut set, number) };
    }
    set
}

fn empty_set() -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: writes the whole set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: initialised by the line above.
    unsafe { set.assume_init() }
}

/// The next signal in this descriptor, if there is one.
pub(crate) fn read_signal(fd: &OwnedFd) -> Option<Signal> {
    let mut record = std::mem::MaybeUninit::<libc::signalfd_siginfo>::zeroed();
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: `record` has room for `size` bytes.
    let count = unsafe { libc::read(fd.as_raw_fd(), record.as_mut_ptr().cast(), size) };
    if usize::try_from(count) != Ok(size) {
        return None;
    }
    // SAFETY: zeroed first, then filled: a structure of plain numbers.
    let record = unsafe { record.assume_init() };
    i32::try_from(record.ssi_signo).ok().map(Signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_remembered() {
        let calls = std::rc::Rc::new(Cell::new(0));
        let counted = calls.clone();
        let interrupt = Interrupt::from_source(move || {
            counted.set(counted.get() + 1);
            (counted.get() == 2).then_some(Signal(libc::SIGTERM))
        });
        assert_eq!(interrupt.pending(), None);
        assert_eq!(interrupt.pending(), Some(Signal(libc::SIGTERM)));
        assert_eq!(interrupt.pending().map(|signal| signal.to_string()), Some("SIGTERM".into()));
        assert_eq!(calls.get(), 2, "the source is not asked again");
    }
}
