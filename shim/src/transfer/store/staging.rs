//! Host memory in which chunks wait between device and disk.
//!
//! A buffer holds a whole chunk: what is hashed and written is what the device has copied there, and no byte is
//! copied twice. It is registered with the driver as long as the transfer lasts and not longer: a checkpoint takes
//! 25 ms more per GiB that is (580.159.04).

use chunkstore::AlignedBuf;
use cuda_sys::{Device, DevicePtr, Stream};

use crate::driver::real;
use crate::transfer::TransferError;
use crate::transfer::context::Current;

/// `CU_MEMHOSTREGISTER_PORTABLE`: for the contexts of all devices.
const PORTABLE: u32 = 1;
/// `CU_STREAM_NON_BLOCKING`
const NON_BLOCKING: u32 = 1;

/// Memory for one chunk, and the stream of its copies.
#[derive(Debug)]
pub(super) struct Staging {
    pub(super) memory: AlignedBuf,
    pinned: bool,
    /// Of the device that the memory is used with at the moment.
    stream: Option<Stream>,
}

impl Staging {
    fn new(len: usize) -> Result<Self, TransferError> {
        let memory = AlignedBuf::new(len).map_err(|error| TransferError::System {
            call: "mmap",
            errno: error.raw_os_error().unwrap_or(libc::ENOMEM),
        })?;
        // A device goes on writing to the pages that it knows: a child must not make others of them.
        // SAFETY: the mapping just made, whose content is not touched.
        unsafe { libc::madvise(memory.as_ptr().cast_mut().cast(), memory.len(), libc::MADV_DONTFORK) };
        Ok(Self { memory, pinned: false, stream: None })
    }

    /// Makes it ready for copies of the device whose context is current. What cannot be registered is copied more
    /// slowly, and without a stream of its own the default one does: a card with no byte free may give neither.
    fn attach(&mut self) -> Stream {
        if !self.pinned {
            let start = self.memory.as_mut_ptr();
            // SAFETY: mapped memory of this length, registered until it is dropped.
            let pinned = unsafe { real::cuMemHostRegister_v2(start.cast(), self.memory.len(), PORTABLE) };
            if let Err(error) = pinned {
                log!("cuMemHostRegister: {error}; copies are slower without");
            }
            self.pinned = pinned.is_ok();
        }
        *self.stream.get_or_insert_with(|| {
            let mut stream = Stream::NULL;
            // SAFETY: `stream` is writable.
            match unsafe { real::cuStreamCreate(&raw mut stream, NON_BLOCKING) } {
                Ok(()) => stream,
                Err(error) => {
                    log!("cuStreamCreate: {error}; the default stream does");
                    Stream::NULL
                }
            }
        })
    }

    /// Waits until its copies are done.
    pub(super) fn wait(&self) -> Result<(), TransferError> {
        let Some(stream) = self.stream else { return Ok(()) };
        // SAFETY: our own stream, or the default one.
        unsafe { real::cuStreamSynchronize(stream) }.map_err(TransferError::driver("cuStreamSynchronize"))
    }

    /// Gives the stream back, while its context is current. No copy is under way.
    pub(super) fn detach(&mut self) {
        let Some(stream) = self.stream.take().filter(|stream| !stream.is_null()) else { return };
        // SAFETY: our own stream, not used any more.
        if let Err(error) = unsafe { real::cuStreamDestroy_v2(stream) } {
            log!("cuStreamDestroy: {error}");
        }
    }

    /// Starts a copy from a device to `offset`.
    pub(super) fn copy_from(&mut self, from: u64, offset: usize, len: usize) -> Result<(), TransferError> {
        let stream = self.attach();
        let to = self.part(offset, len)?.as_mut_ptr();
        // SAFETY: `len` bytes of the buffer, which nobody touches before `wait`, and of the caller's memory.
        unsafe { real::cuMemcpyDtoHAsync_v2(to.cast(), DevicePtr(from), len, stream) }
            .map_err(TransferError::driver("cuMemcpyDtoHAsync_v2"))
    }

    /// Starts a copy of the bytes at `offset` to a device.
    pub(super) fn copy_to(&mut self, to: u64, offset: usize, len: usize) -> Result<(), TransferError> {
        let stream = self.attach();
        let from = self.part(offset, len)?.as_ptr();
        // SAFETY: as above, in the other direction.
        unsafe { real::cuMemcpyHtoDAsync_v2(DevicePtr(to), from.cast(), len, stream) }
            .map_err(TransferError::driver("cuMemcpyHtoDAsync_v2"))
    }

    /// Starts to fill memory of a device with zeros.
    pub(super) fn zero(&mut self, at: u64, len: usize) -> Result<(), TransferError> {
        let stream = self.attach();
        // SAFETY: the caller's memory.
        unsafe { real::cuMemsetD8Async(DevicePtr(at), 0, len, stream) }
            .map_err(TransferError::driver("cuMemsetD8Async"))
    }

    /// Some of its bytes.
    pub(super) fn part(&mut self, offset: usize, len: usize) -> Result<&mut [u8], TransferError> {
        let end = offset.saturating_add(len);
        let outside = TransferError::System { call: "a staging buffer", errno: libc::EFAULT };
        self.memory.get_mut(offset..end).ok_or(outside)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // A copy that still writes to the memory must not outlive it.
        if let Err(error) = self.wait() {
            log!("a staging buffer: {error}");
        }
        self.detach();
        if self.pinned {
            let start = self.memory.as_mut_ptr();
            // SAFETY: registered by `attach`.
            if let Err(error) = unsafe { real::cuMemHostUnregister(start.cast()) } {
                log!("cuMemHostUnregister: {error}");
            }
        }
    }
}

/// The buffers of one transfer, and the device that they are used with.
#[derive(Debug)]
pub(super) struct Bench {
    /// Before the context: a buffer is given back while it is current.
    pub(super) idle: Vec<Staging>,
    current: Option<(Device, Current)>,
    made: usize,
    most: usize,
    len: usize,
}

impl Bench {
    /// At most `most` buffers of `len` bytes, made when they are needed.
    pub(super) fn new(most: usize, len: usize) -> Self {
        Self { idle: Vec::new(), current: None, made: 0, most: most.max(1), len }
    }

    /// How many copies may be under way while the crew works on the other buffers.
    pub(super) fn may_fly(&self) -> usize {
        (self.most / 2).max(1)
    }

    /// A buffer that nobody uses, if there is one or one can be made.
    pub(super) fn take(&mut self) -> Result<Option<Staging>, TransferError> {
        if let Some(idle) = self.idle.pop() {
            return Ok(Some(idle));
        }
        if self.made >= self.most {
            return Ok(None);
        }
        match Staging::new(self.len) {
            Ok(new) => {
                self.made += 1;
                Ok(Some(new))
            }
            // With one less it takes longer.
            Err(_) if self.made > 0 => {
                self.most = self.made;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// How many buffers there are.
    pub(super) fn made(&self) -> usize {
        self.made
    }

    /// Whether copies of `device` can be made as things are.
    pub(super) fn is_at(&self, device: Device) -> bool {
        self.current.as_ref().is_some_and(|(current, _)| *current == device)
    }

    /// Goes over to another device. All buffers but `held` must be idle.
    pub(super) fn turn_to(&mut self, device: Device, held: &mut Staging) -> Result<(), TransferError> {
        held.detach();
        self.idle.iter_mut().for_each(Staging::detach);
        // Before the next one, so that the stack of the thread is in order.
        self.current = None;
        self.current = Some((device, Current::on(device)?));
        Ok(())
    }
}
