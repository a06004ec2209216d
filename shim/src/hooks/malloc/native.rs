//! Memory that stays the driver's own: stream-ordered and page-locked memory, and what ours cannot stand in for. It is passed
//! on and counted, because the driver will need as much again when it brings the process back.

use core::ffi::{c_uint, c_void};

use cuda_sys::{Context, CuResult, DevicePtr, MemPool, Stream};
use protocol::DriverMemory;
use shim_core::calls::CallId;
use shim_core::gate;
use shim_core::tally::{Kind, Piece, Tally};

use crate::driver::real;
use crate::fresh::Fresh;
use crate::hooks::refuse;
use crate::{answers, captures};

static TALLY: Fresh<Tally> = Fresh::new();

/// What is alive.
pub(crate) fn sums() -> DriverMemory {
    TALLY.get().sums()
}

/// Forgets what the parent had: called in a forked child.
pub(crate) fn forked() {
    TALLY.forked();
}

/// A context is gone, and what was made in it.
pub(crate) fn context_gone(context: Context) {
    TALLY.get().owner_gone(wide(context.0.addr()));
}

/// Records what a call that succeeded has given.
///
/// # Safety
/// The driver has written to `out`.
pub(super) unsafe fn given(kind: Kind, out: *const DevicePtr, bytes: usize) {
    let owner = match kind {
        // It lies in a pool, which belongs to the device.
        Kind::Async => 0,
        Kind::Malloc | Kind::Host => wide(answers::current().0.addr()),
    };
    // SAFETY: the caller's.
    let at = unsafe { out.read() };
    TALLY.get().add(at.0, Piece { kind, bytes: wide(bytes), owner });
}

/// Gives back what may have been counted.
pub(super) fn taken(at: u64, give_back: impl FnOnce() -> CuResult) -> CuResult {
    let taken = TALLY.get().take(at);
    give_back().inspect_err(|_| {
        if let Some(piece) = taken {
            TALLY.get().add(at, piece);
        }
    })
}

fn wide(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

macro_rules! stream_ordered {
    ($($name:ident($($pool:ident)?);)+) => {$(
        /// # Safety
        /// As the driver's function of this name.
        pub(crate) unsafe fn $name(
            dptr: *mut DevicePtr,
            bytesize: usize,
            $($pool: MemPool,)?
            h_stream: Stream,
        ) -> CuResult {
            let call = CallId::$name;
            let _pass = gate::enter_on(call, || captures::capturing(call, h_stream));
            // SAFETY: the caller's arguments, unchanged.
            unsafe { real::$name(dptr, bytesize, $($pool,)? h_stream) }?;
            // SAFETY: it succeeded, so the driver has written there.
            unsafe { given(Kind::Async, dptr, bytesize) };
            // SAFETY: as above.
            $(refuse::allocated_from($pool, unsafe { dptr.read() }, bytesize);)?
            Ok(())
        }
    )+};
}

stream_ordered! {
    cuMemAllocAsync();
    cuMemAllocAsync_ptsz();
    cuMemAllocFromPoolAsync(pool);
    cuMemAllocFromPoolAsync_ptsz(pool);
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemHostAlloc(pp: *mut *mut c_void, bytesize: usize, flags: c_uint) -> CuResult {
    let _pass = gate::enter(CallId::cuMemHostAlloc);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemHostAlloc(pp, bytesize, flags) }?;
    // SAFETY: it succeeded, so the driver has written an address there.
    unsafe { given(Kind::Host, pp.cast(), bytesize) };
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemAllocHost_v2(pp: *mut *mut c_void, bytesize: usize) -> CuResult {
    let _pass = gate::enter(CallId::cuMemAllocHost_v2);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemAllocHost_v2(pp, bytesize) }?;
    // SAFETY: it succeeded, so the driver has written an address there.
    unsafe { given(Kind::Host, pp.cast(), bytesize) };
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemFreeHost(p: *mut c_void) -> CuResult {
    let _pass = gate::enter(CallId::cuMemFreeHost);
    // SAFETY: the caller's argument, unchanged.
    taken(wide(p.addr()), || unsafe { real::cuMemFreeHost(p) })
}
