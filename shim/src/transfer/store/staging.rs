//! Host memory in which chunks wait between device and disk.
//!
//! A buffer holds a whole chunk, or as much of one as is moved at a time: what is hashed and written is what the device has
//! copied there, and no byte is copied twice. It is registered with the driver as long as the transfer lasts and not longer: a checkpoint takes
//! 25 ms more per GiB that is (580.159.04).

use std::sync::atomic::{AtomicUsize, Ordering};

use chunkstore::AlignedBuf;
use cuda_sys::{Device, DevicePtr, Stream};

use crate::driver::real;
use crate::transfer::context::Current;
use crate::transfer::own_stream::{end_stream, own_stream};
use crate::transfer::{TransferError, certain};

/// `CU_MEMHOSTREGISTER_PORTABLE`: for the contexts of all devices.
const PORTABLE: u32 = 1;

/// Memory for a chunk or a part of one, and the stream of its copies.
#[derive(Debug)]
pub(super) struct Staging {
    pub(super) memory: AlignedBuf,
    /// Whether it is registered, once that was tried.
    pinned: Option<bool>,
    /// Of the device that the memory is used with at the moment.
    stream: Option<Stream>,
}

impl Staging {
    /// Memory of this length, which the system has yet to give.
    pub(super) fn new(len: usize) -> Result<Self, TransferError> {
        let memory = AlignedBuf::new(len).map_err(|error| TransferError::System {
            call: "mmap",
            errno: error.raw_os_error().unwrap_or(libc::ENOMEM),
        })?;
        // A device goes on writing to the pages that it knows: a child must not make others of them.
        // SAFETY: the mapping just made, whose content is not touched.
        unsafe { libc::madvise(memory.as_ptr().cast_mut().cast(), memory.len(), libc::MADV_DONTFORK) };
        Ok(Self { memory, pinned: None, stream: None })
    }

    /// Has the system give it all its pages at once: first touches are slow, and whoever registers it waits for them.
    pub(super) fn populate(&mut self) {
        let start = self.memory.as_mut_ptr().cast();
        // Before Linux 5.14 there is no such advice.
        // SAFETY: the buffer's own pages, whose content stays.
        unsafe { libc::madvise(start, self.memory.len(), libc::MADV_POPULATE_WRITE) };
    }

    /// Makes it ready for copies of the device whose context is current. What cannot be registered is copied more
    /// slowly, and without a stream of its own the default one does: a card with no byte free may give neither.
    fn attach(&mut self) -> Stream {
        if self.pinned.is_none() {
            let start = self.memory.as_mut_ptr();
            // SAFETY: mapped memory of this length, registered until it is dropped.
            let pinned = unsafe { real::cuMemHostRegister_v2(start.cast(), self.memory.len(), PORTABLE) };
            if let Err(error) = pinned {
                log!("cuMemHostRegister: {error}; copies are slower without");
            }
            self.pinned = Some(pinned.is_ok());
        }
        *self.stream.get_or_insert_with(own_stream)
    }

    /// Waits until its copies are done.
    pub(super) fn wait(&self) -> Result<(), TransferError> {
        self.stream.map_or(Ok(()), certain::wait)
    }

    /// Gives the stream back, while its context is current. No copy is under way.
    pub(super) fn detach(&mut self) {
        self.stream.take().into_iter().for_each(end_stream);
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
        if self.pinned == Some(true) {
            let start = self.memory.as_mut_ptr();
            // SAFETY: registered by `attach`.
            if let Err(error) = unsafe { real::cuMemHostUnregister(start.cast()) } {
                log!("cuMemHostUnregister: {error}");
            }
        }
    }
}

/// How many buffers a transfer may have, and has.
#[derive(Debug)]
pub(super) struct Stock {
    most: AtomicUsize,
    made: AtomicUsize,
    len: usize,
}

