//! Memory that processes share by descriptor: tickets go out, tickets come in.

use core::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::time::{Duration, Instant};

use cuda_sys::{AllocationProp, CuError, CuResult, HandleType, MemHandle};
use shim_core::calls::CallId;
use shim_core::gate;
use shim_core::world::{Description, Key, Origin, Pin};

use super::super::fabric;
use super::memory::name;
use crate::attached::Attached;
use crate::config;
use crate::driver::real;
use crate::kept::Kept;
use crate::peer::{self, PeerError};
use crate::ticket::{self, Claim, Vault};
use crate::world::{self, Real, real_handle, world};

/// How long a peer is asked before it is asked anew.
const ASK: Duration = Duration::from_secs(10);

/// Exports once for real, and hands the program a ticket.
///
/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemExportToShareableHandle(
    shareable_handle: *mut c_void,
    handle: MemHandle,
    handle_type: HandleType,
    flags: u64,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemExportToShareableHandle);
    world::sweep();
    let found = real_handle(handle)?;
    let Some(pin) = found.pin() else {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::cuMemExportToShareableHandle(shareable_handle, handle, handle_type, flags) };
    };
    if pin.is_imported() {
        // The driver does not export an import (580.159.04), whatever is behind ours.
        return Err(CuError::INVALID_VALUE);
    }
    let by_ticket = handle_type == HandleType::POSIX_FD && flags == 0 && !shareable_handle.is_null();
    if !by_ticket || config::raw_fd() {
        // SAFETY: the caller's arguments, with the handle that the driver knows.
        unsafe { real::cuMemExportToShareableHandle(shareable_handle, found.handle(), handle_type, flags) }?;
        world().mark_raw(pin);
        return Ok(());
    }
    export(pin)?;
    let issued = issue(pin).map_err(|error| {
        log!("no ticket can be handed out: {error}");
        CuError::OPERATING_SYSTEM
    })?;
    // SAFETY: not null, and the driver's contract makes it writable: for this type it is a descriptor's number.
    unsafe { shareable_handle.cast::<c_int>().write(issued.into_raw_fd()) };
    Ok(())
}

/// Sees to it that the driver's own descriptor of a pinned allocation is at hand.
pub(crate) fn export(pin: &Pin) -> CuResult {
    if world().attached(pin, |attached| attached.has_descriptor()) == Some(true) {
        return Ok(());
    }
    let mut fd: c_int = -1;
    // SAFETY: `fd` is writable, and for this type the driver writes a descriptor's number; the handle is pinned.
    unsafe { real::cuMemExportToShareableHandle((&raw mut fd).cast(), pin.real(), HandleType::POSIX_FD, 0) }?;
    // SAFETY: the driver has just opened it for us.
    let descriptor = unsafe { OwnedFd::from_raw_fd(fd) };
    let keep = |what: Description| world().attached(pin, |attached| attached.keep(what.id, descriptor));
    let kept = world().describe(pin).and_then(keep);
    kept.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into())).map_err(|error| {
        log!("the driver's descriptor cannot be kept: {error}");
        CuError::OPERATING_SYSTEM
    })
}

/// Exports memory that was made again and filled, where a ticket that somebody holds would lead nowhere without its exporter.
pub(crate) fn restock(key: Key, what: &Description) -> CuResult {
    if world().attached_to(key, |attached| attached.is_missed()) != Some(true) {
        return Ok(());
    }
    let Ok(real) = Real::of_ticket(what.id, what.secret) else { return Ok(()) };
    real.pin().map_or(Ok(()), export)
}

/// A descriptor of the allocation's ticket.
fn issue(pin: &Pin) -> io::Result<OwnedFd> {
    let what = world().publish(pin).ok_or(io::ErrorKind::NotFound)?;
    let exporter = std::process::id().cast_signed();
    let Description { id, secret, size, prop, multicast, .. } = what;
    let claim = Claim { id, secret, exporter, size, prop, multicast };
    let issued = world().attached(pin, |attached| attached.issue(&claim));
    issued.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
}

/// Imports by ticket from the process that has the memory, or by the driver's own descriptor.
///
/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemImportFromShareableHandle(
    handle: *mut MemHandle,
    os_handle: *mut c_void,
    sh_handle_type: HandleType,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemImportFromShareableHandle);
    world::sweep();
    if handle.is_null() {
        // SAFETY: the caller's arguments, unchanged: the driver decides what a null pointer is worth.
        return unsafe { real::cuMemImportFromShareableHandle(handle, os_handle, sh_handle_type) };
    }
    fabric::permitted(sh_handle_type)?;
    let claim = match c_int::try_from(os_handle.addr()) {
        Ok(descriptor) if sh_handle_type == HandleType::POSIX_FD => ticket::read(descriptor),
        _ => None,
    };
    let imported = match claim.map(|(claim, vault)| by_ticket(&claim, vault)) {
        Some(Some(result)) => result?,
        // SAFETY: the caller's arguments, unchanged.
        Some(None) => unsafe { foreign(os_handle, sh_handle_type) }.map_err(leads_nowhere)?,
        // SAFETY: as above.
        None => unsafe { foreign(os_handle, sh_handle_type) }?,
    };
    // SAFETY: not null, and the driver's contract makes it writable.
    unsafe { handle.write(imported) };
    Ok(())
}

