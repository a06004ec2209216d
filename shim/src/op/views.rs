//! Taking mappings apart and putting them back at the same addresses, each marked after its driver call.

use std::time::Duration;

use cuda_sys::{AccessDesc, CuResult, DevicePtr, MemHandle};
use shim_core::world::{Key, Standing, View};

use super::trouble::{Trouble, Why};
use crate::attached::Attached;
use crate::driver::real;
use crate::transfer::{TransferError, certain};
use crate::world::world;

/// How long a call of the program that still uses a handle is waited for. The gates are closed and all work has
/// drained, so it can only be a peer's request that is just being answered.
const IN_FLIGHT: Duration = Duration::from_secs(10);

/// Unmaps what is mapped. Counts what it did.
pub(super) fn unmap(views: &[View]) -> Result<u64, Trouble> {
    let mut count = 0;
    for view in views.iter().filter(|view| view.standing != Standing::Dropped) {
        certain::unmap(DevicePtr(view.address), narrow(view.len)).map_err(|error| trouble(view, error))?;
        world().stand(view.address, Standing::Dropped);
        count += 1;
    }
    Ok(count)
}

/// Gives an allocation's real handle back, and then lets go of the driver's descriptor of it.
pub(super) fn drop_backing(key: Key) -> Result<(), Why> {
    let withheld = world().withhold(key, IN_FLIGHT).map_err(|_| Why::InUse)?;
    let Some(real) = withheld else {
        world().admit(key);
        return Ok(());
    };
    if let Err(error) = certain::release(real) {
        world().admit(key);
        return Err(error.into());
    }
    world().dropped(key);
    world().attached_to(key, Attached::let_go);
    Ok(())
}

/// Maps what is not mapped, and grants the access that is missing. Counts what it did.
pub(super) fn map(real: MemHandle, views: &mut [View]) -> Result<u64, Trouble> {
    let mut count = 0;
    for view in views.iter_mut().filter(|view| view.standing != Standing::Live) {
        if view.standing == Standing::Dropped {
            make(real, view).map_err(|error| trouble(view, error))?;
            mark(view, Standing::Bare);
        }
        grant(view)
            .map_err(|error| trouble(view, TransferError::Driver { call: "cuMemSetAccess", error }))?;
        mark(view, Standing::Live);
        count += 1;
    }
    Ok(count)
}

/// Makes a mapping. After an error there is none, so that it can be tried again.
fn make(real: MemHandle, view: &View) -> Result<(), TransferError> {
    let (address, len) = (DevicePtr(view.address), narrow(view.len));
    // SAFETY: the range is the program's reservation, and nothing is mapped there since we unmapped it.
    if let Err(error) = unsafe { real::cuMemMap(address, len, narrow(view.offset), real, 0) } {
        if let Err(error) = certain::unmap(address, len) {
            log!("after a failed cuMemMap: {error}");
        }
        return Err(TransferError::Driver { call: "cuMemMap", error });
    }
    Ok(())
}

fn mark(view: &mut View, standing: Standing) {
    world().stand(view.address, standing);
    view.standing = standing;
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

fn trouble(view: &View, error: TransferError) -> Trouble {
    Trouble::of(format!("the mapping of {} bytes at {:#x}", view.len, view.address), error.into())
}

/// A size as the driver takes it. The program gave it as one.
fn narrow(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
