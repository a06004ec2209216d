//! Copies between arrays of one dimension and other memory.

use std::ffi::c_void;

use cuda_sys::{Array, CuResult, DevicePtr, Stream as Handle};

use super::copy::{End, copier};
use super::copy_calls::{Return, copy, device_end, host_end, line};
use super::stream::{self, Stream};
use crate::args;
use crate::memory::array;

/// The end of a copy that is in an array.
fn array_end(call: &str, stream: &Stream, (array, offset): (Array, usize), size: usize) -> CuResult<End> {
    let at = array::named(array, call)?.line(call, offset, size)?;
    Ok(End::Known(at, copier(stream.context())))
}

pub(super) fn host_to_array(
    to: (Array, usize),
    from: *const c_void,
    size: usize,
    on: Handle,
    how: Return,
) -> CuResult {
    let stream = stream::named(on)?;
    let from = host_end(stream.context(), from, size)?;
    let to = array_end("cuMemcpyHtoA", stream, to, size)?;
    copy("cuMemcpyHtoA", stream, line(to, from, size), how)
}

pub(super) fn array_to_host(
    to: *mut c_void,
    from: (Array, usize),
    size: usize,
    on: Handle,
    how: Return,
) -> CuResult {
    let stream = stream::named(on)?;
    let to = host_end(stream.context(), to, size)?;
    let from = array_end("cuMemcpyAtoH", stream, from, size)?;
    copy("cuMemcpyAtoH", stream, line(to, from, size), how)
}

pub(super) fn device_to_array(
    to: (Array, usize),
    from: DevicePtr,
    size: usize,
    on: Handle,
    how: Return,
) -> CuResult {
    let stream = stream::named(on)?;
    let to = array_end("cuMemcpyDtoA", stream, to, size)?;
    let from = device_end("cuMemcpyDtoA", stream.context(), args::size(from.0))?;
    copy("cuMemcpyDtoA", stream, line(to, from, size), how)
}

pub(super) fn array_to_device(
    to: DevicePtr,
    from: (Array, usize),
    size: usize,
    on: Handle,
    how: Return,
) -> CuResult {
    let stream = stream::named(on)?;
    let to = device_end("cuMemcpyAtoD", stream.context(), args::size(to.0))?;
    let from = array_end("cuMemcpyAtoD", stream, from, size)?;
    copy("cuMemcpyAtoD", stream, line(to, from, size), how)
}
