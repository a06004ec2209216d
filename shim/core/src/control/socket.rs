//! Abstract stream sockets: the few calls that the server and its clients need.

use core::ffi::{c_char, c_int};
use core::mem::{MaybeUninit, size_of};
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use protocol::Credentials;

/// The C library's length of a structure of ours.
fn length_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0)
}

/// Listens on an abstract name, close-on-exec and not blocking.
pub fn listen(name: &str) -> io::Result<UnixListener> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Takes a client that has connected, close-on-exec and not blocking. `WouldBlock` when there is none.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let none = core::ptr::null_mut();
    // SAFETY: an open descriptor; null address and length ask for no address.
    let fd = unsafe { libc::accept4(listener.as_raw_fd(), none, none.cast(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `accept4` just made it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Two sockets that are connected to each other and keep messages apart, close-on-exec.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut pair = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: room for two numbers.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let [one, other] = pair;
    // SAFETY: `socketpair` just made it.
    let one = unsafe { OwnedFd::from_raw_fd(one) };
    // SAFETY: and this one.
    let other = unsafe { OwnedFd::from_raw_fd(other) };
    Ok((one, other))
}

/// An option of a socket (`SOL_SOCKET`). `None` for what is none; any number may be asked about.
pub fn option(fd: RawFd, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let (mut length, at) = (length_of::<c_int>(), (&raw mut value).cast());
    // SAFETY: writes at most the four bytes of `value`.
    let result = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, at, &raw mut length) };
    (result == 0).then_some(value)
}

/// Whether the other end is closed altogether; one that has only ended its writing still wants its answer.
pub fn has_hung_up(socket: BorrowedFd<'_>) -> bool {
    let mut entry = libc::pollfd { fd: socket.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one entry, which lives through the call.
    let ready = unsafe { libc::poll(&raw mut entry, 1, 0) };
    ready > 0 && entry.revents & (libc::POLLHUP | libc::POLLERR) != 0
}

/// Connects to an abstract name, close-on-exec and then not blocking. Waits at most `wait` for a server whose queue
/// is full (`WouldBlock`); `ConnectionRefused` when nobody listens in this network namespace.
pub fn connect(name: &str, wait: Duration) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `socket` just made it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    set_connect_timeout(socket.as_fd(), wait)?;
    let (address, length) = abstract_address(name)?;
    // SAFETY: the address is as long as said, or longer.
    let result = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: an open descriptor; the flags take no pointer.
    let result = unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    if result == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}

fn abstract_address(name: &str) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    let family = libc::sa_family_t::try_from(libc::AF_UNIX).map_err(io::Error::other)?;
    let mut address = libc::sockaddr_un { sun_family: family, sun_path: [0; 108] };
    let path = address.sun_path.get_mut(1..=name.len()).ok_or(io::ErrorKind::InvalidFilename)?;
    path.iter_mut().zip(name.bytes()).for_each(|(place, byte)| *place = c_char::from_ne_bytes([byte]));
    let head = core::mem::offset_of!(libc::sockaddr_un, sun_path) + 1;
    let length = libc::socklen_t::try_from(head + name.len()).map_err(io::Error::other)?;
    Ok((address, length))
}

