//! Tickets: what an exporter hands out in place of the driver's descriptor.
//!
//! A ticket is a sealed memfd that names an allocation, its exporter and a secret. The program holds a read-only
//! reopen of it. Our own description of the file is read-only as well: a write lease on it is granted exactly
//! while nobody else has the file open or mapped, in whatever process, so that tells whether the ticket is still
//! held. (A description that can write has no such lease.)
//!
//! Memory lives as long as its exporter or an importer does, not as long as the ticket: a file that holds no other
//! cannot carry the driver's descriptor along, and one that could (a socket with the descriptor in its queue) would keep the
//! memory on the GPU through a suspend, in whichever process has it, and could not be taken back by a dead exporter.
//!
//! What a ticket says is a claim of whoever made it. A program can make a memfd of this form: it then names an
//! allocation nobody knows, or lacks its secret, and leads nowhere.

use core::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use cuda_sys::{AllocFlags, AllocationProp, AllocationType, HandleType, LocationType, MemLocation};
use protocol::{AllocationId, Secret};
use shim_core::world::Multicast;

use crate::kept::Kept;

const MAGIC: [u8; 8] = *b"nvsnapT\0";
const VERSION: u32 = 2;
const LENGTH: usize = 100;
/// `fcntl.h` of Linux: which signal says that a lease is broken.
const F_SETSIG: c_int = 10;
const SEALS: c_int = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;

/// What a ticket says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    /// The allocation.
    pub(crate) id: AllocationId,
    /// What its exporter wants to hear.
    pub(crate) secret: Secret,
    /// Whom to ask first. The secret, not the pid, says whether it is the one.
    pub(crate) exporter: i32,
    /// Bytes.
    pub(crate) size: u64,
    /// How it was made. The device is the exporter's ordinal.
    pub(crate) prop: AllocationProp,
    /// What it was made with, if it is a multicast object.
    pub(crate) multicast: Option<Multicast>,
}

/// A ticket that this process has made, seen from the exporter.
#[derive(Debug)]
pub(crate) struct Ticket(Kept);

