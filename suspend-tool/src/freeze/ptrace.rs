//! The four requests of ptrace that are used, and the wait for what they bring.
//!
//! Through libc: typed wrappers lose the status of a thread that stops by a real-time signal, which has no name.
//! A thread is traced by the thread that seized it, so all of this is done by the one thread of the holder.

use std::io;
use std::ptr;

/// What a traced thread, or a child, has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// It has stopped as it was asked to, or with its process by job control.
    Stopped,
    /// It has stopped because a signal is about to be delivered to it.
    Signal(i32),
    /// It is no more.
    Ended(i32),
}

fn request(request: libc::c_uint, tid: i32, data: i32) -> io::Result<()> {
    let data = ptr::without_provenance_mut::<libc::c_void>(data.unsigned_abs() as usize);
    // SAFETY: none of the requests of this module reads or writes memory; the last argument is a number.
    let answer = unsafe { libc::ptrace(request, tid, ptr::null_mut::<libc::c_void>(), data) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Begins to trace a thread. It goes on.
pub(super) fn seize(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, tid, 0)
}

/// Asks a traced thread to stop. It is told by a [`Change::Stopped`].
pub(super) fn interrupt(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0)
}

/// Lets a stopped thread go on, with a signal or 0, still traced.
pub(super) fn go_on(tid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, signal)
}

/// Lets a stopped thread go, with a signal or 0. One whose process is stopped by job control stays stopped.
pub(super) fn let_go(tid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, signal)
}

/// The next change of anything that is traced, or of a child, if there is one.
pub(super) fn next_change() -> Option<(i32, Change)> {
    let mut status = 0;
    // SAFETY: a place for the status.
    let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::__WALL) };
    // Negative: there is nobody to wait for.
    (tid > 0).then(|| (tid, change(status)))
}

fn change(status: i32) -> Change {
    if !libc::WIFSTOPPED(status) {
        return Change::Ended(status);
    }
    // A stop of a seized thread has the event in the third byte; a signal that is about to be delivered has none.
    if status >> 16 == libc::PTRACE_EVENT_STOP {
        Change::Stopped
    } else {
        Change::Signal(libc::WSTOPSIG(status))
    }
}
