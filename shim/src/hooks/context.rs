//! Contexts: which the process has, so that a drain knows what to wait for.
//!
//! What makes a context records it once it is made; what may destroy one takes it out of the table before, and puts it
//! back where the driver refused. All of it happens under the pass.

use core::ffi::{c_int, c_uint, c_void};

use cuda_sys::{Context, CuResult, DevResourceDesc, Device, GreenContext};
use shim_core::calls::CallId;
use shim_core::gate;

use crate::contexts::{self, Kind, Known, Leaving};
use crate::driver::real;

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuCtxAttach(pctx: *mut Context, flags: c_uint) -> CuResult {
    let _pass = gate::enter(CallId::cuCtxAttach);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuCtxAttach(pctx, flags) }?;
    let mut device = Device(0);
    // SAFETY: `device` is writable; what was attached to is the current context.
    if unsafe { real::cuCtxGetDevice(&raw mut device) }.is_ok() {
        // SAFETY: it succeeded.
        unsafe { made(pctx, device, Kind::Own) };
    }
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuCtxCreate(pctx: *mut Context, flags: c_uint, dev: Device) -> CuResult {
    let _pass = gate::enter(CallId::cuCtxCreate);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuCtxCreate(pctx, flags, dev) }?;
    // SAFETY: it succeeded.
    unsafe { made(pctx, dev, Kind::Own) };
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuCtxCreate_v2(pctx: *mut Context, flags: c_uint, dev: Device) -> CuResult {
    let _pass = gate::enter(CallId::cuCtxCreate_v2);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuCtxCreate_v2(pctx, flags, dev) }?;
    // SAFETY: it succeeded.
    unsafe { made(pctx, dev, Kind::Own) };
    Ok(())
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
    unsafe { real::cuCtxCreate_v3(pctx, params_array, num_params, flags, dev) }?;
    // SAFETY: it succeeded.
    unsafe { made(pctx, dev, Kind::Own) };
    Ok(())
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
    unsafe { real::cuCtxCreate_v4(pctx, ctx_create_params, flags, dev) }?;
    // SAFETY: it succeeded.
    unsafe { made(pctx, dev, Kind::Own) };
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuCtxDestroy(ctx: Context) -> CuResult {
    let _pass = gate::enter(CallId::cuCtxDestroy);
    let leaving = contexts::leave(ctx);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuCtxDestroy(ctx) }?;
    leaving.gone();
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuCtxDestroy_v2(ctx: Context) -> CuResult {
    let _pass = gate::enter(CallId::cuCtxDestroy_v2);
    let leaving = contexts::leave(ctx);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuCtxDestroy_v2(ctx) }?;
    leaving.gone();
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuCtxDetach(ctx: Context) -> CuResult {
    let _pass = gate::enter(CallId::cuCtxDetach);
    let leaving = contexts::give_back(|known, _| known.context == ctx);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuCtxDetach(ctx) }?;
    leaving.gone();
    Ok(())
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
    let leaving = contexts::give_back(|known, kind| is_primary(known, kind, dev));
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuDevicePrimaryCtxRelease(dev) }?;
    given_back(dev, leaving);
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuDevicePrimaryCtxRelease_v2(dev: Device) -> CuResult {
    let _pass = gate::enter(CallId::cuDevicePrimaryCtxRelease_v2);
    let leaving = contexts::give_back(|known, kind| is_primary(known, kind, dev));
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuDevicePrimaryCtxRelease_v2(dev) }?;
    given_back(dev, leaving);
    Ok(())
}

/// A use of a primary context was given back. A runtime may hold it by a road that nobody stands in.
fn given_back(device: Device, leaving: Leaving) {
    if contexts::is_active(device) {
        leaving.live_on();
    } else {
        leaving.gone();
    }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuDevicePrimaryCtxReset(dev: Device) -> CuResult {
    let _pass = gate::enter(CallId::cuDevicePrimaryCtxReset);
    let leaving = contexts::leave_primary(dev);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuDevicePrimaryCtxReset(dev) }?;
    leaving.gone();
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuDevicePrimaryCtxReset_v2(dev: Device) -> CuResult {
    let _pass = gate::enter(CallId::cuDevicePrimaryCtxReset_v2);
    let leaving = contexts::leave_primary(dev);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuDevicePrimaryCtxReset_v2(dev) }?;
    leaving.gone();
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuDevicePrimaryCtxRetain(pctx: *mut Context, dev: Device) -> CuResult {
    let _pass = gate::enter(CallId::cuDevicePrimaryCtxRetain);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuDevicePrimaryCtxRetain(pctx, dev) }?;
    // SAFETY: it succeeded.
    unsafe { made(pctx, dev, Kind::Primary) };
    Ok(())
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
    unsafe { real::cuGreenCtxCreate(ph_ctx, desc, dev, flags) }?;
    // SAFETY: it succeeded, so the driver has written there.
    let green = unsafe { ph_ctx.read() };
    let mut context = Context::NULL;
    // SAFETY: `context` is writable, the green context was just made.
    match unsafe { real::cuCtxFromGreenCtx(&raw mut context, green) } {
        Ok(()) => contexts::obtained(context, dev, Kind::Green(green)),
        // Waiting for the primary context waits for the green ones as well.
        Err(error) => log!("cuCtxFromGreenCtx of a new green context: {error}"),
    }
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuGreenCtxDestroy(h_ctx: GreenContext) -> CuResult {
    let _pass = gate::enter(CallId::cuGreenCtxDestroy);
    let leaving = contexts::leave_green(h_ctx);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuGreenCtxDestroy(h_ctx) }?;
    leaving.gone();
    Ok(())
}

/// Records a context that the driver has just handed out.
///
/// # Safety
/// The driver has written to `out`.
unsafe fn made(out: *mut Context, device: Device, kind: Kind) {
    // SAFETY: as the caller says.
    contexts::obtained(unsafe { out.read() }, device, kind);
}

fn is_primary(known: Known, kind: Kind, device: Device) -> bool {
    kind == Kind::Primary && known.device == device
}
