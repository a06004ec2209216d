//! What cannot be carried yet: passed on to the driver, counted while it is alive, refused by `check`.
//!
//! The program gets exactly what the driver answers. Each object is counted under the pass of the call that made
//! it, so whoever finds nobody inside finds it counted.

mod interop;
mod ipc;
mod memory;
mod pools;
mod sparse;

use cuda_sys::{Context, CuResult};
use protocol::{Blocker, BlockerKind};
use shim_core::blockers::{Blockers, Taken};

use crate::answers;
use crate::fresh::Fresh;

pub(crate) use interop::{
    cuDestroyExternalMemory, cuDestroyExternalSemaphore, cuGraphicsMapResources, cuGraphicsMapResources_ptsz,
    cuGraphicsUnmapResources, cuGraphicsUnmapResources_ptsz, cuImportExternalMemory,
    cuImportExternalSemaphore, cuMemGetHandleForAddressRange,
};
pub(crate) use ipc::{cuIpcCloseMemHandle, cuIpcGetMemHandle, cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2};
pub(crate) use memory::{cuMemAllocManaged, cuMemFree, cuMemFree_v2, freed, unmapped};
pub(crate) use pools::{
    allocated_from, cuMemGetDefaultMemPool, cuMemGetMemPool, cuMemPoolCreate, cuMemPoolDestroy,
    cuMemPoolExportPointer, cuMemPoolExportToShareableHandle, cuMemPoolImportFromShareableHandle,
    cuMemPoolImportPointer,
};
pub(crate) use sparse::{
    cuArrayDestroy, cuMemMapArrayAsync, cuMemMapArrayAsync_ptsz, cuMipmappedArrayDestroy,
};

static TABLE: Fresh<Blockers> = Fresh::new();

/// What is alive that cannot be carried.
pub(crate) fn blockers() -> Vec<Blocker> {
    table().list()
}

/// A context is gone, and what was made in it.
pub(crate) fn context_gone(context: Context) {
    let owner = address(context.0);
    // The others are owned by something else, or by nothing.
    let in_context = |kind| {
        use BlockerKind as K;
        matches!(
            kind,
            K::IpcOpened | K::IpcExported | K::Managed | K::RawHandle | K::ExternalMemory | K::Graphics
        )
    };
    gone(table().take_all(|kind, _, entry| in_context(kind) && entry.owner == owner && owner != 0));
}

/// Forgets what the parent had: called in a forked child.
pub(crate) fn forked() {
    TABLE.forked();
    pools::forked();
}

fn table() -> &'static Blockers {
    TABLE.get()
}

/// Ends a call that destroys what was `taken` out of the table before.
fn settle(taken: Taken, result: CuResult) -> CuResult {
    match result {
        Ok(()) => gone(taken),
        Err(_) => table().put_back(taken),
    }
    result
}

/// They are destroyed.
fn gone(taken: Taken) {
    drop(taken);
}

/// The context that what is made now goes with.
fn owner() -> u64 {
    address(answers::current().0)
}

fn address<T>(pointer: *const T) -> u64 {
    wide(pointer.addr())
}

fn wide(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

/// A number for bytes (FNV-1a). Who shares one by chance is counted as one object, which still refuses.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
