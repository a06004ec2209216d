//! `cuCtx*` and `cuDevicePrimaryCtx*`.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use cuda_sys::{Context, CuError, CuResult, Device};

use super::{Ctx, Stack, current, current_unchecked};
use crate::args;
use crate::device::calls::ordinal;
use crate::driver::driver;
use crate::slab::address_of;
use crate::work::capture;

fn entry(context: &'static Ctx) -> (usize, u32) {
    (address_of(context), context.life.load(Ordering::Acquire))
}

pub(crate) unsafe fn cuCtxCreate_v2(pctx: *mut Context, flags: c_uint, dev: Device) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(pctx) }?;
    let context = driver.contexts.create(driver, ordinal(driver, dev)?, flags);
    Stack::with(driver, |stack| stack.push(entry(context)))?;
    place.write(context.handle());
    Ok(())
}

pub(crate) unsafe fn cuCtxCreate_v3(
    pctx: *mut Context,
    _params: *mut c_void,
    num_params: c_int,
    flags: c_uint,
    dev: Device,
) -> CuResult {
    if num_params != 0 {
        return Err(CuError::NOT_SUPPORTED);
    }
    // SAFETY: the caller's promise.
    unsafe { cuCtxCreate_v2(pctx, flags, dev) }
}

pub(crate) unsafe fn cuCtxCreate_v4(
    pctx: *mut Context,
    params: *mut c_void,
    flags: c_uint,
    dev: Device,
) -> CuResult {
    if !params.is_null() {
        return Err(CuError::NOT_SUPPORTED);
    }
    // SAFETY: the caller's promise.
    unsafe { cuCtxCreate_v2(pctx, flags, dev) }
}

pub(crate) unsafe fn cuCtxDestroy_v2(ctx: Context) -> CuResult {
    let driver = driver()?;
    let context = driver.contexts.get(ctx)?;
    let meant = entry(context);
    driver.contexts.destroy(context)?;
    Stack::with(driver, |stack| {
        if stack.top() == Some(meant) {
            stack.pop();
        }
    });
    Ok(())
}

pub(crate) unsafe fn cuCtxPushCurrent_v2(ctx: Context) -> CuResult {
    let driver = driver()?;
    let context = driver.contexts.get(ctx)?;
    Stack::with(driver, |stack| stack.push(entry(context)))
}

pub(crate) unsafe fn cuCtxPopCurrent_v2(pctx: *mut Context) -> CuResult {
    let driver = driver()?;
    let (address, _) = Stack::with(driver, Stack::pop).ok_or(CuError::INVALID_CONTEXT)?;
    // SAFETY: the caller's promise.
    if let Some(place) = unsafe { args::optional(pctx) } {
        place.write(Context(std::ptr::with_exposed_provenance_mut(address)));
    }
    Ok(())
}

/// Replaces the top of the stack; null removes it.
pub(crate) unsafe fn cuCtxSetCurrent(ctx: Context) -> CuResult {
    let driver = driver()?;
    let context = if ctx.is_null() { None } else { Some(driver.contexts.get(ctx)?) };
    Stack::with(driver, |stack| {
        stack.pop();
        context.map_or(Ok(()), |context| stack.push(entry(context)))
    })
}

pub(crate) unsafe fn cuCtxGetCurrent(pctx: *mut Context) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(pctx) }?;
    let address = Stack::with(driver, Stack::top).map_or(0, |(address, _)| address);
    place.write(Context(std::ptr::with_exposed_provenance_mut(address)));
    Ok(())
}

pub(crate) unsafe fn cuCtxGetDevice(device: *mut Device) -> CuResult {
    let context = current_unchecked()?;
    // SAFETY: the caller's promise.
    unsafe { args::out(device) }?.write(Device(c_int::try_from(context.ordinal()).unwrap_or(0)));
    Ok(())
}

/// The context that is named, or the current one for null.
fn named(ctx: Context) -> CuResult<&'static Ctx> {
    if ctx.is_null() { current_unchecked() } else { driver()?.contexts.get(ctx) }
}

pub(crate) unsafe fn cuCtxGetDevice_v2(device: *mut Device, ctx: Context) -> CuResult {
    let context = named(ctx)?;
    // SAFETY: the caller's promise.
    unsafe { args::out(device) }?.write(Device(c_int::try_from(context.ordinal()).unwrap_or(0)));
    Ok(())
}

pub(crate) unsafe fn cuCtxGetFlags(flags: *mut c_uint) -> CuResult {
    let context = current_unchecked()?;
    // SAFETY: the caller's promise.
    unsafe { args::out(flags) }?.write(context.flags.load(Ordering::Relaxed));
    Ok(())
}

pub(crate) unsafe fn cuCtxSetFlags(flags: c_uint) -> CuResult {
    current()?.flags.store(flags, Ordering::Relaxed);
    Ok(())
}

