//! Copies and fills: how they are described, checked and run.
//!
//! Native memory can be copied from whatever context is current; memory of `cuMemCreate` only where the device of the current
//! context was granted access, except by the peer copies, which name their contexts; a fill needs access like a
//! kernel, also to native memory (docs/DRIVER-VERSIONS.md: copies that cross devices).

use std::sync::Arc;

use cuda_sys::{CuError, CuResult};

use crate::context::Ctx;
use crate::driver::Driver;
use crate::memory::space::{Agent, Fault, Space};
use crate::trace::violation;

/// Bytes moved between two looks at the address space.
const STEP: usize = 1 << 20;

/// One end of a copy.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// Memory that the driver knows, touched on behalf of a device.
    Known(usize, Agent),
    /// Memory of the host that it does not know.
    Unknown(usize),
    /// Bytes that were taken from such memory when the copy was asked for.
    Taken(Arc<[u8]>),
}

/// Rows of bytes from one place to another.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) to: End,
    pub(crate) from: End,
    pub(crate) to_pitch: usize,
    pub(crate) from_pitch: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// Rows of one repeated value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    pub(crate) to: usize,
    pub(crate) agent: Agent,
    pub(crate) value: u32,
    /// Bytes of the value: 1, 2 or 4.
    pub(crate) unit: usize,
    pub(crate) pitch: usize,
    /// Bytes of a row.
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// The device of a context as a copy engine: native memory of all devices is in reach.
pub(crate) fn copier(context: &Ctx) -> Agent {
    Agent { ordinal: context.ordinal(), reach: u32::MAX }
}

/// The device of a context as its kernels see it.
pub(crate) fn kernel_of(context: &Ctx) -> Agent {
    Agent { ordinal: context.ordinal(), reach: context.reach() }
}

/// What a fault is answered with when a call finds it; faults that only a wrong program makes are violations.
pub(crate) fn refused(call: &str, fault: Fault) -> CuError {
    if !matches!(fault, Fault::NoAccess(_)) {
        violation(format_args!("{call}: {fault:?}"));
    }
    CuError::from(fault)
}

impl End {
    fn check(
        &self,
        space: &Space,
        pitch: usize,
        width: usize,
        height: usize,
        write: bool,
    ) -> Result<(), Fault> {
        if let Self::Known(address, agent) = self {
            for row in 0..height {
                space.walk(address + row * pitch, width, *agent, write, |_, _| ())?;
            }
        }
        Ok(())
    }

    /// The pieces that one range of this end is made of.
    fn pieces(
        &self,
        space: &Space,
        at: usize,
        size: usize,
        write: bool,
    ) -> Result<Vec<(*mut u8, usize)>, Fault> {
        match self {
            Self::Known(address, agent) => {
                let mut pieces = Vec::with_capacity(1);
                space
                    .walk(address + at, size, *agent, write, |place, length| pieces.push((place, length)))?;
                Ok(pieces)
            }
            Self::Unknown(address) => Ok(vec![(std::ptr::with_exposed_provenance_mut(address + at), size)]),
            Self::Taken(bytes) => Ok(vec![(bytes.as_ptr().cast_mut().wrapping_add(at), size)]),
        }
    }

    fn touches(&self, size: usize, range: &mut dyn FnMut(usize, usize)) {
        if let Self::Known(address, _) = self {
            range(*address, size);
        }
    }
}

fn span(pitch: usize, width: usize, height: usize) -> usize {
    height.checked_sub(1).map_or(0, |rows| rows * pitch + width)
}

impl Copy {
    /// Whether both ends can be touched as things are.
    pub(crate) fn check(&self, space: &Space) -> Result<(), Fault> {
        self.from.check(space, self.from_pitch, self.width, self.height, false)?;
        self.to.check(space, self.to_pitch, self.width, self.height, true)
    }

    pub(super) fn touches(&self, range: &mut dyn FnMut(usize, usize)) {
        self.from.touches(span(self.from_pitch, self.width, self.height), range);
        self.to.touches(span(self.to_pitch, self.width, self.height), range);
    }

    /// Takes the bytes of the source now, so that the program may change them.
    pub(crate) fn take_source(&mut self) -> CuResult {
        let End::Unknown(address) = self.from else { return Ok(()) };
        let mut bytes = Vec::with_capacity(self.width * self.height);
        for row in 0..self.height {
            let place: *const u8 = std::ptr::with_exposed_provenance(address + row * self.from_pitch);
            // SAFETY: the program hands over a source of this size.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(place, self.width) });
        }
        self.from = End::Taken(bytes.into());
        self.from_pitch = self.width;
        Ok(())
    }

    pub(super) fn run(&self, driver: &'static Driver) -> Result<(), Fault> {
        for row in 0..self.height {
            for start in (0..self.width).step_by(STEP) {
                let size = STEP.min(self.width - start);
                let space = crate::read(&driver.memory.space);
                let from = self.from.pieces(&space, row * self.from_pitch + start, size, false)?;
                let to = self.to.pieces(&space, row * self.to_pitch + start, size, true)?;
                join(&from, &to);
                if let End::Known(address, agent) = self.to {
                    space.spread(address + row * self.to_pitch + start, size, agent)?;
                }
            }
        }
        driver.machine.changed();
        Ok(())
    }
}

/// Copies what one list of pieces holds into another of the same length.
fn join(from: &[(*mut u8, usize)], to: &[(*mut u8, usize)]) {
    let mut sources = from.iter().copied();
    let (mut source, mut left) = (std::ptr::null_mut::<u8>(), 0);
    for &(mut target, mut room) in to {
        while room > 0 {
            if left == 0 {
                let Some(next) = sources.next() else { return };
                (source, left) = next;
            }
            let size = room.min(left);
            // SAFETY: both pieces have at least `size` bytes, and the space that they come from is locked. What the program's own
            // memory holds, and whether the two overlap, is the program's business, as with the real driver.
            unsafe { source.copy_to(target, size) };
            (source, left) = (source.wrapping_add(size), left - size);
            (target, room) = (target.wrapping_add(size), room - size);
        }
    }
}

impl Fill {
    pub(crate) fn check(&self, space: &Space) -> Result<(), Fault> {
        (0..self.height).try_for_each(|row| {
            space.walk(self.to + row * self.pitch, self.width, self.agent, true, |_, _| ())
        })
    }

    pub(super) fn touches(&self, range: &mut dyn FnMut(usize, usize)) {
        range(self.to, span(self.pitch, self.width, self.height));
    }

    pub(super) fn run(&self, driver: &'static Driver) -> Result<(), Fault> {
        let value = self.value.to_le_bytes();
        let pattern: Vec<u8> =
            value.iter().copied().take(self.unit).cycle().take(STEP.min(self.width)).collect();
        for row in 0..self.height {
            for start in (0..self.width).step_by(STEP) {
                let size = STEP.min(self.width - start);
                let space = crate::read(&driver.memory.space);
                // Steps and pieces are multiples of the unit, so each begins with the first byte of the pattern.
                space.write(self.to + row * self.pitch + start, size, self.agent, |place, length| {
                    // SAFETY: the piece has `length` bytes, at most a step, and the space is locked.
                    unsafe { place.copy_from_nonoverlapping(pattern.as_ptr(), length) };
                })?;
            }
        }
        driver.machine.changed();
        Ok(())
    }
}
