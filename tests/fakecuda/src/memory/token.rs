//! The descriptor that `cuMemExportToShareableHandle` hands out.
//!
//! It is one end of a socket pair whose other end is closed, with one message in its queue: which memory this is, its
//! file, and the description that keeps its share alive. An importer peeks at the message, so the descriptor can be
//! imported any number of times, by whoever holds it; the last close of it, in whatever process, drops what the message carries. As with
//! the real one (docs/DRIVER-VERSIONS.md, handles), inode and device number say nothing about the allocation, `lseek` is ESPIPE, and the
//! memory lives as long as the descriptor.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cuda_sys::{CuError, CuResult};
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Words of a message.
pub(super) const WORDS: usize = 12;

/// What a message says; the first word tells which kind of token it is.
pub(super) type Words = [u64; WORDS];

fn failed(_error: rustix::io::Errno) -> CuError {
    CuError::OPERATING_SYSTEM
}

/// A descriptor that carries this message and these descriptors.
pub(super) fn make(words: &Words, carried: &[BorrowedFd<'_>]) -> CuResult<OwnedFd> {
    let (kept, sender) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).map_err(failed)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(carried)) {
        return Err(CuError::OPERATING_SYSTEM);
    }
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    sendmsg(&sender, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL).map_err(failed)?;
    Ok(kept)
}

/// Reads a token of this kind. Whatever else the descriptor is, it is INVALID_VALUE, and untouched.
pub(super) fn read(token: BorrowedFd<'_>, kind: u64) -> CuResult<(Words, [OwnedFd; 2])> {
    let mut bytes = [0; WORDS * 8 + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = recvmsg(token.as_fd(), &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)
        .map_err(|_| CuError::INVALID_VALUE)?;
    let mut carried = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
        _ => Vec::new(),
    });
    let (Some(file), Some(lock), None) = (carried.next(), carried.next(), carried.next()) else {
        return Err(CuError::INVALID_VALUE);
    };
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.try_into().map_or(0, u64::from_ne_bytes);
    }
    let [first, ..] = words;
    if message.bytes != WORDS * 8 || first != kind {
        return Err(CuError::INVALID_VALUE);
    }
    Ok((words, [file, lock]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_can_be_read_again_and_again_and_nothing_else_is_one() {
        let file = rustix::fs::memfd_create("token", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let token = make(&[7; WORDS], &[file.as_fd(), file.as_fd()]).unwrap();
        for _ in 0..3 {
            assert_eq!(read(token.as_fd(), 7).unwrap().0, [7; WORDS]);
        }
        assert_eq!(read(token.as_fd(), 8).unwrap_err(), CuError::INVALID_VALUE);
        assert_eq!(read(file.as_fd(), 7).unwrap_err(), CuError::INVALID_VALUE);
        assert_eq!(rustix::fs::seek(&token, rustix::fs::SeekFrom::Current(0)), Err(rustix::io::Errno::SPIPE));
    }
}