pub(crate) unsafe fn cuCtxGetId(ctx: Context, ctx_id: *mut u64) -> CuResult {
    let context = named(ctx)?;
    // SAFETY: the caller's promise.
    unsafe { args::out(ctx_id) }?.write(context.id.load(Ordering::Relaxed));
    Ok(())
}

pub(crate) unsafe fn cuCtxGetApiVersion(ctx: Context, version: *mut c_uint) -> CuResult {
    named(ctx)?;
    // SAFETY: the caller's promise.
    unsafe { args::out(version) }?.write(3020);
    Ok(())
}

pub(crate) unsafe fn cuCtxGetLimit(value: *mut usize, _limit: c_uint) -> CuResult {
    current()?;
    // SAFETY: the caller's promise.
    unsafe { args::out(value) }?.write(1024);
    Ok(())
}

/// Limits have no meaning here; any is accepted.
pub(crate) unsafe fn cuCtxSetLimit(_limit: c_uint, _value: usize) -> CuResult {
    current().map(|_| ())
}

pub(crate) unsafe fn cuCtxGetCacheConfig(config: *mut c_uint) -> CuResult {
    current()?;
    // SAFETY: the caller's promise.
    unsafe { args::out(config) }?.write(0);
    Ok(())
}

pub(crate) unsafe fn cuCtxSetCacheConfig(_config: c_uint) -> CuResult {
    current().map(|_| ())
}

pub(crate) unsafe fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> CuResult {
    current()?;
    // SAFETY: the caller's promise.
    if let Some(place) = unsafe { args::optional(least) } {
        place.write(0);
    }
    // SAFETY: the caller's promise.
    if let Some(place) = unsafe { args::optional(greatest) } {
        place.write(-5);
    }
    Ok(())
}

fn synchronize(context: &'static Ctx) -> CuResult {
    context.check()?;
    capture::synchronize(driver()?, context)?;
    context.wait();
    context.check()
}

pub(crate) unsafe fn cuCtxSynchronize() -> CuResult {
    synchronize(current_unchecked()?)
}

pub(crate) unsafe fn cuCtxSynchronize_v2(ctx: Context) -> CuResult {
    synchronize(named(ctx)?)
}

/// The other context, on another device than the current one.
fn peer_of(current: &Ctx, peer: Context) -> CuResult<&'static Ctx> {
    let peer = driver()?.contexts.get(peer)?;
    if peer.ordinal() == current.ordinal() { Err(CuError::INVALID_DEVICE) } else { Ok(peer) }
}

pub(crate) unsafe fn cuCtxEnablePeerAccess(peer_context: Context, flags: c_uint) -> CuResult {
    let own = current()?;
    if flags != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let bit = 1 << peer_of(own, peer_context)?.ordinal();
    match own.peers.fetch_or(bit, Ordering::AcqRel) & bit {
        0 => Ok(()),
        _ => Err(CuError::PEER_ACCESS_ALREADY_ENABLED),
    }
}

pub(crate) unsafe fn cuCtxDisablePeerAccess(peer_context: Context) -> CuResult {
    let own = current()?;
    let bit = 1 << peer_of(own, peer_context)?.ordinal();
    match own.peers.fetch_and(!bit, Ordering::AcqRel) & bit {
        0 => Err(CuError::PEER_ACCESS_NOT_ENABLED),
        _ => Ok(()),
    }
}

pub(crate) unsafe fn cuDevicePrimaryCtxRetain(pctx: *mut Context, dev: Device) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(pctx) }?;
    let context = driver.contexts.retain_primary(driver, ordinal(driver, dev)?)?;
    place.write(context.handle());
    Ok(())
}

pub(crate) unsafe fn cuDevicePrimaryCtxRelease_v2(dev: Device) -> CuResult {
    let driver = driver()?;
    driver.contexts.release_primary(ordinal(driver, dev)?, false)
}

pub(crate) unsafe fn cuDevicePrimaryCtxReset_v2(dev: Device) -> CuResult {
    let driver = driver()?;
    driver.contexts.release_primary(ordinal(driver, dev)?, true)
}

pub(crate) unsafe fn cuDevicePrimaryCtxSetFlags_v2(dev: Device, flags: c_uint) -> CuResult {
    let driver = driver()?;
    driver.contexts.set_primary_flags(ordinal(driver, dev)?, flags)
}

pub(crate) unsafe fn cuDevicePrimaryCtxGetState(
    dev: Device,
    flags: *mut c_uint,
    active: *mut c_int,
) -> CuResult {
    let driver = driver()?;
    let (value, is_active) = driver.contexts.primary_state(ordinal(driver, dev)?)?;
    // SAFETY: the caller's promise.
    unsafe { args::out(flags) }?.write(value);
    // SAFETY: the caller's promise.
    unsafe { args::out(active) }?.write(c_int::from(is_active));
    Ok(())
}
