//! `inspect`: what the process holds, from our own tables.
//!
//! Runs on the control thread at any time, also while the driver is locked or its memory is gone. So it makes no
//! driver call: what only the driver knows is asked once, when the program has initialised it.

use std::sync::atomic::{AtomicPtr, Ordering};

use cuda_sys::{CuResult, Device, Uuid};
use protocol::{Blocker, BlockerKind, DeviceInfo, InspectRequest, Inventory, Phase};

use super::{Phases, pinned, quiesce, release};
use crate::blocks::native;
use crate::driver::real;
use crate::ticket::unclaimed;
use crate::transfer::kept;
use crate::world::world;
use crate::{answers, boundary, driver, hooks};

/// The API version of r610. Before it a process that was restored cannot add its device to a multicast object
/// (public reports: docs/DRIVER-VERSIONS.md).
const REJOINS: i32 = 13030;
/// The API version of r580, the first driver that was seen to carry events of several processes
/// (docs/DRIVER-VERSIONS.md, what a process holds).
const CARRIES_EVENTS: i32 = 13000;

/// What the driver said when it was initialised.
#[derive(Debug, Default)]
struct Driver {
    version: i32,
    devices: Vec<DeviceInfo>,
}

/// Null, or a box that is never freed.
static DRIVER: AtomicPtr<Driver> = AtomicPtr::new(core::ptr::null_mut());

/// Asks the driver for its version and devices. Called once per process generation, when `cuInit` has succeeded.
pub(crate) fn read_driver() {
    let mut version = 0;
    // SAFETY: a place for the version.
    if let Err(error) = unsafe { real::cuDriverGetVersion(&raw mut version) } {
        log!("cuDriverGetVersion: {error}");
    }
    let driver = Box::new(Driver { version, devices: devices() });
    DRIVER.store(Box::into_raw(driver), Ordering::Release);
}

/// Forgets the parent's driver, in a forked child.
pub(crate) fn forked() {
    DRIVER.store(core::ptr::null_mut(), Ordering::Release);
}

fn devices() -> Vec<DeviceInfo> {
    let mut count = 0;
    // SAFETY: a place for the count.
    if let Err(error) = unsafe { real::cuDeviceGetCount(&raw mut count) } {
        log!("cuDeviceGetCount: {error}");
    }
    let known = (0..count).map(|ordinal| (ordinal, uuid(Device(ordinal))));
    known
        .filter_map(|(ordinal, uuid)| match uuid {
            Ok(uuid) => Some(DeviceInfo { ordinal, uuid: uuid.bytes, native: native(Device(ordinal)) }),
            Err(error) => {
                log!("cuDeviceGetUuid of device {ordinal}: {error}");
                None
            }
        })
        .collect()
}

/// The second form tells slices of one GPU apart; drivers before 11.4 have only the first.
fn uuid(device: Device) -> CuResult<Uuid> {
    let mut uuid = Uuid { bytes: [0; 16] };
    // SAFETY: a place for the UUID.
    let result = unsafe { real::cuDeviceGetUuid_v2(&raw mut uuid, device) };
    if result.is_ok() {
        return Ok(uuid);
    }
    // SAFETY: as above.
    unsafe { real::cuDeviceGetUuid(&raw mut uuid, device) }?;
    Ok(uuid)
}

/// The inventory.
pub(crate) fn run(request: &InspectRequest, phases: &Phases) -> Inventory {
    // SAFETY: null, or a box that is never freed.
    let driver = unsafe { DRIVER.load(Ordering::Acquire).as_ref() };
    let (version, devices) =
        driver.map_or((0, Vec::new()), |driver| (driver.version, driver.devices.clone()));
    let mut blockers = world().blockers(version >= REJOINS);
    blockers.extend(hooks::refuse::blockers());
    let (shared_events, example) = answers::shared_events();
    if version < CARRIES_EVENTS
        && let Some(event) = example
    {
        let (kind, example) = (BlockerKind::SharedEvent, format!("event {event:#x}"));
        blockers.push(Blocker { kind, count: shared_events, example });
    }
    blockers.extend(driver::new_form_blocker());
    if request.allocations {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        blockers.extend(driver::past_us(&maps));
        blockers.extend(pinned::blocker(&maps));
    }
    let drain = quiesce::look();
    Inventory {
        shim_version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id().cast_signed(),
        phase: phases.get(),
        poisoned: boundary::poisoned().is_some(),
        driver_version: version,
        devices,
        contexts: u32::try_from(drain.contexts.len()).unwrap_or(u32::MAX),
        drain,
        allocations: if request.allocations { world().inventory() } else { Vec::new() },
        unclaimed: if request.allocations && phases.get() == Phase::Running {
            unclaimed()
        } else {
            Vec::new()
        },
        driver_memory: hooks::malloc::sums(),
        shared_events,
        blockers,
        progress: phases.progress(),
        threads: shim_core::control::own::threads(),
        kept_bytes: kept::bytes(),
        last_save: release::last(),
    }
}
