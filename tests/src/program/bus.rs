//! How fast bytes cross the bus when nothing is in the way.

use std::ffi::c_void;
use std::time::Instant;

use cuda_sys::{CuError, DevicePtr, Stream};

use super::words::Words;
use super::{Answer, Session};
use crate::driver;

pub(super) fn obey(_: &Session, verb: &str, words: &mut Words<'_>) -> Option<Answer> {
    (verb == "bus").then(|| bus(words))
}

/// How often each direction is measured; the best counts.
const TURNS: usize = 4;

/// `bus BYTES`: nanoseconds that so many bytes take from the device to page-locked memory, and back.
fn bus(words: &mut Words<'_>) -> Answer {
    let size = words.size()?;
    let (mut device, mut host) = (DevicePtr(0), std::ptr::null_mut());
    // SAFETY: a place for the address.
    unsafe { driver::cuMemAlloc_v2(&raw mut device, size) }?;
    // SAFETY: a place for the address.
    unsafe { driver::cuMemHostAlloc(&raw mut host, size, 0) }?;
    let times = best(|| copy_out(host, device, size))
        .and_then(|out| Ok((out, best(|| copy_in(device, host, size))?)));
    // SAFETY: no copy is under way any more.
    unsafe { driver::cuMemFreeHost(host) }?;
    // SAFETY: as above.
    unsafe { driver::cuMemFree_v2(device) }?;
    let (out, back) = times?;
    Ok(format!("{out} {back}"))
}

/// The shortest time of some turns.
fn best(turn: impl Fn() -> Result<(), CuError>) -> Result<u128, CuError> {
    let mut shortest = u128::MAX;
    for _ in 0..TURNS {
        let begin = Instant::now();
        turn()?;
        shortest = shortest.min(begin.elapsed().as_nanos());
    }
    Ok(shortest)
}

fn copy_out(host: *mut c_void, device: DevicePtr, size: usize) -> Result<(), CuError> {
    // SAFETY: both are that long, and stay until the copy is done.
    unsafe { driver::cuMemcpyDtoHAsync_v2(host, device, size, Stream::NULL) }?;
    wait()
}

fn copy_in(device: DevicePtr, host: *mut c_void, size: usize) -> Result<(), CuError> {
    // SAFETY: both are that long, and stay until the copy is done.
    unsafe { driver::cuMemcpyHtoDAsync_v2(device, host.cast_const(), size, Stream::NULL) }?;
    wait()
}

fn wait() -> Result<(), CuError> {
    // SAFETY: the default stream.
    unsafe { driver::cuStreamSynchronize(Stream::NULL) }
}
