//! `cuMemAlloc` and its family: memory that the driver places and maps by itself.
//!
//! Small sizes are placed in blocks of one granule, one set of blocks per context, as the real driver does; all others are
//! whole granules of their own. A free waits for all work of the device first.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::c_uint;
use std::sync::Arc;

use cuda_sys::{CuError, CuResult, DevicePtr};

use super::physical::{Physical, Place};
use super::pools::MemPool;
use super::space::Area;
use super::{GRANULE, Memory};
use crate::args;
use crate::context::{Ctx, current};
use crate::driver::{Driver, driver};
use crate::machine::shares::Held;
use crate::ranges::Ranges;
use crate::trace::violation;
use crate::work;
use crate::work::capture;

/// Sizes below share granules.
const SMALL: usize = GRANULE;
/// Alignment of what is smaller.
const ALIGN: usize = 512;

/// Whose allocation it is.
#[derive(Debug)]
pub(crate) enum Kind {
    /// `cuMemAlloc`; whether it is in a block with others.
    Malloc { small: bool },
    /// `cuMemAllocAsync`
    Pool(&'static MemPool),
    /// Opened from a legacy IPC handle: how often, and the id of the memory's share.
    Ipc { opened: u32, id: u64 },
    /// A pointer imported into an imported pool.
    PoolImport(&'static MemPool),
    /// An array's bytes.
    Array,
}

/// One allocation.
#[derive(Debug)]
pub(crate) struct Native {
    /// As asked for.
    pub(crate) size: usize,
    pub(crate) memory: Arc<Physical>,
    /// Where it begins in its memory.
    pub(crate) offset: usize,
    pub(crate) ordinal: usize,
    pub(crate) context: &'static Ctx,
    pub(crate) kind: Kind,
    pub(crate) id: u64,
    pub(crate) sync_memops: bool,
    /// What legacy IPC handles of it name, once there was one.
    pub(crate) ipc: Option<Held>,
}

/// A granule that small allocations share.
#[derive(Debug)]
pub(super) struct Block {
    context: &'static Ctx,
    at: usize,
    memory: Arc<Physical>,
    free: Ranges,
    used: usize,
}

impl Memory {
    fn new_native(
        &self,
        context: &'static Ctx,
        size: usize,
        memory: Arc<Physical>,
        offset: usize,
        kind: Kind,
    ) -> Box<Native> {
        let (id, ordinal) = (self.new_id(), context.ordinal());
        Box::new(Native { size, memory, offset, ordinal, context, kind, id, sync_memops: false, ipc: None })
    }

    /// Memory of a context's device at an address of its own.
    pub(super) fn allocate_whole(
        &self,
        driver: &'static Driver,
        context: &'static Ctx,
        size: usize,
        exportable: bool,
        kind: Kind,
    ) -> CuResult<usize> {
        let rounded = size.checked_next_multiple_of(GRANULE).ok_or(CuError::OUT_OF_MEMORY)?;
        let memory = Physical::create(driver, rounded, Place::Device(context.ordinal()), None, exportable)?;
        self.place_whole(context, size, memory, 0, kind)
    }

    /// Puts existing memory at an address of its own.
    pub(super) fn place_whole(
        &self,
        context: &'static Ctx,
        size: usize,
        memory: Arc<Physical>,
        offset: usize,
        kind: Kind,
    ) -> CuResult<usize> {
        let span = size.next_multiple_of(GRANULE);
        let native = self.new_native(context, size, memory, offset, kind);
        let mut space = crate::write(&self.space);
        let at = space.take(span, GRANULE, 0).ok_or(CuError::OUT_OF_MEMORY)?;
        space.insert(at, Area::Native(native));
        Ok(at)
    }

    fn allocate_small(&self, driver: &'static Driver, context: &'static Ctx, size: usize) -> CuResult<usize> {
        let rounded = size.next_multiple_of(ALIGN);
        let mut blocks = crate::lock(&self.blocks);
        let in_block = blocks
            .iter_mut()
            .filter(|block| std::ptr::eq(block.context, context))
            .find_map(|block| Some((block.free.take(rounded, ALIGN)?, block)));
        let (at, block) = match in_block {
            Some(found) => found,
            None => {
                let memory =
                    Physical::create(driver, GRANULE, Place::Device(context.ordinal()), None, false)?;
                let at = crate::write(&self.space).take(GRANULE, GRANULE, 0).ok_or(CuError::OUT_OF_MEMORY)?;
                let mut free = Ranges::new(at, GRANULE);
                let first = free.take(rounded, ALIGN).ok_or(CuError::OUT_OF_MEMORY)?;
                blocks.push(Block { context, at, memory, free, used: 0 });
                (first, blocks.last_mut().ok_or(CuError::OUT_OF_MEMORY)?)
            }
        };
        block.used += 1;
        let kind = Kind::Malloc { small: true };
        let native = self.new_native(context, size, Arc::clone(&block.memory), at - block.at, kind);
        crate::write(&self.space).insert(at, Area::Native(native));
        Ok(at)
    }

    /// Gives back what one allocation held, when it is out of the space.
    pub(super) fn give_back(&self, at: usize, native: Native) {
        let Native { size, memory, kind, ipc, .. } = native;
        if let Some(held) = ipc
            && let Ok(driver) = driver()
        {
            driver.machine.leave_share(held);
        }
        if !matches!(kind, Kind::Malloc { small: true }) {
            drop(memory);
            crate::write(&self.space).give(at, size.next_multiple_of(GRANULE));
            return;
        }
        let mut blocks = crate::lock(&self.blocks);
        let Some(number) = blocks.iter().position(|block| (block.at..block.at + GRANULE).contains(&at))
        else {
            return;
        };
        if let Some(block) = blocks.get_mut(number) {
            block.free.give(at, size.next_multiple_of(ALIGN));
            block.used -= 1;
            if block.used == 0 {
                let block = blocks.swap_remove(number);
                drop(memory);
                drop(block.memory);
                crate::write(&self.space).give(block.at, GRANULE);
            }
        }
    }

    /// The stream-ordered free of an allocation.
    pub(crate) fn free_in_order(&self, at: usize) {
        let removed = crate::write(&self.space).remove_native(at, |_| true);
        if let Some(native) = removed {
            self.give_back(at, *native);
        }
    }

    /// The end of a context frees what was allocated in it.
    pub(crate) fn free_all_of(&self, context: &'static Ctx) {
        self.end_arrays_of(context);
        if let Ok(driver) = driver() {
            super::managed::free_all_of(driver, context);
        }
        let removed = crate::write(&self.space).remove_all_of(context);
        for (at, native) in removed {
            self.give_back(at, *native);
        }
    }
}

/// Allocates `size` bytes in the current context.
fn allocate(size: usize) -> CuResult<usize> {
    let driver = driver()?;
    let context = current()?;
    capture::unsafe_call(driver)?;
    if size == 0 {
        return Err(CuError::INVALID_VALUE);
    }
    if size <= SMALL - ALIGN {
        driver.memory.allocate_small(driver, context, size)
    } else {
        driver.memory.allocate_whole(driver, context, size, false, Kind::Malloc { small: false })
    }
}

pub(crate) unsafe fn cuMemAlloc_v2(dptr: *mut DevicePtr, bytesize: usize) -> CuResult {
    driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(dptr) }?;
    place.write(DevicePtr(args::wide(allocate(bytesize)?)));
    Ok(())
}

pub(crate) unsafe fn cuMemAllocPitch_v2(
    dptr: *mut DevicePtr,
    p_pitch: *mut usize,
    width_in_bytes: usize,
    height: usize,
    element_size_bytes: c_uint,
) -> CuResult {
    driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(dptr) }?;
    // SAFETY: the caller's promise.
    let pitch_place = unsafe { args::out(p_pitch) }?;
    if width_in_bytes == 0 || height == 0 || ![4, 8, 16].contains(&element_size_bytes) {
        return Err(CuError::INVALID_VALUE);
    }
    let pitch = width_in_bytes.checked_next_multiple_of(ALIGN).ok_or(CuError::OUT_OF_MEMORY)?;
    let size = pitch.checked_mul(height).ok_or(CuError::OUT_OF_MEMORY)?;
    place.write(DevicePtr(args::wide(allocate(size)?)));
    pitch_place.write(pitch);
    Ok(())
}

