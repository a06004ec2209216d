//! The copy and fill functions.
//!
//! How they relate to the host, as the header's "API synchronization behavior" has it: copies from memory of the program that is not
//! page-locked have taken it when the call returns; copies to such memory have completed; other copies without
//! `Async` have completed, but for those within devices and fills, which only are in the order of the stream, unless they
//! touch memory with SYNC_MEMOPS.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::c_void;
use std::sync::Arc;

use cuda_sys::{
    Array, Context, CuError, CuResult, DevicePtr, Memcpy2D, Memcpy3D, Memcpy3DPeer, MemoryType,
    Stream as Handle,
};

use super::capture;
use super::copy::{Copy, End, Fill, copier, kernel_of, refused};
use super::op::Op;
use super::stream::{self, Stream};
use crate::args;
use crate::context::Ctx;
use crate::driver::driver;
use crate::memory::array;
use crate::memory::space::Area;
use crate::trace::violation;

/// The stream of copies that name none, for the default of all threads.
pub(super) const LEGACY: Handle = Handle::NULL;

/// When a copy returns to its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Return {
    /// Once it has completed.
    Completed,
    /// As soon as it is queued, if its memory allows.
    Queued,
}

/// An end in memory that must be the driver's.
pub(super) fn device_end(call: &str, context: &Ctx, at: usize) -> CuResult<End> {
    let space = crate::read(&driver()?.memory.space);
    if space.find(at).is_none() {
        violation(format_args!("{call}: {at:#x} is no device memory"));
        return Err(CuError::INVALID_VALUE);
    }
    Ok(End::Known(at, copier(context)))
}

/// An end wherever it is.
fn any_end(context: &Ctx, at: usize) -> CuResult<End> {
    let known = crate::read(&driver()?.memory.space).find(at).is_some();
    Ok(if known { End::Known(at, copier(context)) } else { End::Unknown(at) })
}

/// An end that the caller names by a pointer of the host, wherever that leads. Nowhere is a place for no bytes only.
pub(super) fn host_end(context: &Ctx, at: *const c_void, size: usize) -> CuResult<End> {
    if at.is_null() && size > 0 {
        return Err(CuError::INVALID_VALUE);
    }
    any_end(context, at.expose_provenance())
}

/// Whether an end is in memory of the host that is page-locked, or in device memory.
fn is_on_device(end: &End) -> bool {
    let End::Known(at, _) = end else { return false };
    let Ok(driver) = driver() else { return false };
    let space = crate::read(&driver.memory.space);
    !matches!(space.find(*at), Some((_, Area::Locked(_) | Area::Managed { .. })))
}

/// Whether an end is in memory whose synchronous operations always wait.
fn is_sync(end: &End) -> bool {
    let (End::Known(at, _), Ok(driver)) = (end, driver()) else { return false };
    let space = crate::read(&driver.memory.space);
    matches!(space.find(*at), Some((_, Area::Native(native))) if native.sync_memops)
}

/// Checks a copy and gives it to the stream.
pub(super) fn copy(call: &str, stream: &'static Stream, mut copy: Copy, how: Return) -> CuResult {
    if copy.width == 0 || copy.height == 0 {
        return Ok(());
    }
    copy.check(&crate::read(&driver()?.memory.space)).map_err(|fault| refused(call, fault))?;
    let capturing = stream.part.is_capturing();
    if how == Return::Completed {
        capture::not_capturing(stream)?;
    }
    let within_devices = is_on_device(&copy.from) && is_on_device(&copy.to);
    let wait = match (&copy.to, how) {
        (End::Unknown(_), _) => true,
        (_, Return::Completed) => !within_devices || is_sync(&copy.from) || is_sync(&copy.to),
        (_, Return::Queued) => false,
    };
    if how == Return::Queued && !capturing {
        copy.take_source()?;
    }
    let ticket = super::submit(stream, Op::Copy(Arc::new(copy)), Vec::new())?;
    if let Some(ticket) = ticket.filter(|_| wait) {
        ticket.wait();
        stream.context().check()?;
    }
    Ok(())
}

pub(super) fn line(to: End, from: End, width: usize) -> Copy {
    Copy { to, from, to_pitch: width, from_pitch: width, width, height: 1 }
}

pub(super) fn host_to_device(
    to: DevicePtr,
    from: *const c_void,
    size: usize,
    on: Handle,
    how: Return,
) -> CuResult {
    let stream = stream::named(on)?;
    let from = host_end(stream.context(), from, size)?;
    let to = device_end("cuMemcpyHtoD", stream.context(), args::size(to.0))?;
    copy("cuMemcpyHtoD", stream, line(to, from, size), how)
}

