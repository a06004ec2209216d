//! Descriptors on their way between workers: each listens on a socket named after it.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::OnceLock;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use super::words::Words;
use super::{Answer, Session, Trouble};

pub(super) fn obey(session: &Session, verb: &str, words: &mut Words<'_>) -> Option<Answer> {
    Some(match verb {
        "listen" => listener().map(|_| String::new()),
        "send" => send(session, words),
        "receive" => receive(session, words),
        "close" => close(session, words),
        "dup" => duplicate(session, words),
        "describe" => describe(session, words),
        _ => return None,
    })
}

/// The socket of the worker with this name.
fn path(name: &str) -> Result<PathBuf, String> {
    let folder = std::env::var_os("WORKER_SOCKETS").ok_or("WORKER_SOCKETS is not set")?;
    Ok(PathBuf::from(folder).join(format!("{name}.socket")))
}

fn listener() -> Result<&'static UnixListener, Trouble> {
    static LISTENER: OnceLock<UnixListener> = OnceLock::new();
    if let Some(listener) = LISTENER.get() {
        return Ok(listener);
    }
    let own = std::env::var("WORKER_NAME").map_err(|error| error.to_string())?;
    let listener = UnixListener::bind(path(&own)?)?;
    Ok(LISTENER.get_or_init(|| listener))
}

/// `send F WORKER`: a copy of the descriptor goes to the other worker, which has to listen.
fn send(session: &Session, words: &mut Words<'_>) -> Answer {
    let fd = session.objects.fds.get(words.word()?)?;
    let stream = UnixStream::connect(path(words.word()?)?)?;
    // SAFETY: a descriptor this program was given and has not closed.
    send_fd(&stream, &unsafe { BorrowedFd::borrow_raw(fd) })?;
    Ok(String::new())
}

/// `receive F`: waits for a descriptor.
fn receive(session: &Session, words: &mut Words<'_>) -> Answer {
    let name = words.word()?;
    let (stream, _) = listener()?.accept()?;
    session.objects.fds.put(name, receive_fd(&stream)?);
    Ok(String::new())
}

/// Sends a copy of a descriptor over a socket.
pub(crate) fn send_fd(socket: &impl AsFd, fd: &impl AsFd) -> std::io::Result<()> {
    let fds = [fd.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(socket, &[IoSlice::new(b"f")], &mut control, SendFlags::empty())?;
    Ok(())
}

/// Waits for a descriptor that comes over a socket.
pub(crate) fn receive_fd(socket: &impl AsFd) -> std::io::Result<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    fd.ok_or_else(|| std::io::Error::other("no descriptor came"))
}

/// `close F`
fn close(session: &Session, words: &mut Words<'_>) -> Answer {
    session.objects.fds.close(words.word()?)?;
    Ok(String::new())
}

/// `dup F G`: a second descriptor for the same file.
fn duplicate(session: &Session, words: &mut Words<'_>) -> Answer {
    let fd = session.objects.fds.get(words.word()?)?;
    // SAFETY: a descriptor this program was given and has not closed.
    let copy = rustix::io::fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(fd) }.as_fd(), 3)?;
    session.objects.fds.put(words.word()?, copy);
    Ok(String::new())
}

/// `describe F`: whether it is closed on exec.
fn describe(session: &Session, words: &mut Words<'_>) -> Answer {
    let fd = session.objects.fds.get(words.word()?)?;
    // SAFETY: a descriptor this program was given and has not closed.
    let flags = rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(fd) })?;
    let closed = flags.contains(rustix::io::FdFlags::CLOEXEC);
    Ok(if closed { "cloexec" } else { "inherited" }.to_owned())
}
