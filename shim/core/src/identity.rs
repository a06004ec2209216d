//! Whether a descriptor's number still means the file that we opened.
//!
//! A program may close descriptors it never opened (a daemon closes everything) and get their numbers for files of its own. So
//! what we keep is known by device and inode as well.
//!
//! Where CRIU has restored the process, every number means what it meant, and pipes, sockets and files without a name have
//! new inodes. That such a restore has been is seen by the time at which the process started: it is another, under the same
//! pid. What has the number then is ours if it is of the same kind.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::RawFd;

use crate::control::socket;

/// What tells one open file from another that has its number.
#[derive(Debug)]
pub struct Identity {
    device: AtomicU64,
    inode: AtomicU64,
    /// When the process started that has looked last.
    start: AtomicU64,
    pid: i32,
    kind: Kind,
}

/// What stays the same over a restore.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Kind {
    /// `S_IFMT` of the mode.
    format: u32,
    /// `SO_TYPE` and `SO_ACCEPTCONN`, for a socket.
    socket: Option<(Option<i32>, Option<i32>)>,
}

impl Identity {
    /// What `fd` means now. `None` if it is not open, with the reason in `errno`.
    pub fn of(fd: RawFd) -> Option<Self> {
        let status = status(fd)?;
        Some(Self {
            device: AtomicU64::new(status.st_dev),
            inode: AtomicU64::new(status.st_ino),
            start: AtomicU64::new(life(pid())),
            pid: pid(),
            kind: Kind::of(fd, &status),
        })
    }

    /// Whether `fd` means that file, also in a process that was restored since. Not for forked children.
    pub fn means(&self, fd: RawFd) -> bool {
        self.means_in(fd, pid(), look_anew)
    }

    /// Device and inode.
    pub fn place(&self) -> (u64, u64) {
        (self.device.load(Ordering::Acquire), self.inode.load(Ordering::Acquire))
    }

    /// Whether `fd` is what has this device and inode. Allocates nothing and takes no lock.
    pub fn is_at(fd: RawFd, place: (u64, u64)) -> bool {
        status(fd).is_some_and(|status| (status.st_dev, status.st_ino) == place)
    }

    fn has(&self, status: &libc::stat) -> bool {
        (status.st_dev, status.st_ino) == self.place()
    }

    fn means_in(&self, fd: RawFd, pid: i32, start: impl Fn(i32) -> u64) -> bool {
        let Some(status) = status(fd) else { return false };
        if self.has(&status) {
            return true;
        }
        let start = start(pid);
        if start == self.start.load(Ordering::Acquire) {
            // Another thread may just have seen the restore.
            return self.has(&status);
        }
        if start == 0 || pid != self.pid || Kind::of(fd, &status) != self.kind {
            return false;
        }
        self.device.store(status.st_dev, Ordering::Release);
        self.inode.store(status.st_ino, Ordering::Release);
        self.start.store(start, Ordering::Release);
        true
    }
}

impl Kind {
    fn of(fd: RawFd, status: &libc::stat) -> Self {
        let format = status.st_mode & libc::S_IFMT;
        let is_socket = format == libc::S_IFSOCK;
        let socket =
            is_socket.then(|| (socket::option(fd, libc::SO_TYPE), socket::option(fd, libc::SO_ACCEPTCONN)));
        Self { format, socket }
    }
}

fn status(fd: RawFd) -> Option<libc::stat> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: any number may be asked about; the buffer is one `stat`.
    if unsafe { libc::fstat(fd, status.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so the structure is written.
    Some(unsafe { status.assume_init() })
}

fn pid() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::getpid() }
}

/// The pid in the lower bits, and above it when that process started, as far as it was looked up: a forked child has another pid.
static LIFE: AtomicU64 = AtomicU64::new(0);
const PID_BITS: u32 = 22;

