//! What the caller and the process say to each other: one request and one answer on a connection.
//!
//! Nothing is allocated on either side, since a restore may run while threads of the process are stopped with locks in hand.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use cuda_sys::{CheckpointGpuPair, Uuid};
use rustix::fs::{Mode, OFlags};
use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen,
    recv, send, socket_with,
};

use crate::config::MAX_DEVICES;

/// What is asked of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verb {
    Lock,
    Checkpoint,
    Restore,
    Unlock,
}

/// Pairs of an old and a new GPU, as many as `count` says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pairs {
    pub(super) pairs: [CheckpointGpuPair; MAX_DEVICES],
    pub(super) count: usize,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) verb: Verb,
    pub(super) timeout_ms: u32,
    pub(super) pairs: Pairs,
}

const HEAD: usize = 12;
const PAIR: usize = 32;
const LONGEST: usize = HEAD + MAX_DEVICES * PAIR;

impl Request {
    fn write(&self, bytes: &mut [u8; LONGEST]) {
        let verb = match self.verb {
            Verb::Lock => 0_u32,
            Verb::Checkpoint => 1,
            Verb::Restore => 2,
            Verb::Unlock => 3,
        };
        let count = u32::try_from(self.pairs.count).unwrap_or(0);
        let (head, pairs) = bytes.split_at_mut(HEAD);
        for (place, word) in head.chunks_exact_mut(4).zip([verb, self.timeout_ms, count]) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        for (place, pair) in pairs.chunks_exact_mut(PAIR).zip(&self.pairs.pairs) {
            let (old, new) = place.split_at_mut(PAIR / 2);
            old.copy_from_slice(&pair.old.bytes);
            new.copy_from_slice(&pair.new.bytes);
        }
    }

    fn read(bytes: &[u8; LONGEST]) -> Option<Self> {
        let (head, rest) = bytes.split_at(HEAD);
        let mut words = head.chunks_exact(4).map(|word| word.try_into().map_or(0, u32::from_ne_bytes));
        let verb = match words.next()? {
            0 => Verb::Lock,
            1 => Verb::Checkpoint,
            2 => Verb::Restore,
            3 => Verb::Unlock,
            _ => return None,
        };
        let timeout_ms = words.next()?;
        let count = usize::try_from(words.next()?).ok().filter(|&count| count <= MAX_DEVICES)?;
        let mut pairs = Pairs { count, ..Pairs::default() };
        for (pair, bytes) in pairs.pairs.iter_mut().zip(rest.chunks_exact(PAIR)) {
            let (old, new) = bytes.split_at(PAIR / 2);
            pair.old = Uuid { bytes: old.try_into().ok()? };
            pair.new = Uuid { bytes: new.try_into().ok()? };
        }
        Some(Self { verb, timeout_ms, pairs })
    }
}

/// The address of a process's socket. Paths of sockets are short: one that is too long goes through a descriptor of the directory,
/// under which CRIU does not find it again.
fn address(dir: &Path, slot: usize) -> io::Result<(OwnedFd, SocketAddrUnix)> {
    let whole = SocketAddrUnix::new(dir.join(format!("{slot}.socket")));
    let dir = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    if let Ok(whole) = whole {
        return Ok((dir, whole));
    }
    let path = format!("/proc/self/fd/{}/{slot}.socket", std::os::fd::AsRawFd::as_raw_fd(&dir));
    Ok((dir, SocketAddrUnix::new(path)?))
}

fn socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// The socket on which this process is asked. Its slot is ours, so whatever lies there is left from a dead process.
pub(super) fn serve(dir: &Path, slot: usize) -> io::Result<OwnedFd> {
    let (dir, address) = address(dir, slot)?;
    match rustix::fs::unlinkat(&dir, format!("{slot}.socket"), rustix::fs::AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let socket = socket()?;
    bind(&socket, &address)?;
    listen(&socket, 16)?;
    Ok(socket)
}

/// Asks a process and waits for its answer.
pub(super) fn ask(dir: &Path, slot: usize, request: &Request) -> io::Result<u32> {
    let (_dir, address) = address(dir, slot)?;
    let socket = socket()?;
    connect(&socket, &address)?;
    let mut bytes = [0; LONGEST];
    request.write(&mut bytes);
    send(&socket, &bytes, SendFlags::NOSIGNAL)?;
    let mut answer = [0; 4];
    let (received, _) = retry_on_intr(|| recv(&socket, &mut answer, RecvFlags::empty()))?;
    if received == answer.len() {
        Ok(u32::from_ne_bytes(answer))
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// Reads the request of a connection.
pub(super) fn hear(connection: &impl AsFd) -> Option<Request> {
    let mut bytes = [0; LONGEST];
    let (received, _) = retry_on_intr(|| recv(connection, &mut bytes, RecvFlags::empty())).ok()?;
    if received == LONGEST { Request::read(&bytes) } else { None }
}

/// Answers a connection. Whoever asked may be gone.
pub(super) fn answer(connection: &impl AsFd, result: u32) {
    let _ = send(connection, &result.to_ne_bytes(), SendFlags::NOSIGNAL);
}

/// Whether whoever asked is gone.
pub(super) fn is_gone(connection: &impl AsFd) -> bool {
    let mut byte = [0; 1];
    matches!(recv(connection, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT), Ok((0, _)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_the_way() {
        let mut pairs = Pairs { count: 2, ..Pairs::default() };
        pairs.pairs[1].new = Uuid { bytes: [7; 16] };
        let request = Request { verb: Verb::Restore, timeout_ms: 5, pairs };
        let mut bytes = [0; LONGEST];
        request.write(&mut bytes);
        let read = Request::read(&bytes).unwrap();
        assert_eq!((read.verb, read.timeout_ms, read.pairs.count), (Verb::Restore, 5, 2));
        assert_eq!(read.pairs.pairs, pairs.pairs);
        bytes[8] = 17;
        assert!(Request::read(&bytes).is_none(), "more pairs than devices");
    }
}
