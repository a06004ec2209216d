//! Registrations of host memory, ended and made again where the switch for it is on: each is marked after its driver
//! call. Without the switch there are none here.

use core::ffi::c_void;
use core::ptr;

use cuda_sys::{CuError, DevicePtr};

use super::trouble::{Trouble, Why};
use crate::driver::real;
use crate::registered::{self, Form, Registration, Standing};
use crate::transfer::{Current, TransferError, certain};

/// Ends what is registered.
pub(super) fn drop_all() -> Result<(), Trouble> {
    for (name, it) in registered::all() {
        if it.standing == Standing::Live {
            drop_one(name, &it).map_err(|why| trouble(&it, why))?;
        }
    }
    Ok(())
}

/// Registers again what is not registered.
pub(super) fn bring_back() -> Result<(), Trouble> {
    for (name, it) in registered::all() {
        if let Standing::Dropped(device) = it.standing {
            bring_back_one(&it, device).map_err(|why| trouble(&it, why))?;
            registered::stand(name, Standing::Live);
        }
    }
    Ok(())
}

fn drop_one(name: u64, it: &Registration) -> Result<(), Why> {
    if !is_mapped(it) {
        // The driver holds the pages. Nobody could register them again.
        log!("{}: the program has unmapped it, so it stays registered", text(it));
        return Ok(());
    }
    let current = match Current::of(it.context) {
        // It went without passing a hook, and its registrations with it.
        Err(TransferError::Driver {
            error: CuError::CONTEXT_IS_DESTROYED | CuError::INVALID_CONTEXT,
            ..
        }) => {
            registered::forget(name);
            return Ok(());
        }
        current => current?,
    };
    let device = device_pointer(it)?;
    if certain::unregister(start(it))? {
        registered::stand(name, Standing::Dropped(device));
    } else {
        registered::forget(name);
    }
    drop(current);
    Ok(())
}

/// Registers it. After an error it is not registered, so that it can be tried again.
fn bring_back_one(it: &Registration, device: Option<DevicePtr>) -> Result<(), Why> {
    let _current = Current::of(it.context)?;
    let made = register(it).map_err(Why::from).and_then(|()| lies_at(it, device));
    made.inspect_err(|_| {
        if let Err(error) = certain::unregister(start(it)) {
            log!("{}: after a failed registration: {error}", text(it));
        }
    })
}

/// By the form of the call that the program used.
fn register(it: &Registration) -> Result<(), TransferError> {
    let (start, len, flags) = (start(it), it.len, it.flags);
    let (call, made) = match it.form {
        Form::First => {
            // SAFETY: the program's range, with its flags.
            ("cuMemHostRegister", unsafe { real::cuMemHostRegister(start, len, flags) })
        }
        Form::Second => {
            // SAFETY: as above.
            ("cuMemHostRegister_v2", unsafe { real::cuMemHostRegister_v2(start, len, flags) })
        }
    };
    made.map_err(TransferError::driver(call))
}

/// Whether devices reach it where they did: the program has the address.
fn lies_at(it: &Registration, before: Option<DevicePtr>) -> Result<(), Why> {
    let Some(before) = before else { return Ok(()) };
    match device_pointer(it)? {
        Some(now) if now == before => Ok(()),
        now => Err(Why::Moved { from: before.0, to: now.map(|now| now.0) }),
    }
}

/// Where devices reach it; `None` where they do not.
fn device_pointer(it: &Registration) -> Result<Option<DevicePtr>, TransferError> {
    let mut device = DevicePtr(0);
    // SAFETY: `device` is writable.
    match unsafe { real::cuMemHostGetDevicePointer_v2(&raw mut device, start(it), 0) } {
        Ok(()) => Ok(Some(device)),
        Err(CuError::INVALID_VALUE) => Ok(None),
        Err(error) => Err(TransferError::Driver { call: "cuMemHostGetDevicePointer_v2", error }),
    }
}

/// Whether all of it is memory of the process still.
fn is_mapped(it: &Registration) -> bool {
    // SAFETY: no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let page = usize::try_from(page).unwrap_or(4096);
    let from = it.start - it.start % page;
    let len = it.start.saturating_add(it.len) - from;
    // SAFETY: writes nothing: the kernel only walks the mappings (since 2.6.19), and says where there are none.
    unsafe { libc::msync(ptr::with_exposed_provenance_mut(from), len, libc::MS_ASYNC) == 0 }
}

fn start(it: &Registration) -> *mut c_void {
    ptr::with_exposed_provenance_mut(it.start)
}

fn text(it: &Registration) -> String {
    format!("the registration of {} bytes of host memory at {:#x}", it.len, it.start)
}

fn trouble(it: &Registration, why: Why) -> Trouble {
    Trouble::of(text(it), why)
}
