//! Copies and fills that name no stream: of memory of ours with `SYNC_MEMOPS` they wait for their end.
//!
//! The driver lets fills, and copies within devices, go on after it has returned, but not where the program has set that attribute.
//! It refuses to set it for the kind of memory that stands in for `cuMemAlloc` (801), so the wait is here. A program that
//! never sets it pays for one look at a flag that nobody writes.

use core::ffi::{c_uint, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use cuda_sys::{for_each_call, *};
use shim_core::blocks::Found;
use shim_core::calls::CallId;
use shim_core::gate;

use crate::blocks::blocks;
use crate::boundary::Errno;
use crate::captures;
use crate::driver::real;

/// Whether the program has ever set the attribute for memory of ours. Alone in its cache lines: what is written often must
/// not lie beside what every copy reads.
#[derive(Debug)]
#[repr(align(128))]
struct Used(AtomicBool);

static USED: Used = Used(AtomicBool::new(false));

/// The attribute is about to be set. Whoever copies on behalf of this has been told by the program, and so sees the flag.
pub(crate) fn note() {
    USED.0.store(true, Ordering::Relaxed);
}

/// The parent's memory is not the child's: called in a forked child.
pub(crate) fn forked() {
    USED.0.store(false, Ordering::Relaxed);
}

/// An argument of a copy or a fill, as far as it can be memory of `cuMemAlloc`.
trait Argument: Copy {
    /// The address; 0 where it is none.
    fn address(self) -> u64;
}

impl Argument for DevicePtr {
    fn address(self) -> u64 {
        self.0
    }
}

// What is called the host's may be any address: they are all of one space.
impl Argument for *const c_void {
    fn address(self) -> u64 {
        u64::try_from(self.addr()).unwrap_or(0)
    }
}

impl Argument for *mut c_void {
    fn address(self) -> u64 {
        self.cast_const().address()
    }
}

macro_rules! no_addresses {
    ($($ty:ty),+) => {$(
        impl Argument for $ty {
            fn address(self) -> u64 {
                0
            }
        }
    )+};
}

no_addresses!(usize, c_uint, u16, u8, Array, Context);

macro_rules! hook {
    // A copy of rows or slices.
    ($class:ident sync fn $name:ident($copy:ident: $ty:ty)) => {
        /// # Safety
        /// As the driver's function of this name.
        #[inline]
        pub(crate) unsafe fn $name($copy: $ty) -> CuResult {
            let _pass = gate::enter(CallId::$name);
            // SAFETY: the caller's argument, unchanged.
            unsafe { real::$name($copy) }?;
            if !USED.0.load(Ordering::Relaxed) {
                return Ok(());
            }
            // SAFETY: the driver has read it.
            wait_if_set(CallId::$name, &unsafe { described(CallId::$name, $copy) })
        }
    };
    ($class:ident sync fn $name:ident($($arg:ident: $ty:ty),*)) => {
        /// # Safety
        /// As the driver's function of this name.
        #[inline]
        pub(crate) unsafe fn $name($($arg: $ty),*) -> CuResult {
            let _pass = gate::enter(CallId::$name);
            // SAFETY: the caller's arguments, unchanged.
            unsafe { real::$name($($arg),*) }?;
            if !USED.0.load(Ordering::Relaxed) {
                return Ok(());
            }
            wait_if_set(CallId::$name, &[$($arg.address()),*])
        }
    };
    ($class:ident $family:ident fn $name:ident($($arg:ident: $ty:ty),*) $(on $stream:ident $(.$field:ident)?)?) => {};
}

macro_rules! hooks {
    ($($class:ident $family:ident fn $name:ident($($arg:ident: $ty:ty),*) $(on $stream:ident $(.$field:ident)?)?;)+) => {
        $(hook! { $class $family fn $name($($arg: $ty),*) $(on $stream $(.$field)?)? })+
    };
}

for_each_call!(hooks);

/// Both ends of a copy of rows or slices, as far as they are on a device.
///
/// # Safety
/// `copy` is what the function takes.
#[cold]
unsafe fn described(call: CallId, copy: *const c_void) -> [u64; 2] {
    let on_device = |kind, at: DevicePtr| match kind {
        MemoryType::DEVICE | MemoryType::UNIFIED => at.0,
        _ => 0,
    };
    if call.name().starts_with("cuMemcpy3D") {
        // SAFETY: the caller's; the form for peers differs in what is not looked at.
        let copy = unsafe { copy.cast::<Memcpy3D>().read() };
        [on_device(copy.dst_kind, copy.dst_device), on_device(copy.src_kind, copy.src_device)]
    } else {
        // SAFETY: the caller's.
        let copy = unsafe { copy.cast::<Memcpy2D>().read() };
        [on_device(copy.dst_kind, copy.dst_device), on_device(copy.src_kind, copy.src_device)]
    }
}

/// Waits for the call that has just been made, if one of the addresses lies in memory with the attribute.
#[cold]
fn wait_if_set(call: CallId, addresses: &[u64]) -> CuResult {
    // Before the table: who waits for its lock may be left with a number of the kernel's.
    let _errno = Errno::save();
    let set = |at: &u64| matches!(blocks().find(*at), Found::Block(block) if block.sync_memops);
    if !addresses.iter().any(set) {
        return Ok(());
    }
    if captures::active() == 0 {
        return wait(call);
    }
    // A wait would invalidate captures that the copy itself does not disturb, unless the thread declares it harmless.
    let mut mode = captures::RELAXED;
    // SAFETY: a place for the mode until now.
    unsafe { real::cuThreadExchangeStreamCaptureMode(&raw mut mode) }?;
    let waited = wait(call);
    // SAFETY: as above.
    let back = unsafe { real::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    waited.and(back)
}

/// Waits for the default stream that the call ran on.
fn wait(call: CallId) -> CuResult {
    if call.is_per_thread() {
        // SAFETY: null is the default stream.
        unsafe { real::cuStreamSynchronize_ptsz(Stream::NULL) }
    } else {
        // SAFETY: as above.
        unsafe { real::cuStreamSynchronize(Stream::NULL) }
    }
}
