//! Stream memory operations: writing a value, and waiting for one, in the order of a stream.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use cuda_sys::{CuError, CuResult, DevicePtr, Stream};

use super::copy::{kernel_of, refused};
use super::op::Op;
use super::stream;
use crate::args;
use crate::context::Ctx;
use crate::driver::{Driver, driver};
use crate::memory::space::{Agent, Fault};

/// A value to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueWrite {
    pub(crate) address: usize,
    value: u64,
    long: bool,
}

/// A value to be waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueWait {
    pub(crate) address: usize,
    value: u64,
    long: bool,
    condition: Condition,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Condition {
    AtLeast,
    Equal,
    AnyBit,
    NoneOr,
}

const fn bytes(long: bool) -> usize {
    if long { 8 } else { 4 }
}

fn load(driver: &Driver, agent: Agent, at: usize, long: bool) -> Result<u64, Fault> {
    let mut value = 0;
    crate::read(&driver.memory.space).walk(at, bytes(long), agent, false, |place, _| {
        value = if long {
            // SAFETY: eight aligned bytes, by `new`, and the space is locked.
            unsafe { &*place.cast::<AtomicU64>() }.load(Ordering::Acquire)
        } else {
            // SAFETY: four aligned bytes, by `new`, and the space is locked.
            unsafe { &*place.cast::<AtomicU32>() }.load(Ordering::Acquire).into()
        };
    })?;
    Ok(value)
}

impl ValueWrite {
    pub(super) fn size(&self) -> usize {
        bytes(self.long)
    }

    pub(super) fn run(&self, driver: &'static Driver, context: &'static Ctx) -> Result<(), Fault> {
        let space = crate::read(&driver.memory.space);
        space.write(self.address, self.size(), kernel_of(context), |place, _| {
            if self.long {
                // SAFETY: eight aligned bytes, by `submit_write`, and the space is locked.
                unsafe { &*place.cast::<AtomicU64>() }.store(self.value, Ordering::Release);
            } else {
                let value = u32::try_from(self.value).unwrap_or(u32::MAX);
                // SAFETY: four aligned bytes, by `submit_write`, and the space is locked.
                unsafe { &*place.cast::<AtomicU32>() }.store(value, Ordering::Release);
            }
        })?;
        drop(space);
        driver.machine.changed();
        Ok(())
    }
}

impl ValueWait {
    pub(super) fn size(&self) -> usize {
        bytes(self.long)
    }

    fn holds(&self, value: u64) -> bool {
        let wanted = self.value;
        match self.condition {
            // The difference counts, so that a counter may wrap.
            Condition::AtLeast if self.long => value.wrapping_sub(wanted).cast_signed() >= 0,
            Condition::AtLeast => {
                let narrow = |value: u64| u32::try_from(value).unwrap_or(0);
                narrow(value).wrapping_sub(narrow(wanted)).cast_signed() >= 0
            }
            Condition::Equal => value == wanted,
            Condition::AnyBit => value & wanted != 0,
            Condition::NoneOr => {
                let all = if self.long { u64::MAX } else { u32::MAX.into() };
                !(value | wanted) & all != 0
            }
        }
    }

    pub(super) fn run(&self, driver: &'static Driver, context: &'static Ctx) -> Result<(), Fault> {
        let agent = kernel_of(context);
        let life = context.life();
        let mut result = Ok(());
        driver.machine.wait_until(|| match load(driver, agent, self.address, self.long) {
            Ok(value) => self.holds(value) || context.life() != life,
            Err(fault) => {
                result = Err(fault);
                true
            }
        });
        result
    }
}

fn check(call: &str, stream: &stream::Stream, at: usize, long: bool, write: bool) -> CuResult {
    if !at.is_multiple_of(bytes(long)) {
        return Err(CuError::INVALID_VALUE);
    }
    let space = crate::read(&driver()?.memory.space);
    space
        .walk(at, bytes(long), kernel_of(stream.context()), write, |_, _| ())
        .map_err(|fault| refused(call, fault))
}

fn submit_write(handle: Stream, addr: DevicePtr, value: u64, long: bool) -> CuResult {
    let stream = stream::named(handle)?;
    let address = args::size(addr.0);
    check("cuStreamWriteValue", stream, address, long, true)?;
    super::submit(stream, Op::Write(ValueWrite { address, value, long }), Vec::new()).map(|_| ())
}

fn submit_wait(handle: Stream, addr: DevicePtr, value: u64, long: bool, flags: c_uint) -> CuResult {
    let stream = stream::named(handle)?;
    let address = args::size(addr.0);
    let condition = match flags & 3 {
        0 => Condition::AtLeast,
        1 => Condition::Equal,
        2 => Condition::AnyBit,
        _ => Condition::NoneOr,
    };
    check("cuStreamWaitValue", stream, address, long, false)?;
    super::submit(stream, Op::Wait(ValueWait { address, value, long, condition }), Vec::new()).map(|_| ())
}

pub(crate) unsafe fn cuStreamWriteValue32_v2(
    stream: Stream,
    addr: DevicePtr,
    value: u32,
    _flags: c_uint,
) -> CuResult {
    submit_write(stream, addr, value.into(), false)
}

pub(crate) unsafe fn cuStreamWriteValue64_v2(
    stream: Stream,
    addr: DevicePtr,
    value: u64,
    _flags: c_uint,
) -> CuResult {
    submit_write(stream, addr, value, true)
}

pub(crate) unsafe fn cuStreamWaitValue32_v2(
    stream: Stream,
    addr: DevicePtr,
    value: u32,
    flags: c_uint,
) -> CuResult {
    submit_wait(stream, addr, value.into(), false, flags)
}

pub(crate) unsafe fn cuStreamWaitValue64_v2(
    stream: Stream,
    addr: DevicePtr,
    value: u64,
    flags: c_uint,
) -> CuResult {
    submit_wait(stream, addr, value, true, flags)
}

/// `CUstreamBatchMemOpParams`: a union, of 48 bytes; the members start alike.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct BatchOp {
    operation: c_uint,
    address: DevicePtr,
    value: u64,
    flags: c_uint,
    rest: [u64; 2],
}

pub(crate) unsafe fn cuStreamBatchMemOp_v2(
    stream: Stream,
    count: c_uint,
    param_array: *mut c_void,
    flags: c_uint,
) -> CuResult {
    driver()?;
    // SAFETY: the caller's promise.
    let ops = unsafe { args::list(param_array.cast::<BatchOp>(), usize::try_from(count).unwrap_or(0)) }?;
    if flags != 0 || count > 256 {
        return Err(CuError::INVALID_VALUE);
    }
    for op in ops {
        let low = op.value & u64::from(u32::MAX);
        match op.operation {
            1 => submit_wait(stream, op.address, low, false, op.flags)?,
            2 => submit_write(stream, op.address, low, false)?,
            4 => submit_wait(stream, op.address, op.value, true, op.flags)?,
            5 => submit_write(stream, op.address, op.value, true)?,
            // A flush or a barrier: writes here are seen at once.
            3 | 6 => {}
            _ => return Err(CuError::INVALID_VALUE),
        }
    }
    Ok(())
}