impl Ticket {
    /// Writes a new ticket.
    pub(crate) fn new(claim: &Claim) -> io::Result<Self> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: a C string.
        let writable = match unsafe { libc::memfd_create(c"nvsnap-ticket".as_ptr(), flags) } {
            -1 => return Err(io::Error::last_os_error()),
            // SAFETY: just made.
            fd => unsafe { OwnedFd::from_raw_fd(fd) },
        };
        let text = claim.encode();
        // SAFETY: the buffer's own bytes.
        let written = unsafe { libc::write(writable.as_raw_fd(), text.as_ptr().cast(), text.len()) };
        if usize::try_from(written) != Ok(text.len()) {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: no pointers.
        if unsafe { libc::fcntl(writable.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let kept = Kept::new(reopen(writable.as_raw_fd())?)?;
        if let Some(own) = kept.get() {
            // Whoever opens the file while we look breaks the lease, and the signal for that would end the process.
            // SAFETY: no pointers.
            unsafe { libc::fcntl(own.as_raw_fd(), F_SETSIG, libc::SIGURG) };
        }
        Ok(Self(kept))
    }

    /// A descriptor for the program: close-on-exec like the driver's.
    pub(crate) fn issue(&self) -> io::Result<OwnedFd> {
        match self.0.get() {
            Some(own) => reopen(own.as_raw_fd()),
            None => Err(io::Error::from_raw_os_error(libc::EBADF)),
        }
    }

    /// Whether anybody holds a descriptor or a mapping of it. Where that cannot be found out, somebody may.
    pub(crate) fn held(&self) -> bool {
        let Some(own) = self.0.get() else { return true };
        // SAFETY: no pointers.
        if unsafe { libc::fcntl(own.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) } != 0 {
            return true;
        }
        // SAFETY: no pointers.
        unsafe { libc::fcntl(own.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
        false
    }
}

/// What the descriptor says, if it is a ticket. Any number may be asked for.
pub(crate) fn read(fd: RawFd) -> Option<Claim> {
    if fd < 0 {
        return None;
    }
    // SAFETY: no pointers; what is no memfd, or not open, gives an error.
    let seals = unsafe { libc::fcntl(fd, libc::F_GET_SEALS) };
    // Sealed, so what is read stays true.
    if seals < 0 || seals & SEALS != SEALS {
        return None;
    }
    let mut text = [0_u8; LENGTH + 1];
    // SAFETY: the buffer's own bytes; the file's offset is left alone.
    let length = unsafe { libc::pread(fd, text.as_mut_ptr().cast(), text.len(), 0) };
    if usize::try_from(length) != Ok(LENGTH) {
        return None;
    }
    Claim::decode(text.first_chunk()?)
}

/// A new read-only description of an open file.
fn reopen(fd: RawFd) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{fd}\0");
    // SAFETY: ends with a NUL.
    match unsafe { libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: just opened.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

impl Claim {
    fn encode(&self) -> [u8; LENGTH] {
        let mut text = Writer { text: [0; LENGTH], at: 0 };
        let AllocationProp { kind, requested_handle_types, location, alloc_flags, .. } = self.prop;
        text.put(MAGIC);
        text.put(VERSION.to_le_bytes());
        text.put(self.exporter.to_le_bytes());
        text.put(self.id.0);
        text.put(self.secret.0);
        text.put(self.size.to_le_bytes());
        // No object is made for 0 devices.
        let none = Multicast { devices: 0, handle_types: 0, flags: 0 };
        let Multicast { devices, handle_types, flags } = self.multicast.unwrap_or(none);
        text.put(devices.to_le_bytes());
        text.put(handle_types.to_le_bytes());
        text.put(flags.to_le_bytes());
        text.put(kind.0.to_le_bytes());
        text.put(requested_handle_types.0.to_le_bytes());
        text.put(location.kind.0.to_le_bytes());
        text.put(location.id.to_le_bytes());
        text.put([alloc_flags.compression_type, alloc_flags.gpu_direct_rdma_capable]);
        text.put(alloc_flags.usage.to_le_bytes());
        text.put(alloc_flags.reserved);
        text.text
    }

    fn decode(text: &[u8; LENGTH]) -> Option<Self> {
        let mut text = Reader { text };
        if text.take()? != MAGIC || u32::from_le_bytes(text.take()?) != VERSION {
            return None;
        }
        Some(Self {
            exporter: i32::from_le_bytes(text.take()?),
            id: AllocationId(text.take()?),
            secret: Secret(text.take()?),
            size: u64::from_le_bytes(text.take()?),
            multicast: text.multicast()?,
            prop: AllocationProp {
                kind: AllocationType(u32::from_le_bytes(text.take()?)),
                requested_handle_types: HandleType(u32::from_le_bytes(text.take()?)),
                location: MemLocation {
                    kind: LocationType(u32::from_le_bytes(text.take()?)),
                    id: i32::from_le_bytes(text.take()?),
                },
                win32_handle_meta_data: core::ptr::null_mut(),
                alloc_flags: text.flags()?,
            },
        })
    }
}

struct Writer {
    text: [u8; LENGTH],
    at: usize,
}

impl Writer {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        for (to, from) in self.text.iter_mut().skip(self.at).zip(bytes) {
            *to = from;
        }
        self.at += N;
    }
}

struct Reader<'a> {
    text: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.text.split_first_chunk()?;
        self.text = rest;
        Some(*first)
    }

    fn multicast(&mut self) -> Option<Option<Multicast>> {
        let multicast = Multicast {
            devices: u32::from_le_bytes(self.take()?),
            handle_types: u64::from_le_bytes(self.take()?),
            flags: u64::from_le_bytes(self.take()?),
        };
        Some((multicast.devices != 0).then_some(multicast))
    }

    fn flags(&mut self) -> Option<AllocFlags> {
        let [compression_type, gpu_direct_rdma_capable] = self.take()?;
        let usage = u16::from_le_bytes(self.take()?);
        Some(AllocFlags { compression_type, gpu_direct_rdma_capable, usage, reserved: self.take()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn claim() -> Claim {
        Claim {
            id: AllocationId(*b"0123456789abcdef"),
            secret: Secret([9; 16]),
            exporter: 4321,
            size: 0x1234_5678_9abc,
            prop: AllocationProp {
                kind: AllocationType::PINNED,
                requested_handle_types: HandleType::POSIX_FD,
                location: MemLocation { kind: LocationType::HOST_NUMA, id: -3 },
                win32_handle_meta_data: core::ptr::null_mut(),
                alloc_flags: AllocFlags {
                    compression_type: 1,
                    gpu_direct_rdma_capable: 2,
                    usage: 0x304,
                    reserved: [5, 6, 7, 8],
                },
            },
            multicast: Some(Multicast { devices: 8, handle_types: 9, flags: 1 << 40 }),
        }
    }

    #[test]
    fn a_ticket_says_what_was_written() {
        let ticket = Ticket::new(&claim()).unwrap();
        let issued = ticket.issue().unwrap();
        let read = read(issued.as_raw_fd()).unwrap();
        assert_eq!(format!("{:?}", read), format!("{:?}", claim()));
        assert_eq!(read.secret, claim().secret);
    }

    #[test]
    fn a_ticket_fills_its_length() {
        assert_ne!(claim().encode()[LENGTH - 1], 0);
    }

    #[test]
    fn a_ticket_is_held_while_a_descriptor_or_a_mapping_of_it_is_open() {
        let ticket = Ticket::new(&claim()).unwrap();
        assert!(!ticket.held(), "nobody was given one");
        let first = ticket.issue().unwrap();
        assert!(ticket.held());
        let copy = first.as_fd().try_clone_to_owned().unwrap();
        drop(first);
        assert!(ticket.held());
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapping = unsafe {
            libc::mmap(core::ptr::null_mut(), LENGTH, libc::PROT_READ, libc::MAP_SHARED, copy.as_raw_fd(), 0)
        };
        assert_ne!(mapping, libc::MAP_FAILED);
        drop(copy);
        assert!(ticket.held());
        // SAFETY: the mapping just made.
        unsafe { libc::munmap(mapping, LENGTH) };
        assert!(!ticket.held());
        let again = ticket.issue().unwrap();
        assert!(ticket.held());
        drop(again);
    }

    #[test]
    fn an_issued_ticket_is_close_on_exec_and_cannot_be_changed() {
        let ticket = Ticket::new(&claim()).unwrap();
        let issued = ticket.issue().unwrap();
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::fcntl(issued.as_raw_fd(), libc::F_GETFD) }, libc::FD_CLOEXEC);
        // SAFETY: a byte of our own.
        assert_eq!(unsafe { libc::write(issued.as_raw_fd(), b"x".as_ptr().cast(), 1) }, -1);
        let path = format!("/proc/self/fd/{}", issued.as_raw_fd());
        if let Ok(writable) = std::fs::OpenOptions::new().write(true).open(path) {
            // SAFETY: a byte of our own.
            assert_eq!(unsafe { libc::write(writable.as_raw_fd(), b"x".as_ptr().cast(), 1) }, -1);
        }
    }

    /// A memfd with these bytes and seals.
    fn memfd(text: &[u8], seals: c_int) -> OwnedFd {
        // SAFETY: a C string.
        let fd =
            unsafe { libc::memfd_create(c"forged".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        // SAFETY: just made.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the slice's own bytes.
        let written = unsafe { libc::write(fd.as_raw_fd(), text.as_ptr().cast(), text.len()) };
        assert_eq!(usize::try_from(written), Ok(text.len()));
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) }, 0);
        fd
    }

    #[test]
    fn what_is_not_whole_sealed_and_of_our_version_is_no_ticket() {
        let good = claim().encode();
        assert!(read(memfd(&good, SEALS).as_raw_fd()).is_some());
        assert!(read(memfd(&good, SEALS & !libc::F_SEAL_WRITE).as_raw_fd()).is_none());
        assert!(read(memfd(&good[..LENGTH - 1], SEALS).as_raw_fd()).is_none());
        assert!(read(memfd(&[&good[..], b"x"].concat(), SEALS).as_raw_fd()).is_none());
        assert!(read(memfd(&[], SEALS).as_raw_fd()).is_none());
        for at in [0, 8] {
            let mut other = good;
            other[at] ^= 1;
            assert!(read(memfd(&other, SEALS).as_raw_fd()).is_none(), "byte {at}");
        }
        assert!(read(-1).is_none() && read(RawFd::MAX).is_none() && read(0).is_none());
    }
}