/// The answer for a ticket that leads to no memory: it is made up, or all who had the memory are gone and left no vault with
/// it. What the driver thinks of our socket helps nobody, unless it answers no call at all.
fn leads_nowhere(error: CuError) -> CuError {
    match error {
        CuError::NOT_INITIALIZED | CuError::DEINITIALIZED => error,
        _ => CuError::INVALID_HANDLE,
    }
}

/// The handle for what a ticket claims. `None` where nobody has it: the ticket is worth as much as any file.
///
/// Whoever has the memory is asked first, so that importers know of each other's. The vault is for tickets that have
/// outlived them all.
pub(crate) fn by_ticket(claim: &Claim, vault: Option<Vault>) -> Option<CuResult<MemHandle>> {
    if let Ok(handle) = world().join(claim.id, claim.secret) {
        return Some(Ok(handle));
    }
    let received = match fetch(claim) {
        Some(received) => Vault::open(received).map(|(descriptor, lent)| (descriptor, lent.or(vault))),
        None => {
            let vault = vault?;
            let descriptor = vault.look()?;
            log!("import of allocation {}: its ticket has outlived everybody who had it", claim.id);
            Kept::new(descriptor).map(|descriptor| (descriptor, Some(vault)))
        }
    };
    Some(
        received
            .map_err(|_| CuError::OPERATING_SYSTEM)
            .and_then(|(descriptor, vault)| import(claim, descriptor, vault)),
    )
}

/// Asks the exporter, and where that is gone everybody, for a descriptor. A peer that is suspended is waited for.
fn fetch(claim: &Claim) -> Option<OwnedFd> {
    let mut gone = claim.exporter == std::process::id().cast_signed();
    loop {
        let deadline = Instant::now() + ASK;
        let answer = if gone {
            peer::find(claim.id, claim.secret, deadline)
        } else {
            peer::export(claim.exporter, claim.id, claim.secret, deadline)
        };
        match answer {
            Ok(descriptor) => return Some(descriptor),
            Err(PeerError::TimedOut { pid }) => log!("process {pid} has not handed out {} yet", claim.id),
            Err(error) if gone => {
                log!("import of allocation {}: {error}", claim.id);
                return None;
            }
            Err(error) => {
                log!("import of allocation {} from process {}: {error}", claim.id, claim.exporter);
                gone = true;
            }
        }
    }
}

/// Imports memory by the driver's descriptor.
fn import(claim: &Claim, descriptor: Kept, vault: Option<Vault>) -> CuResult<MemHandle> {
    let real = import_descriptor(&descriptor)?;
    let mut prop = claim.prop;
    let mut told = AllocationProp::default();
    // A multicast object is on no device. `told` is writable, the handle is new.
    let told_by_driver = claim.multicast.is_none()
        // SAFETY: see above.
        && unsafe { real::cuMemGetAllocationPropertiesFromHandle(&raw mut told, real) }.is_ok();
    if told_by_driver {
        // The same device may have another ordinal here.
        prop.location = told.location;
    }
    let Claim { id, secret, size, exporter, multicast, .. } = *claim;
    let what = Description { id, secret, size, prop, origin: Origin::Imported { exporter }, multicast };
    let adopted = world().adopt_import(real, what);
    if let Some(surplus) = adopted.surplus {
        // SAFETY: imported above, and known to nobody else.
        if let Err(error) = unsafe { real::cuMemRelease(surplus) } {
            log!("cuMemRelease of a second import of allocation {id}: {error}");
        }
    }
    if let Some(pin) = real_handle(adopted.handle)?.pin() {
        let came = |attached: &mut Attached| attached.imported_by(descriptor, vault);
        world().attached(pin, came);
    }
    Ok(adopted.handle)
}

/// Imports by the driver's own descriptor.
pub(crate) fn import_descriptor(descriptor: &Kept) -> CuResult<MemHandle> {
    use std::os::fd::AsRawFd;
    let fd = descriptor.get().ok_or(CuError::OPERATING_SYSTEM)?;
    let number = usize::try_from(fd.as_raw_fd()).unwrap_or(usize::MAX);
    let mut real = MemHandle::NONE;
    // SAFETY: `real` is writable; for this type the second argument is a descriptor's number.
    unsafe {
        real::cuMemImportFromShareableHandle(
            &raw mut real,
            core::ptr::without_provenance_mut(number),
            HandleType::POSIX_FD,
        )
    }?;
    Ok(real)
}

/// Imports what a process without the shim, or a fabric, has handed out. Nobody can make such memory again.
///
/// # Safety
/// As `cuMemImportFromShareableHandle`.
unsafe fn foreign(os_handle: *mut c_void, sh_handle_type: HandleType) -> CuResult<MemHandle> {
    let (id, secret) = name()?;
    let mut real = MemHandle::NONE;
    // SAFETY: `real` is writable; the rest is the caller's, unchanged.
    unsafe { real::cuMemImportFromShareableHandle(&raw mut real, os_handle, sh_handle_type) }?;
    let mut prop = AllocationProp::default();
    // SAFETY: `prop` is writable, the handle is new.
    if let Err(error) = unsafe { real::cuMemGetAllocationPropertiesFromHandle(&raw mut prop, real) } {
        log!("properties of imported memory: {error}");
    }
    // The driver does not tell the size.
    let what = Description { id, secret, size: 0, prop, origin: Origin::Foreign, multicast: None };
    Ok(world().adopt(real, what))
}
