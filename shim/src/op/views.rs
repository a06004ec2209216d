//! Taking mappings apart and putting them back at the same addresses, each marked after its driver call.

use std::time::Duration;

use cuda_sys::{AccessDesc, CuResult, DevicePtr, MemHandle};
use shim_core::world::{Key, Standing, View};

use super::trouble::{Trouble, Why};
use crate::driver::real;
use crate::kept::Kept;
use crate::transfer::TransferError;
use crate::world::world;

/// How long a call of the program that still uses a handle is waited for. The gates are closed and all work has
/// drained, so it can only be a peer's request that is just being answered.
const IN_FLIGHT: Duration = Duration::from_secs(10);

/// Unmaps what is mapped. Counts what it did.
pub(super) fn unmap(views: &[View]) -> Result<u64, Trouble> {
    let mut count = 0;
    for view in views.iter().filter(|view| view.standing != Standing::Dropped) {
        // SAFETY: a whole mapping of the program, whose work has drained.
        unsafe { real::cuMemUnmap(DevicePtr(view.address), narrow(view.len)) }
            .map_err(|error| trouble("cuMemUnmap", view)(error))?;
        world().stand(view.address, Standing::Dropped);
        count += 1;
    }
    Ok(count)
}

/// Gives an allocation's real handle back, and closes the driver's descriptor of it first.
pub(super) fn drop_backing(key: Key) -> Result<(), Why> {
    let withheld = world().withhold(key, IN_FLIGHT).map_err(|_| Why::InUse)?;
    let descriptor: Option<Kept> = world().attached_to(key, |attached| attached.descriptor.take()).flatten();
    drop(descriptor);
    let Some(real) = withheld else {
        world().admit(key);
        return Ok(());
    };
    // SAFETY: the one real handle of the allocation, which nobody uses.
    if let Err(error) = unsafe { real::cuMemRelease(real) } {
        world().admit(key);
        return Err(TransferError::Driver { call: "cuMemRelease", error }.into());
    }
    world().dropped(key);
    Ok(())
}

/// Maps what is not mapped, and grants the access that is missing. Counts what it did.
pub(super) fn map(real: MemHandle, views: &[View]) -> Result<u64, Trouble> {
    let mut count = 0;
    for view in views.iter().filter(|view| view.standing != Standing::Live) {
        if view.standing == Standing::Dropped {
            // SAFETY: the range is the program's reservation, and nothing is mapped there since we unmapped it.
            unsafe {
                real::cuMemMap(DevicePtr(view.address), narrow(view.len), narrow(view.offset), real, 0)
            }
            .map_err(|error| trouble("cuMemMap", view)(error))?;
            world().stand(view.address, Standing::Bare);
        }
        grant(view).map_err(|error| trouble("cuMemSetAccess", view)(error))?;
        world().stand(view.address, Standing::Live);
        count += 1;
    }
    Ok(count)
}

/// Grants what the program had granted. Grants of one range are one call.
fn grant(view: &View) -> CuResult {
    let mut rest: Vec<_> = view.grants.iter().collect();
    rest.sort_by_key(|grant| (grant.from, grant.to));
    for same in rest.chunk_by(|one, other| (one.from, one.to) == (other.from, other.to)) {
        let Some(first) = same.first() else { continue };
        let descriptors: Vec<AccessDesc> =
            same.iter().map(|grant| AccessDesc { location: grant.location, flags: grant.flags }).collect();
        let (address, len) = (DevicePtr(view.address + first.from), narrow(first.to - first.from));
        // SAFETY: a mapped range, and as many descriptors as said.
        unsafe { real::cuMemSetAccess(address, len, descriptors.as_ptr(), descriptors.len()) }?;
    }
    Ok(())
}

fn trouble(call: &'static str, view: &View) -> impl FnOnce(cuda_sys::CuError) -> Trouble {
    let object = format!("the mapping of {} bytes at {:#x}", view.len, view.address);
    move |error| Trouble::of(object, TransferError::Driver { call, error }.into())
}

/// A size as the driver takes it. The program gave it as one.
fn narrow(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