impl Stock {
    /// At most `most` buffers of `len` bytes, made when they are needed.
    pub(super) fn new(most: usize, len: usize) -> Self {
        Self { most: AtomicUsize::new(most.max(1)), made: AtomicUsize::new(0), len }
    }

    /// Another buffer, if there may be one more. Where it cannot be made there may be no more than there are.
    pub(super) fn another(&self) -> Option<Result<Staging, TransferError>> {
        let most = self.most.load(Ordering::Acquire);
        if most == 0 {
            return Some(Err(TransferError::System { call: "mmap", errno: libc::ENOMEM }));
        }
        let more = |made| (made < most).then_some(made + 1);
        self.made.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Staging::new(self.len).inspect_err(|_| {
            let others = self.made.fetch_sub(1, Ordering::AcqRel) - 1;
            self.most.store(others, Ordering::Release);
        }))
    }

    /// How many buffers there are.
    pub(super) fn made(&self) -> usize {
        self.made.load(Ordering::Acquire)
    }

    /// How many copies may be under way while the crew works on the other buffers. A copy of a chunk takes little over a
    /// millisecond, which is a tenth of what a thread needs for it: a few keep the bus busy.
    pub(super) fn may_fly(&self) -> usize {
        (self.most.load(Ordering::Acquire) / 2).clamp(1, 3)
    }
}

/// The buffers of one transfer that nobody uses, and the device that they are used with.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    /// Before the context: a buffer is given back while it is current.
    pub(super) idle: Vec<Staging>,
    current: Option<(Device, Current)>,
    stock: &'a Stock,
}

impl<'a> Bench<'a> {
    /// A bench for the buffers of this stock.
    pub(super) fn new(stock: &'a Stock) -> Self {
        Self { idle: Vec::new(), current: None, stock }
    }

    /// A buffer that nobody uses, if there is one or one can be made.
    pub(super) fn take(&mut self) -> Result<Option<Staging>, TransferError> {
        match self.idle.pop().map(Ok).or_else(|| self.stock.another()) {
            // With fewer it takes longer.
            Some(Err(_)) if self.stock.made() > 0 => Ok(None),
            other => other.transpose(),
        }
    }

    /// Whether copies of `device` can be made as things are.
    pub(super) fn is_at(&self, device: Device) -> bool {
        self.current.as_ref().is_some_and(|(current, _)| *current == device)
    }

    /// Goes over to another device. All buffers but `held` must be idle, or new.
    pub(super) fn turn_to(&mut self, device: Device, held: &mut Staging) -> Result<(), TransferError> {
        held.detach();
        self.idle.iter_mut().for_each(Staging::detach);
        // Before the next one, so that the stack of the thread is in order.
        self.current = None;
        self.current = Some((device, Current::on(device)?));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 1 << 16;

    #[test]
    fn a_stock_makes_as_many_as_it_may() {
        let stock = Stock::new(2, LEN);
        let mut made: Vec<Staging> = (0..2).map(|_| stock.another().unwrap().unwrap()).collect();
        assert!(stock.another().is_none() && stock.made() == 2);
        for staging in &mut made {
            staging.populate();
            assert!(staging.part(0, LEN).unwrap().iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_stock_that_cannot_make_any_says_so_every_time() {
        let stock = Stock::new(3, usize::MAX / 2);
        for _ in 0..2 {
            assert!(stock.another().unwrap().is_err());
            assert_eq!(stock.made(), 0);
        }
        assert!(Bench::new(&stock).take().is_err());
    }

    #[test]
    fn with_fewer_buffers_than_wanted_a_transfer_goes_on() {
        let stock = Stock::new(3, LEN);
        let first = stock.another().unwrap().unwrap();
        // As after a failure of the second.
        stock.most.store(stock.made(), Ordering::Release);
        let mut bench = Bench::new(&stock);
        assert!(bench.take().unwrap().is_none());
        bench.idle.push(first);
        assert!(bench.take().unwrap().is_some());
    }
}
