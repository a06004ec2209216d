//! The ways to the memory of all objects of a transfer.
//!
//! Chunks have parts of many objects. Those that the program shows are all in reach at once; the private window
//! shows one at a time, and before it turns to another one all copies have to be done.

use core::ptr;

use cuda_sys::Device;

use crate::transfer::reach::{Reach, Subject};
use crate::transfer::{Shown, TransferError};

/// Where the bytes of an object are at the moment.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// The processor reaches them: address and length.
    Processor(*mut u8, usize),
    /// A device copies them, at this address.
    Device(Device, u64),
}

impl From<Shown> for Way {
    fn from(shown: Shown) -> Self {
        match shown {
            Shown::Processor(memory) => Self::Processor(memory.start, memory.len),
            Shown::Device(device, address) => Self::Device(device, address),
        }
    }
}

/// The ways to some objects.
#[derive(Debug)]
pub(super) struct Ways<'a> {
    subjects: &'a [Subject],
    reach: Reach,
    in_window: Option<(usize, Way)>,
}

impl<'a> Ways<'a> {
    /// To these objects, which are named by their number.
    pub(super) fn new(subjects: &'a [Subject]) -> Self {
        let largest = subjects.iter().map(Subject::size).max().unwrap_or(0);
        Self { subjects, reach: Reach::new(largest), in_window: None }
    }

    /// Finds the way to an object. `drain` waits for all copies; it is called where the window has to be moved.
    pub(super) fn to(
        &mut self,
        object: usize,
        drain: impl FnOnce() -> Result<(), TransferError>,
    ) -> Result<Way, TransferError> {
        let Some(subject) = self.subjects.get(object) else { return Err(outside()) };
        if subject.is_seen() {
            return self.reach.open(subject).map(Way::from);
        }
        match self.in_window {
            Some((shown, way)) if shown == object => return Ok(way),
            Some(_) => {
                drain()?;
                self.close()?;
            }
            None => {}
        }
        let way = Way::from(self.reach.open(subject)?);
        self.in_window = Some((object, way));
        Ok(way)
    }

    /// All copies are done. Also to be called after an error: a mapping left behind keeps the memory.
    pub(super) fn close(&mut self) -> Result<(), TransferError> {
        self.in_window = None;
        self.reach.close()
    }
}

/// Copies between memory that the processor reaches and a buffer.
pub(super) fn read(from: (*mut u8, usize), at: u64, into: &mut [u8]) -> Result<(), TransferError> {
    let from = place(from, at, into.len())?;
    // SAFETY: mapped, of at least that length; the buffer is ours and elsewhere.
    unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    Ok(())
}

/// The same in the other direction.
pub(super) fn write(to: (*mut u8, usize), at: u64, from: &[u8]) -> Result<(), TransferError> {
    let to = place(to, at, from.len())?;
    // SAFETY: as above; nobody else uses the object's memory while the gates are closed.
    unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    Ok(())
}

/// Fills memory that the processor reaches with zeros.
pub(super) fn zero(at: (*mut u8, usize), offset: u64, len: usize) -> Result<(), TransferError> {
    let to = place(at, offset, len)?;
    // SAFETY: as above.
    unsafe { ptr::write_bytes(to, 0, len) };
    Ok(())
}

fn place((start, size): (*mut u8, usize), at: u64, len: usize) -> Result<*mut u8, TransferError> {
    let at = usize::try_from(at).map_err(|_| outside())?;
    if at.checked_add(len).is_none_or(|end| end > size) {
        return Err(outside());
    }
    Ok(start.wrapping_add(at))
}

fn outside() -> TransferError {
    TransferError::System { call: "the memory of an object", errno: libc::EFAULT }
}
