//! Starting a holder: a grandchild in a session of its own, that is nobody's child here.
//!
//! A command's parent may wait for any child of its (a shell, an init); it never meets the holder, since the process in
//! between is waited for by the command itself.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

/// The name that the command line has for it.
pub(crate) const VERB: &str = "hold";

/// Starts one, and returns the channel to it.
pub(super) fn start() -> io::Result<OwnedFd> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("nvsnap-gpu-suspend").arg(VERB);
    command.args([theirs.as_raw_fd().to_string(), own.as_raw_fd().to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
    let inherited = [theirs.as_raw_fd(), own.as_raw_fd()];
    // SAFETY: what runs between fork and exec are system calls only; this process has one thread.
    unsafe { command.pre_exec(move || become_orphan(inherited)) };
    let mut between = command.spawn()?;
    between.wait()?;
    Ok(ours)
}

/// Runs in the child: leaves a grandchild in a session of its own to go on, with these descriptors.
fn become_orphan(inherited: [i32; 2]) -> io::Result<()> {
    for fd in inherited {
        // SAFETY: open in this copy of the process until it runs another program.
        let fd: BorrowedFd<'_> = unsafe { BorrowedFd::borrow_raw(fd) };
        fcntl_setfd(fd.as_fd(), FdFlags::empty())?;
    }
    rustix::process::setsid()?;
    // SAFETY: a process with one thread; both sides make system calls only.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(()),
        // SAFETY: ends without running anything of the command's.
        _ => unsafe { libc::_exit(0) },
    }
}
