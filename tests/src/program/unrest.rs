//! What makes a process hard to hold still, or to leave alone: threads that come and go, a `vfork`, a probe, a
//! signal with a handler.

use std::io::Write;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use super::words::Words;
use super::{Answer, Session, Trouble};

static BORN: AtomicU64 = AtomicU64::new(0);
static TERMINATED: AtomicBool = AtomicBool::new(false);
/// The end of a pipe that the child of a `vfork` waits for.
static GATE: AtomicI32 = AtomicI32::new(-1);

pub(super) fn obey(_session: &Session, verb: &str, _words: &mut Words<'_>) -> Option<Answer> {
    Some(match verb {
        "unrest" => unrest(),
        "born" => Ok(BORN.load(Ordering::Acquire).to_string()),
        "vfork" => vfork(),
        "vfork-end" => vfork_end(),
        "probe" => probe(),
        "on-term" => on_term(),
        "private" => private(),
        "terminated" => Ok(TERMINATED.load(Ordering::Acquire).to_string()),
        _ => return None,
    })
}

/// `unrest`: from now on threads are born and end without pause; `born` counts them.
fn unrest() -> Answer {
    for _ in 0..2 {
        std::thread::spawn(|| {
            loop {
                let born = std::thread::spawn(|| BORN.fetch_add(1, Ordering::AcqRel));
                let _ = born.join();
            }
        });
    }
    Ok(String::new())
}

/// `vfork`: comes back when another thread has said `vfork-end`. Until then this thread cannot be stopped.
fn vfork() -> Answer {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    GATE.store(std::os::fd::IntoRawFd::into_raw_fd(write), Ordering::Release);
    let child = wait_in_vfork(&read)?;
    let mut status = 0;
    // SAFETY: a child of ours, and a place for its status.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    Ok(status.to_string())
}

/// As `vfork` does, but with a stack of its own for the child: it calls functions.
fn wait_in_vfork(read: &OwnedFd) -> Result<i32, Trouble> {
    extern "C" fn wait(fd: *mut libc::c_void) -> i32 {
        let mut byte = 0_u8;
        // SAFETY: a descriptor that its owner keeps open until this child has ended, and a byte.
        unsafe { libc::read(fd.addr().try_into().unwrap_or(-1), (&raw mut byte).cast(), 1) };
        0
    }
    let mut stack = vec![0_u128; 4096];
    let fd = std::ptr::without_provenance_mut(
        usize::try_from(read.as_raw_fd()).map_err(|error| error.to_string())?,
    );
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: a function that makes one system call, and a stack that lives until the child has ended: this thread waits
    // for that.
    let child = unsafe { libc::clone(wait, stack.as_mut_ptr_range().end.cast(), flags, fd) };
    if child > 0 { Ok(child) } else { Err(std::io::Error::last_os_error().into()) }
}

/// `vfork-end`
fn vfork_end() -> Answer {
    let fd = GATE.swap(-1, Ordering::AcqRel);
    // SAFETY: the descriptor that `vfork` has left to us; one byte to write.
    let written = unsafe { libc::write(fd, c"x".as_ptr().cast(), 1) };
    if written == 1 { Ok(String::new()) } else { Err(std::io::Error::last_os_error().into()) }
}

/// `probe`: a server that greets whoever connects; the answer is its port.
fn probe() -> Answer {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let mut connection = connection;
            // Whoever asked may be gone.
            let _ = connection.write_all(b"alive\n");
        }
    });
    Ok(port.to_string())
}

/// `on-term`: from now on SIGTERM is noted and nothing else; `terminated` tells whether one came.
fn on_term() -> Answer {
    extern "C" fn note(_signal: i32) {
        TERMINATED.store(true, Ordering::Release);
    }
    let handler: extern "C" fn(i32) = note;
    // SAFETY: the handler stores to an atomic, which is allowed anywhere.
    unsafe { libc::signal(libc::SIGTERM, handler as *const () as libc::sighandler_t) };
    Ok(String::new())
}

/// `private`: from now on only who may look at anybody's memory may look at that of this process.
fn private() -> Answer {
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(String::new())
}
