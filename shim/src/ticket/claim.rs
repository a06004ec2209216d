//! What a ticket says, as bytes.

use cuda_sys::{AllocFlags, AllocationProp, AllocationType, HandleType, LocationType, MemLocation};
use protocol::{AllocationId, Secret};
use shim_core::world::Multicast;

const MAGIC: [u8; 8] = *b"nvsnapT\0";
const VERSION: u32 = 3;
/// Bytes of a claim.
pub(super) const LENGTH: usize = 100;

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

impl Claim {
    pub(super) fn encode(&self) -> [u8; LENGTH] {
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

    pub(super) fn decode(text: &[u8; LENGTH]) -> Option<Self> {
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
pub(crate) mod tests {
    use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
    use std::os::unix::fs::MetadataExt;
    use std::time::{Duration, Instant};

    use super::*;

    /// A claim in which no field is zero.
    pub(crate) fn claim() -> Claim {
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

    /// Whether it comes true. What one closes is closed at once, but for whoever looks through `/proc` at that moment and has it open
    /// himself.
    pub(crate) fn soon(is: impl Fn() -> bool) -> bool {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !is() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        is()
    }

    /// A file that stands for memory.
    pub(crate) fn file() -> OwnedFd {
        // SAFETY: a C string.
        let fd = unsafe { libc::memfd_create(c"memory".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: just made.
        unsafe { OwnedFd::from_raw_fd(fd) }
    }

    /// Which file it is.
    pub(crate) fn inode(fd: impl AsFd) -> u64 {
        std::fs::metadata(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())).unwrap().ino()
    }

    #[test]
    fn a_claim_says_what_was_written() {
        let read = Claim::decode(&claim().encode()).unwrap();
        assert_eq!(format!("{read:?}"), format!("{:?}", claim()));
        assert_eq!(read.secret, claim().secret);
    }

    #[test]
    fn a_claim_fills_its_length() {
        assert_ne!(claim().encode()[LENGTH - 1], 0);
    }

    #[test]
    fn what_is_not_of_our_form_and_version_is_no_claim() {
        for at in [0, 8] {
            let mut other = claim().encode();
            other[at] ^= 1;
            assert!(Claim::decode(&other).is_none(), "byte {at}");
        }
    }
}
