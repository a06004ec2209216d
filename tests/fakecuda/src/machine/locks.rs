//! Locks on single bytes of a file, by which the kernel tells who is still there.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

fn request(kind: libc::c_int, byte: usize) -> libc::flock {
    libc::flock {
        l_type: libc::c_short::try_from(kind).unwrap_or(libc::c_short::MAX),
        l_whence: 0,
        l_start: libc::off_t::try_from(byte).unwrap_or(libc::off_t::MAX),
        l_len: 1,
        l_pid: 0,
    }
}

fn control(file: BorrowedFd<'_>, command: libc::c_int, request: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the commands of this module take a pointer to a `flock`.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(request)) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Locks the byte for this process, until it ends. Tells whether that was possible.
pub(crate) fn hold_for_process(file: BorrowedFd<'_>, byte: usize) -> bool {
    control(file, libc::F_SETLK, &mut request(libc::F_WRLCK, byte)).is_ok()
}

/// Whether another process holds the byte by [`hold_for_process`].
pub(crate) fn held_by_other_process(file: BorrowedFd<'_>, byte: usize) -> bool {
    let mut request = request(libc::F_WRLCK, byte);
    control(file, libc::F_GETLK, &mut request).is_ok() && i32::from(request.l_type) != libc::F_UNLCK
}

/// Locks the byte for this open description, alone. Tells whether that was possible.
pub(crate) fn hold_alone(file: &File, byte: usize) -> bool {
    control(std::os::fd::AsFd::as_fd(file), libc::F_OFD_SETLK, &mut request(libc::F_WRLCK, byte)).is_ok()
}

/// Locks the byte for this open description, beside others.
pub(crate) fn hold_beside_others(file: &File, byte: usize) -> bool {
    control(std::os::fd::AsFd::as_fd(file), libc::F_OFD_SETLK, &mut request(libc::F_RDLCK, byte)).is_ok()
}

/// Whether an open description other than `file` holds the byte.
pub(crate) fn held_by_other_description(file: BorrowedFd<'_>, byte: usize) -> bool {
    let mut request = request(libc::F_WRLCK, byte);
    control(file, libc::F_OFD_GETLK, &mut request).is_ok() && i32::from(request.l_type) != libc::F_UNLCK
}
