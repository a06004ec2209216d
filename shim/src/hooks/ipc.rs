//! CUDA IPC for memory of ours: handles are 64 bytes of our own, opened by the same road as tickets.
//!
//! The driver never makes a legacy handle for it: it could not be opened again after a restore (800 NOT_PERMITTED on
//! 580.159.04). Handles of memory that is not ours, and from processes without the shim, stay the driver's business and
//! are counted as what cannot be carried.

use core::ffi::c_uint;

use cuda_sys::{
    AllocFlags, AllocationProp, AllocationType, Context, CuError, CuResult, Device, DevicePtr, HandleType,
    IPC_HANDLE_SIZE, IpcMemHandle, LocationType, MemLocation,
};
use protocol::{AllocationId, Secret};
use shim_core::blocks::{Block, Closed, Found, Owner};
use shim_core::calls::CallId;
use shim_core::gate;
use shim_core::world::Release;

use super::refuse;
use super::vmm::by_ticket;
use crate::blocks::{blocks, give_back, grants_of_opener, place};
use crate::driver::real;
use crate::ticket::Claim;
use crate::world::{let_go, world};

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`: the only value of the flags that the driver takes (580.159.04).
const LAZY_ENABLE_PEER_ACCESS: c_uint = 1;

/// What a handle says. All numbers little endian:
///
/// | bytes | what |
/// | --- | --- |
/// | 0..8 | [`MAGIC`] |
/// | 8..24 | the allocation's name |
/// | 24..40 | its secret |
/// | 40..44 | the exporter's pid |
/// | 44..48 | the block's offset in the allocation, in 512 bytes |
/// | 48..52 | the allocation's size, in 64 KiB |
/// | 52..60 | the block's size as it was asked for |
/// | 60..64 | 1 if NICs may reach the memory |
#[derive(Clone, Copy, Debug)]
struct Handle {
    id: AllocationId,
    secret: Secret,
    exporter: i32,
    offset: u64,
    len: u64,
    size: u64,
    rdma: bool,
}

const MAGIC: [u8; 8] = *b"nvsnapI1";
const OFFSET_UNIT: u64 = 512;
const LEN_UNIT: u64 = 64 << 10;

impl Handle {
    /// `None` where the memory is larger than the format can say.
    fn bytes(&self) -> Option<[u8; IPC_HANDLE_SIZE]> {
        let offset = u32::try_from(self.offset / OFFSET_UNIT).ok()?;
        let len = u32::try_from(self.len / LEN_UNIT).ok()?;
        let parts: [&[u8]; 8] = [
            &MAGIC,
            &self.id.0,
            &self.secret.0,
            &self.exporter.to_le_bytes(),
            &offset.to_le_bytes(),
            &len.to_le_bytes(),
            &self.size.to_le_bytes(),
            &u32::from(self.rdma).to_le_bytes(),
        ];
        parts.concat().try_into().ok()
    }

    /// `None` for a handle of the driver's.
    fn read(bytes: &[u8; IPC_HANDLE_SIZE]) -> Option<Self> {
        let mut rest = bytes.as_slice().strip_prefix(&MAGIC)?;
        Some(Self {
            id: AllocationId(take(&mut rest)?),
            secret: Secret(take(&mut rest)?),
            exporter: i32::from_le_bytes(take(&mut rest)?),
            offset: u64::from(u32::from_le_bytes(take(&mut rest)?)) * OFFSET_UNIT,
            len: u64::from(u32::from_le_bytes(take(&mut rest)?)) * LEN_UNIT,
            size: u64::from_le_bytes(take(&mut rest)?),
            rdma: u32::from_le_bytes(take(&mut rest)?) != 0,
        })
    }

    /// As a ticket would claim it.
    fn claim(&self, device: Device) -> Claim {
        let prop = AllocationProp {
            kind: AllocationType::PINNED,
            requested_handle_types: HandleType::POSIX_FD,
            location: MemLocation { kind: LocationType::DEVICE, id: device.0 },
            alloc_flags: AllocFlags { gpu_direct_rdma_capable: self.rdma.into(), ..AllocFlags::default() },
            ..AllocationProp::default()
        };
        Claim {
            id: self.id,
            secret: self.secret,
            exporter: self.exporter,
            size: self.len,
            prop,
            multicast: None,
        }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*first)
}

/// A handle stands for the block, whichever address in it is asked about.
///
/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuIpcGetMemHandle(p_handle: *mut IpcMemHandle, dptr: DevicePtr) -> CuResult {
    let _pass = gate::enter(CallId::cuIpcGetMemHandle);
    let block = match blocks().find(dptr.0) {
        // SAFETY: the caller's arguments, unchanged.
        Found::Foreign => return unsafe { refuse::cuIpcGetMemHandle(p_handle, dptr) },
        Found::Gap => return Err(CuError::INVALID_VALUE),
        Found::Block(block) => block,
    };
    if p_handle.is_null() || block.opened {
        // What was opened cannot be handed on, as with the driver (580.159.04).
        return Err(CuError::INVALID_VALUE);
    }
    let reserved = handle_of(&block).ok_or(CuError::INVALID_VALUE)?;
    // SAFETY: not null, and the driver's contract makes it writable.
    unsafe { p_handle.write(IpcMemHandle { reserved }) };
    Ok(())
}

fn handle_of(block: &Block) -> Option<[u8; IPC_HANDLE_SIZE]> {
    let what = world().publish_at(block.span.base)?;
    Handle {
        id: what.id,
        secret: what.secret,
        exporter: std::process::id().cast_signed(),
        offset: block.base - block.span.base,
        len: block.span.len,
        size: block.size,
        rdma: what.prop.alloc_flags.gpu_direct_rdma_capable != 0,
    }
    .bytes()
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuIpcOpenMemHandle(
    pdptr: *mut DevicePtr,
    handle: IpcMemHandle,
    flags: c_uint,
) -> CuResult {
    let _pass = gate::enter(CallId::cuIpcOpenMemHandle);
    match Handle::read(&handle.reserved) {
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { refuse::cuIpcOpenMemHandle(pdptr, handle, flags) },
        // SAFETY: as above.
        Some(ours) => unsafe { open(pdptr, ours, flags) },
    }
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuIpcOpenMemHandle_v2(
    pdptr: *mut DevicePtr,
    handle: IpcMemHandle,
    flags: c_uint,
) -> CuResult {
    let _pass = gate::enter(CallId::cuIpcOpenMemHandle_v2);
    match Handle::read(&handle.reserved) {
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { refuse::cuIpcOpenMemHandle_v2(pdptr, handle, flags) },
        // SAFETY: as above.
        Some(ours) => unsafe { open(pdptr, ours, flags) },
    }
}

/// Opens a handle of ours: the second time, and for another block of the same slab, at the address of the first.
///
/// # Safety
/// As `cuIpcOpenMemHandle_v2`.
unsafe fn open(pdptr: *mut DevicePtr, handle: Handle, flags: c_uint) -> CuResult {
    if pdptr.is_null() || flags != LAZY_ENABLE_PEER_ACCESS {
        return Err(CuError::INVALID_VALUE);
    }
    let owner = opener()?;
    if handle.exporter == std::process::id().cast_signed() {
        return Err(CuError::INVALID_CONTEXT);
    }
    if handle.offset.checked_add(handle.size).is_none_or(|end| end > handle.len) {
        return Err(CuError::INVALID_VALUE);
    }
    let address = loop {
        if let Some(address) = blocks().open(handle.id, handle.offset, handle.size, owner.context) {
            break address;
        }
        map(&handle, owner)?;
    };
    // SAFETY: not null, and the driver's contract makes it writable.
    unsafe { pdptr.write(DevicePtr(address)) };
    Ok(())
}

/// The context that opens. Without one the driver says 201.
fn opener() -> CuResult<Owner> {
    let (mut context, mut device) = (Context::NULL, Device(-1));
    // SAFETY: `context` is writable.
    unsafe { real::cuCtxGetCurrent(&raw mut context) }?;
    // SAFETY: `device` is writable.
    unsafe { real::cuCtxGetDevice(&raw mut device) }?;
    Ok(Owner { context, device })
}

/// Maps a peer's allocation, unless another thread does so first.
fn map(handle: &Handle, owner: Owner) -> CuResult {
    // Nobody has it any more: to the program the handle is as good as garbage.
    let imported = by_ticket(&handle.claim(owner.device), None).unwrap_or(Err(CuError::INVALID_VALUE))?;
    let size = usize::try_from(handle.len).map_err(|_| CuError::INVALID_VALUE)?;
    let span = place(imported, size, &grants_of_opener(owner.device));
    if let Ok(Release::Last(leaving)) = world().release(imported) {
        let_go(leaving);
    }
    let span = span?;
    if !blocks().add_opened(span, handle.id, owner) {
        give_back(span);
    }
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuIpcCloseMemHandle(dptr: DevicePtr) -> CuResult {
    let _pass = gate::enter(CallId::cuIpcCloseMemHandle);
    if blocks().find(dptr.0) == Found::Foreign {
        // SAFETY: the caller's argument, unchanged.
        return unsafe { refuse::cuIpcCloseMemHandle(dptr) };
    }
    match blocks().close(dptr.0).ok_or(CuError::INVALID_VALUE)? {
        Closed::Counted => {}
        Closed::Last(span) => give_back(span),
    }
    Ok(())
}
