//! Contexts: which the process has, so that a drain knows what to wait for.

use core::ffi::{c_int, c_uint, c_void};

use cuda_sys::{Context, CuResult, DevResourceDesc, Device, GreenContext};
use shim_core::calls::CallId;
use shim_core::gate;

use crate::driver::real;

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuCtxAttach(pctx: *mut Context, flags: c_uint) -> CuResult {
    let _pass = gate::enter(CallId::cuCtxAttach);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuCtxAttach(pctx, flags) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuCtxCreate(pctx: *mut Context, flags: c_uint, dev: Device) -> CuResult {
    let _pass = gate::enter(CallId::cuCtxCreate);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuCtxCreate(pctx, flags, dev) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuCtxCreate_v2(pctx: *mut Context, flags: c_uint, dev: Device) -> CuResult {
    let _pass = gate::enter(CallId::cuCtxCreate_v2);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuCtxCreate_v2(pctx, flags, dev) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuCtxCreate_v3(
    pctx: *mut Context,
    params_array: *mut c_void,
    num_params: c_int,
    flags: c_uint,
    dev: Device,
) -> CuResult {
    let _pass = gate::enter(CallId::cuCtxCreate_v3);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuCtxCreate_v3(pctx, params_array, num_params, flags, dev) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuCtxCreate_v4(
    pctx: *mut Context,
    ctx_create_params: *mut c_void,
    flags: c_uint,
    dev: Device,
) -> CuResult {
    let _pass = gate::enter(CallId::cuCtxCreate_v4);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuCtxCreate_v4(pctx, ctx_create_params, flags, dev) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuCtxDestroy(ctx: Context) -> CuResult {
    let _pass = gate::enter(CallId::cuCtxDestroy);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuCtxDestroy(ctx) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuCtxDestroy_v2(ctx: Context) -> CuResult {
    let _pass = gate::enter(CallId::cuCtxDestroy_v2);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuCtxDestroy_v2(ctx) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuCtxDetach(ctx: Context) -> CuResult {
    let _pass = gate::enter(CallId::cuCtxDetach);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuCtxDetach(ctx) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuCtxFromGreenCtx(p_context: *mut Context, h_ctx: GreenContext) -> CuResult {
    let _pass = gate::enter(CallId::cuCtxFromGreenCtx);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuCtxFromGreenCtx(p_context, h_ctx) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuDevicePrimaryCtxRelease(dev: Device) -> CuResult {
    let _pass = gate::enter(CallId::cuDevicePrimaryCtxRelease);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuDevicePrimaryCtxRelease(dev) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuDevicePrimaryCtxRelease_v2(dev: Device) -> CuResult {
    let _pass = gate::enter(CallId::cuDevicePrimaryCtxRelease_v2);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuDevicePrimaryCtxRelease_v2(dev) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuDevicePrimaryCtxReset(dev: Device) -> CuResult {
    let _pass = gate::enter(CallId::cuDevicePrimaryCtxReset);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuDevicePrimaryCtxReset(dev) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuDevicePrimaryCtxReset_v2(dev: Device) -> CuResult {
    let _pass = gate::enter(CallId::cuDevicePrimaryCtxReset_v2);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuDevicePrimaryCtxReset_v2(dev) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuDevicePrimaryCtxRetain(pctx: *mut Context, dev: Device) -> CuResult {
    let _pass = gate::enter(CallId::cuDevicePrimaryCtxRetain);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuDevicePrimaryCtxRetain(pctx, dev) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuGreenCtxCreate(
    ph_ctx: *mut GreenContext,
    desc: DevResourceDesc,
    dev: Device,
    flags: c_uint,
) -> CuResult {
    let _pass = gate::enter(CallId::cuGreenCtxCreate);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuGreenCtxCreate(ph_ctx, desc, dev, flags) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuGreenCtxDestroy(h_ctx: GreenContext) -> CuResult {
    let _pass = gate::enter(CallId::cuGreenCtxDestroy);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuGreenCtxDestroy(h_ctx) }
}