pub(super) fn device_to_host(
    to: *mut c_void,
    from: DevicePtr,
    size: usize,
    on: Handle,
    how: Return,
) -> CuResult {
    let stream = stream::named(on)?;
    let to = host_end(stream.context(), to, size)?;
    let from = device_end("cuMemcpyDtoH", stream.context(), args::size(from.0))?;
    copy("cuMemcpyDtoH", stream, line(to, from, size), how)
}

pub(super) fn device_to_device(
    to: DevicePtr,
    from: DevicePtr,
    size: usize,
    on: Handle,
    how: Return,
) -> CuResult {
    let stream = stream::named(on)?;
    let context = stream.context();
    let to = device_end("cuMemcpyDtoD", context, args::size(to.0))?;
    let from = device_end("cuMemcpyDtoD", context, args::size(from.0))?;
    copy("cuMemcpyDtoD", stream, line(to, from, size), how)
}

pub(super) fn unified(to: DevicePtr, from: DevicePtr, size: usize, on: Handle, how: Return) -> CuResult {
    let stream = stream::named(on)?;
    let context = stream.context();
    let to = any_end(context, args::size(to.0))?;
    let from = any_end(context, args::size(from.0))?;
    copy("cuMemcpy", stream, line(to, from, size), how)
}

/// Each end is touched by the device of its own context: so memory of `cuMemCreate` can be copied that neither device alone
/// may touch (docs/DRIVER-VERSIONS.md: "only `cuMemcpyPeer` works").
pub(super) fn peer(
    (to, to_context): (DevicePtr, Context),
    (from, from_context): (DevicePtr, Context),
    size: usize,
    on: Handle,
    how: Return,
) -> CuResult {
    let driver = driver()?;
    let stream = stream::named(on)?;
    let to = device_end("cuMemcpyPeer", driver.contexts.get(to_context)?, args::size(to.0))?;
    let from = device_end("cuMemcpyPeer", driver.contexts.get(from_context)?, args::size(from.0))?;
    copy("cuMemcpyPeer", stream, line(to, from, size), how)
}

/// A copy of one slice, or of slices without gaps, is a copy of rows; others the stand-in does not have.
pub(super) fn rows_of(copy: Memcpy3D) -> CuResult<Memcpy2D> {
    let stacked = copy.src_height == copy.height && copy.dst_height == copy.height;
    if copy.depth > 1 && !stacked {
        return Err(CuError::NOT_SUPPORTED);
    }
    Ok(Memcpy2D {
        src_x: copy.src_x,
        src_y: copy.src_y + copy.src_z * copy.src_height,
        src_kind: copy.src_kind,
        src_host: copy.src_host,
        src_device: copy.src_device,
        src_array: copy.src_array,
        src_pitch: copy.src_pitch,
        dst_x: copy.dst_x,
        dst_y: copy.dst_y + copy.dst_z * copy.dst_height,
        dst_kind: copy.dst_kind,
        dst_host: copy.dst_host,
        dst_device: copy.dst_device,
        dst_array: copy.dst_array,
        dst_pitch: copy.dst_pitch,
        width: copy.width,
        height: copy.height * copy.depth,
    })
}

/// One side of a copy of rows, as it is described.
struct Side {
    kind: MemoryType,
    host: *const c_void,
    device: DevicePtr,
    array: Array,
    start: (usize, usize),
    pitch: usize,
}

impl Side {
    /// Where it begins for this context, and how far it is from one row to the next. An array's rows are as long as they are.
    fn end(&self, context: &Ctx, extent: (usize, usize)) -> CuResult<(End, usize)> {
        let ((x, y), (width, height)) = (self.start, extent);
        if self.kind == MemoryType::ARRAY {
            let array = array::named(self.array, "cuMemcpy2D")?;
            let at = array.part("cuMemcpy2D", self.start, extent)?;
            return Ok((End::Known(at, copier(context)), array.row));
        }
        if height > 1 && self.pitch < width {
            return Err(CuError::INVALID_VALUE);
        }
        let start = x + y * self.pitch;
        let end = match self.kind {
            MemoryType::HOST => any_end(context, self.host.expose_provenance() + start),
            MemoryType::DEVICE => device_end("cuMemcpy2D", context, args::size(self.device.0) + start),
            MemoryType::UNIFIED => any_end(context, args::size(self.device.0) + start),
            _ => Err(CuError::NOT_SUPPORTED),
        };
        Ok((end?, self.pitch))
    }
}