/// When this process started, as it was when somebody looked last.
fn life(pid: i32) -> u64 {
    let known = LIFE.load(Ordering::Acquire);
    if known & ((1 << PID_BITS) - 1) == u64::from(pid.unsigned_abs()) {
        known >> PID_BITS
    } else {
        look_anew(pid)
    }
}

/// When this process started.
fn look_anew(pid: i32) -> u64 {
    let start = start_time();
    LIFE.store(start << PID_BITS | u64::from(pid.unsigned_abs()), Ordering::Release);
    start
}

/// When this process started, in ticks since boot; 0 where that cannot be read. Allocates nothing.
fn start_time() -> u64 {
    // SAFETY: a C string.
    let fd = unsafe { libc::open(c"/proc/self/stat".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        return 0;
    }
    let mut text = [0_u8; 1024];
    // SAFETY: the buffer's own bytes.
    let read = unsafe { libc::read(fd, text.as_mut_ptr().cast(), text.len()) };
    // SAFETY: opened above.
    unsafe { libc::close(fd) };
    usize::try_from(read).ok().and_then(|count| text.get(..count)).and_then(started).unwrap_or(0)
}

/// The 22nd field of `/proc/PID/stat`. The second, a name in parentheses, may contain anything.
fn started(stat: &[u8]) -> Option<u64> {
    let name = stat.iter().rposition(|byte| *byte == b')')?;
    // Behind the name and a space comes the third.
    let field = stat.get(name + 2..)?.split(|byte| *byte == b' ').nth(22 - 3)?;
    core::str::from_utf8(field).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    /// Gives `fd` the file of `other`, as a restore or the program does.
    fn replace(fd: &OwnedFd, other: impl AsRawFd) {
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), fd.as_raw_fd()) }, fd.as_raw_fd());
    }

    fn end() -> OwnedFd {
        UnixStream::pair().unwrap().0.into()
    }

    #[test]
    fn a_number_that_came_to_mean_another_file_is_not_ours() {
        let ours = end();
        let identity = Identity::of(ours.as_raw_fd()).unwrap();
        assert!(identity.means(ours.as_raw_fd()) && Identity::is_at(ours.as_raw_fd(), identity.place()));
        replace(&ours, end());
        assert!(!identity.means(ours.as_raw_fd()) && !Identity::is_at(ours.as_raw_fd(), identity.place()));
        assert!(Identity::of(-1).is_none() && !identity.means(-1));
    }

    #[test]
    fn what_a_restored_process_has_under_the_number_is_ours_if_it_is_of_the_same_kind() {
        let ours = end();
        let fd = ours.as_raw_fd();
        let identity = Identity::of(fd).unwrap();
        let later = |_| start_time() + 1;
        replace(&ours, std::fs::File::open("/dev/null").unwrap());
        assert!(!identity.means_in(fd, pid(), later), "a file");
        replace(&ours, UnixListener::bind_addr(&listening()).unwrap());
        assert!(!identity.means_in(fd, pid(), later), "a socket that listens");
        replace(&ours, std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        assert!(!identity.means_in(fd, pid(), later), "datagrams");
        replace(&ours, end());
        assert!(!identity.means_in(fd, pid() + 1, later), "a child of it");
        assert!(!identity.means_in(fd, pid(), |_| 0), "nobody knows");
        assert!(!identity.means(fd), "it was not restored");
        assert!(identity.means_in(fd, pid(), later));
        assert!(Identity::is_at(fd, identity.place()));
        replace(&ours, end());
        assert!(!identity.means_in(fd, pid(), later), "it was not restored again");
    }

    fn listening() -> std::os::unix::net::SocketAddr {
        use std::os::linux::net::SocketAddrExt;
        let name = format!("nvsnap-identity-test-{}", pid());
        std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap()
    }

    #[test]
    fn the_start_is_found_behind_any_name() {
        let stat = b"42 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20";
        assert_eq!(started(stat), Some(777));
        assert_eq!(started(b"42 (a) S 1 2"), None);
        assert_eq!(started(b""), None);
        assert!(start_time() > 0);
    }
}
