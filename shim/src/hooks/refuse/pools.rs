//! Memory pools that processes can share, that are on the host, or are managed. A process with an imported one cannot be restored.

use core::ffi::{c_uint, c_void};
use std::collections::BTreeMap;
use std::sync::Mutex;

use cuda_sys::{
    AllocationType, CuResult, DevicePtr, HandleType, LocationType, MemLocation, MemPool, MemPoolProps,
};
use protocol::BlockerKind;
use shim_core::blockers::Entry;
use shim_core::calls::CallId;
use shim_core::gate;

use super::super::fabric;
use super::{address, settle, table, wide};
use crate::driver::real;
use crate::fresh::{Fresh, lock};

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemPoolCreate(pool: *mut MemPool, pool_props: *const c_void) -> CuResult {
    let _pass = gate::enter(CallId::cuMemPoolCreate);
    if !pool_props.is_null() {
        // SAFETY: not null, and the driver's contract makes it readable.
        let props = unsafe { pool_props.cast::<MemPoolProps>().read_unaligned() };
        fabric::permitted(props.handle_types)?;
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemPoolCreate(pool, pool_props) }?;
    // SAFETY: it succeeded, so the driver has written there.
    let made = unsafe { pool.read() };
    // SAFETY: the driver has read it as well.
    let props = unsafe { pool_props.cast::<MemPoolProps>().read_unaligned() };
    let shared = (props.handle_types != HandleType::NONE).then_some(BlockerKind::SharedPool);
    if let Some(kind) = of_its_own(props.location, props.alloc_type).or(shared) {
        set(kind, made);
    }
    Ok(())
}

/// Why what is allocated from such a pool cannot be carried. On 580.159.04 the checkpoint of a process that has an allocation out of a
/// pool of the host, or of a NUMA node, comes to no end (docs/DRIVER-VERSIONS.md, `pools`); managed pools are not measured.
fn of_its_own(location: MemLocation, kind: AllocationType) -> Option<BlockerKind> {
    match (kind, location.kind) {
        (AllocationType::MANAGED, _) => Some(BlockerKind::Managed),
        (_, LocationType::DEVICE) => None,
        _ => Some(BlockerKind::HostPool),
    }
}

/// Pools that the driver has by itself, from which memory can be had that cannot be carried. They never end, so they are in nobody's
/// way; what is allocated from them is. There is one for each location and kind at most.
static BY_ITSELF: Fresh<Mutex<BTreeMap<u64, BlockerKind>>> = Fresh::new();

/// Forgets what the parent had: called in a forked child.
pub(super) fn forked() {
    BY_ITSELF.forked();
}

macro_rules! getters {
    ($($name:ident)+) => {$(
        /// # Safety
        /// As the driver's function of this name.
        pub(crate) unsafe fn $name(pool: *mut MemPool, location: *mut MemLocation, kind: c_uint) -> CuResult {
            let _pass = gate::enter(CallId::$name);
            // SAFETY: the caller's arguments, unchanged.
            unsafe { real::$name(pool, location, kind) }?;
            // SAFETY: it succeeded, so the driver has read it.
            let location = unsafe { location.read() };
            if let Some(why) = of_its_own(location, AllocationType(kind)) {
                // SAFETY: it succeeded, so the driver has written there.
                let found = address(unsafe { pool.read() }.0);
                // One that the program made counts by itself.
                if !table().any(why, |key, _| key == found) {
                    lock(BY_ITSELF.get()).insert(found, why);
                }
            }
            Ok(())
        }
    )+};
}

getters! { cuMemGetDefaultMemPool cuMemGetMemPool }

fn set(kind: BlockerKind, pool: MemPool) {
    let name = format!("memory pool {:p}", pool.0);
    table().set(kind, address(pool.0), Entry { count: 1, name, ..Entry::default() });
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemPoolDestroy(pool: MemPool) -> CuResult {
    let _pass = gate::enter(CallId::cuMemPoolDestroy);
    let own = address(pool.0);
    let taken = table().take_all(|kind, key, _| {
        matches!(kind, BlockerKind::SharedPool | BlockerKind::Managed | BlockerKind::HostPool) && key == own
    });
    // SAFETY: the caller's arguments, unchanged.
    settle(taken, unsafe { real::cuMemPoolDestroy(pool) })
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemPoolExportPointer(share_data_out: *mut c_void, ptr: DevicePtr) -> CuResult {
    let _pass = gate::enter(CallId::cuMemPoolExportPointer);
    // SAFETY: the caller's arguments, unchanged. The pool it comes from is counted.
    unsafe { real::cuMemPoolExportPointer(share_data_out, ptr) }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemPoolExportToShareableHandle(
    handle_out: *mut c_void,
    pool: MemPool,
    handle_type: HandleType,
    flags: u64,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemPoolExportToShareableHandle);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemPoolExportToShareableHandle(handle_out, pool, handle_type, flags) }?;
    set(BlockerKind::SharedPool, pool);
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemPoolImportFromShareableHandle(
    pool_out: *mut MemPool,
    handle: *mut c_void,
    handle_type: HandleType,
    flags: u64,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemPoolImportFromShareableHandle);
    fabric::permitted(handle_type)?;
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemPoolImportFromShareableHandle(pool_out, handle, handle_type, flags) }?;
    // SAFETY: it succeeded, so the driver has written there.
    set(BlockerKind::SharedPool, unsafe { pool_out.read() });
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemPoolImportPointer(
    ptr_out: *mut DevicePtr,
    pool: MemPool,
    share_data: *mut c_void,
) -> CuResult {
    let _pass = gate::enter(CallId::cuMemPoolImportPointer);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemPoolImportPointer(ptr_out, pool, share_data) }?;
    // The pool may be destroyed before it, and lives on in it.
    // SAFETY: it succeeded, so the driver has written there.
    let at = unsafe { ptr_out.read() };
    table().set(BlockerKind::SharedPool, at.0, Entry::of(0, 0));
    Ok(())
}

/// Something was allocated from a pool. It stays when the pool is destroyed.
pub(crate) fn allocated_from(pool: MemPool, at: DevicePtr, bytes: usize) {
    let pool = address(pool.0);
    let made = [BlockerKind::Managed, BlockerKind::HostPool];
    let made = made.into_iter().find(|kind| table().any(*kind, |key, _| key == pool));
    if let Some(kind) = made.or_else(|| lock(BY_ITSELF.get()).get(&pool).copied()) {
        table().set(kind, at.0, Entry::of(wide(bytes), 0));
    }
}