/// The copy of rows that is meant, for the contexts of its target and of its source.
pub(super) fn describe(rows: &Memcpy2D, to_context: &Ctx, from_context: &Ctx) -> CuResult<Copy> {
    let pitch = |pitch: usize| if pitch == 0 { rows.width } else { pitch };
    let to = Side {
        kind: rows.dst_kind,
        host: rows.dst_host.cast_const(),
        device: rows.dst_device,
        array: rows.dst_array,
        start: (rows.dst_x, rows.dst_y),
        pitch: pitch(rows.dst_pitch),
    };
    let from = Side {
        kind: rows.src_kind,
        host: rows.src_host,
        device: rows.src_device,
        array: rows.src_array,
        start: (rows.src_x, rows.src_y),
        pitch: pitch(rows.src_pitch),
    };
    let extent = (rows.width, rows.height);
    let ((to, to_pitch), (from, from_pitch)) = (to.end(to_context, extent)?, from.end(from_context, extent)?);
    Ok(Copy { to, from, to_pitch, from_pitch, width: rows.width, height: rows.height })
}

/// # Safety
/// `params` is null or a `CUDA_MEMCPY2D`.
pub(super) unsafe fn copy_2d(params: *const c_void, on: Handle, how: Return) -> CuResult {
    let stream = stream::named(on)?;
    // SAFETY: the caller's promise.
    let params = unsafe { args::read(params.cast::<Memcpy2D>()) }?;
    copy("cuMemcpy2D", stream, describe(&params, stream.context(), stream.context())?, how)
}

/// # Safety
/// `params` is null or a `CUDA_MEMCPY3D`.
pub(super) unsafe fn copy_3d(params: *const c_void, on: Handle, how: Return) -> CuResult {
    let stream = stream::named(on)?;
    // SAFETY: the caller's promise.
    let params = unsafe { args::read(params.cast::<Memcpy3D>()) }?;
    copy("cuMemcpy3D", stream, describe(&rows_of(params)?, stream.context(), stream.context())?, how)
}

/// # Safety
/// `params` is null or a `CUDA_MEMCPY3D_PEER`.
pub(super) unsafe fn copy_3d_peer(params: *const c_void, on: Handle, how: Return) -> CuResult {
    let (driver, stream) = (driver()?, stream::named(on)?);
    // SAFETY: the caller's promise.
    let params = unsafe { args::read(params.cast::<Memcpy3DPeer>()) }?;
    let to = driver.contexts.get(Context(params.dst_context))?;
    let from = driver.contexts.get(Context(params.src_context))?;
    copy("cuMemcpy3DPeer", stream, describe(&rows_of(params)?, to, from)?, how)
}

/// The fill that is meant, checked as the driver checks it.
pub(super) fn fill(
    context: &Ctx,
    to: usize,
    value: u32,
    unit: usize,
    (pitch, width, height): (usize, usize, usize),
) -> CuResult<Fill> {
    if !matches!(unit, 1 | 2 | 4) || !to.is_multiple_of(unit) || (height > 1 && pitch < width) {
        return Err(CuError::INVALID_VALUE);
    }
    let fill = Fill { to, agent: kernel_of(context), value, unit, pitch, width, height };
    fill.check(&crate::read(&driver()?.memory.space)).map_err(|fault| refused("cuMemset", fault))?;
    Ok(fill)
}

/// Fills rows; `width` counts values.
pub(super) fn set(
    (to, pitch): (DevicePtr, usize),
    value: u32,
    unit: usize,
    (width, height): (usize, usize),
    on: Handle,
    how: Return,
) -> CuResult {
    let stream = stream::named(on)?;
    let bytes = width.checked_mul(unit).ok_or(CuError::INVALID_VALUE)?;
    if bytes == 0 || height == 0 {
        return Ok(());
    }
    let fill = fill(stream.context(), args::size(to.0), value, unit, (pitch, bytes, height))?;
    let wait = how == Return::Completed && is_sync(&End::Known(fill.to, fill.agent));
    let ticket = super::submit(stream, Op::Fill(fill), Vec::new())?;
    if let Some(ticket) = ticket.filter(|_| wait) {
        ticket.wait();
        stream.context().check()?;
    }
    Ok(())
}