/// Waits for all work of the device, as the native free does; what is refused does not wait, nor does null, which is freed
/// without effect (as measured).
pub(crate) unsafe fn cuMemFree_v2(dptr: DevicePtr) -> CuResult {
    let driver = driver()?;
    let at = args::size(dptr.0);
    if at == 0 {
        return Ok(());
    }
    let freeable =
        |native: &Native| matches!(native.kind, Kind::Malloc { .. } | Kind::Pool(_) | Kind::PoolImport(_));
    let ordinal = match crate::read(&driver.memory.space).at(at) {
        Some(Area::Native(native)) if freeable(native) => Some(native.ordinal),
        Some(Area::Managed { .. }) => None,
        _ => {
            violation(format_args!("cuMemFree: nothing was allocated at {at:#x}"));
            return Err(CuError::INVALID_VALUE);
        }
    };
    let context = current()?;
    capture::unsafe_call(driver)?;
    work::wait_for_device(driver, ordinal.unwrap_or(context.ordinal()));
    let Some(ordinal) = ordinal else { return super::managed::free(driver, at) };
    let removed = crate::write(&driver.memory.space).remove_native(at, freeable);
    match removed {
        Some(native) => driver.memory.give_back(at, *native),
        None => {
            violation(format_args!("cuMemFree: {at:#x} of device {ordinal} was freed at the same time"));
            return Err(CuError::INVALID_VALUE);
        }
    }
    Ok(())
}

pub(crate) unsafe fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CuResult {
    let driver = driver()?;
    let context = current()?;
    let all = driver.machine.memory();
    let used = driver.machine.used(driver.physical(context.ordinal())?);
    // SAFETY: the caller's promise.
    unsafe { args::out(free) }?.write(all.saturating_sub(used));
    // SAFETY: the caller's promise.
    unsafe { args::out(total) }?.write(all);
    Ok(())
}
