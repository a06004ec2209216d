//! Memory pools that processes can share. A process with an imported one cannot be restored.

use core::ffi::c_void;

use cuda_sys::{AllocationType, CuResult, DevicePtr, HandleType, MemPool, MemPoolProps};
use protocol::BlockerKind;
use shim_core::blockers::Entry;
use shim_core::calls::CallId;
use shim_core::gate;

use super::super::fabric;
use super::{address, settle, table, wide};
use crate::driver::real;

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
    let kind = if props.alloc_type == AllocationType::MANAGED {
        BlockerKind::Managed
    } else if props.handle_types != HandleType::NONE {
        BlockerKind::SharedPool
    } else {
        return Ok(());
    };
    set(kind, made);
    Ok(())
}

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
        matches!(kind, BlockerKind::SharedPool | BlockerKind::Managed) && key == own
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

/// Something was allocated from a pool. Managed memory stays when its pool is destroyed.
pub(crate) fn allocated_from(pool: MemPool, at: DevicePtr, bytes: usize) {
    if table().any(BlockerKind::Managed, |key, _| key == address(pool.0)) {
        table().set(BlockerKind::Managed, at.0, Entry::of(wide(bytes), 0));
    }
}