fn set_connect_timeout(socket: BorrowedFd<'_>, wait: Duration) -> io::Result<()> {
    // Zero would mean for ever.
    let wait = wait.max(Duration::from_millis(1));
    let time = libc::timeval {
        tv_sec: libc::time_t::try_from(wait.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_usec: libc::suseconds_t::from(wait.subsec_micros()),
    };
    let (fd, length) = (socket.as_raw_fd(), length_of::<libc::timeval>());
    // SAFETY: the option takes a `timeval`, of the length given.
    let result = unsafe {
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, (&raw const time).cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Who is at the other end: for a server the client when it connected, for a client the server when it began to
/// listen.
pub fn credentials(socket: BorrowedFd<'_>) -> io::Result<Credentials> {
    let mut peer = MaybeUninit::<libc::ucred>::uninit();
    let mut length = length_of::<libc::ucred>();
    let (fd, option) = (socket.as_raw_fd(), libc::SO_PEERCRED);
    // SAFETY: writes at most `length` bytes, the size of the structure.
    let result =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, option, peer.as_mut_ptr().cast(), &raw mut length) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so the structure is written.
    let peer = unsafe { peer.assume_init() };
    Ok(Credentials { pid: peer.pid, uid: peer.uid })
}

/// Room for one descriptor in an ancillary message, aligned as its header has to be.
#[repr(C)]
union Ancillary {
    align: libc::cmsghdr,
    bytes: [u8; 64],
}

/// Bytes of a header with one descriptor, without the padding behind it: the kernel fills the padding with a
/// second descriptor where it has one.
// SAFETY: arithmetic only.
const ONE_DESCRIPTOR: usize = unsafe { libc::CMSG_LEN(4) } as usize;

const _: () = assert!(ONE_DESCRIPTOR <= size_of::<Ancillary>());

/// Writes bytes, with a descriptor beside the first of them. Raises no signal when the other end is gone.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<usize> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut ancillary = Ancillary { bytes: [0; 64] };
    let mut message = empty_message(&mut part);
    if let Some(descriptor) = descriptor {
        message.msg_control = (&raw mut ancillary).cast();
        message.msg_controllen = ONE_DESCRIPTOR;
        // SAFETY: `msg_control` has room for one header and its data.
        let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        let content = libc::cmsghdr {
            cmsg_len: ONE_DESCRIPTOR,
            cmsg_level: libc::SOL_SOCKET,
            cmsg_type: libc::SCM_RIGHTS,
        };
        // SAFETY: within `ancillary`, aligned by the union.
        unsafe { header.write(content) };
        // SAFETY: the data follow their header inside `ancillary`.
        let data = unsafe { libc::CMSG_DATA(header) };
        // SAFETY: four bytes of room, at any alignment.
        unsafe { data.cast::<i32>().write_unaligned(descriptor.as_raw_fd()) };
    }
    // SAFETY: every pointer in the message is to something that lives until the call returns.
    let count = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Reads bytes. 0 is the end of the stream.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: writes at most the buffer's length into it. Descriptors sent along are dropped by the kernel.
    let count = unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Throws away all messages that wait, and the descriptors beside them.
pub fn discard(socket: BorrowedFd<'_>) {
    let mut byte = [0_u8; 1];
    loop {
        let (fd, at) = (socket.as_raw_fd(), byte.as_mut_ptr().cast());
        // SAFETY: one byte of room. The rest of a message is dropped, and so are descriptors for which there is no room.
        let count = unsafe { libc::recv(fd, at, byte.len(), libc::MSG_DONTWAIT) };
        let interrupted = count < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        if count <= 0 && !interrupted {
            return;
        }
    }
}

/// Reads bytes, and the descriptor beside them if there is one.
pub fn receive_with_descriptor(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<(usize, Option<OwnedFd>)> {
    receive_message(socket, buffer, 0)
}

/// The next message, and a copy of the descriptor beside it: both stay in the queue. `WouldBlock` where there is none.
pub fn peek_with_descriptor(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<(usize, Option<OwnedFd>)> {
    receive_message(socket, buffer, libc::MSG_PEEK | libc::MSG_DONTWAIT)
}

fn receive_message(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: c_int,
) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut ancillary = Ancillary { bytes: [0; 64] };
    let mut message = empty_message(&mut part);
    message.msg_control = (&raw mut ancillary).cast();
    // Room for one: what else is sent along, the kernel drops.
    message.msg_controllen = ONE_DESCRIPTOR;
    let flags = flags | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: every pointer in the message is to something that lives until the call returns.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    Ok((count, descriptor_in(&message)))
}

fn empty_message(part: &mut libc::iovec) -> libc::msghdr {
    libc::msghdr {
        msg_name: core::ptr::null_mut(),
        msg_namelen: 0,
        msg_iov: part,
        msg_iovlen: 1,
        msg_control: core::ptr::null_mut(),
        msg_controllen: 0,
        msg_flags: 0,
    }
}

/// The descriptor that the kernel put beside a message just received.
fn descriptor_in(message: &libc::msghdr) -> Option<OwnedFd> {
    // SAFETY: a message that `recvmsg` filled; null when there is no header in it.
    let header = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: null or a whole header.
    let content = unsafe { header.as_ref() }?;
    let holds_one = content.cmsg_level == libc::SOL_SOCKET
        && content.cmsg_type == libc::SCM_RIGHTS
        && content.cmsg_len == ONE_DESCRIPTOR;
    if !holds_one {
        return None;
    }
    // SAFETY: the data follow their header, which is whole.
    let data = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: four bytes, as the length says, at any alignment.
    let number = unsafe { data.cast::<i32>().read_unaligned() };
    // SAFETY: the kernel just installed it for us.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}
