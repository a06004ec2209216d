//! Memory of `cuMemAlloc` out of our own: making spans, giving them back, and what a device needs for it.
//!
//! A span is an allocation like any that the program creates, so it is saved, dropped and rebuilt by the same verbs.
//! What the program was given of it is in the tables ([`shim_core::blocks`]). The program never holds a handle: the
//! span's mapping alone keeps the memory.

use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use cuda_sys::{
    AccessDesc, AccessFlags, AllocFlags, AllocationProp, AllocationType, Context, CuError, CuResult, Device,
    DeviceAttribute, DevicePtr, GranularityFlags, HandleType, LocationType, MemHandle, MemLocation,
};
use protocol::Native;
use shim_core::blocks::{Blocks, SLAB, Span};
use shim_core::calls::CallId;
use shim_core::world::{Description, Origin};

use crate::driver::{self, real};
use crate::hooks::vmm::name;
use crate::world::{self, let_go, world};

static BLOCKS: AtomicPtr<Blocks> = AtomicPtr::new(core::ptr::null_mut());

/// The blocks of the process.
pub(crate) fn blocks() -> &'static Blocks {
    // SAFETY: null, or a table that is never freed.
    if let Some(blocks) = unsafe { BLOCKS.load(Ordering::Acquire).as_ref() } {
        return blocks;
    }
    let new = Box::into_raw(Box::new(Blocks::new()));
    let current = core::ptr::null_mut();
    match BLOCKS.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: never freed.
        Ok(_) => unsafe { &*new },
        Err(other) => {
            // SAFETY: nobody else has seen it.
            drop(unsafe { Box::from_raw(new) });
            // SAFETY: never freed.
            unsafe { &*other }
        }
    }
}

/// Forgets the parent's blocks: called in a forked child. The table is left behind as another thread may have left it.
pub(crate) fn forked() {
    BLOCKS.store(core::ptr::null_mut(), Ordering::Release);
}

/// What a device can do, found out once: flags in the upper half, the devices that can reach it in the lower.
const KNOWN: u64 = 1 << 63;
const BACKED: u64 = 1 << 62;
const RDMA: u64 = 1 << 61;
const DEVICES: c_int = 32;

static ABILITIES: [AtomicU64; 32] = [const { AtomicU64::new(0) }; 32];

/// A device that memory can be made on for `cuMemAlloc`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backed {
    device: Device,
    abilities: u64,
}

/// Whether memory of ours can stand in for `cuMemAlloc` on a device: it can be created, exported and mapped.
pub(crate) fn backed(device: Device) -> Option<Backed> {
    let slot = ABILITIES.get(usize::try_from(device.0).ok()?)?;
    let mut abilities = slot.load(Ordering::Acquire);
    if abilities & KNOWN == 0 {
        abilities = KNOWN | find_out(device);
        slot.store(abilities, Ordering::Release);
    }
    (abilities & BACKED != 0).then_some(Backed { device, abilities })
}

/// Why memory of `cuMemAlloc` stays with the driver on a device; `None` where ours stands in for it. Asks the driver.
pub(crate) fn native(device: Device) -> Option<Native> {
    if !driver::has(CallId::cuMemCreate) || !has(device, DeviceAttribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
    {
        return Some(Native::NoVirtualMemory);
    }
    if !has(device, DeviceAttribute::HANDLE_TYPE_POSIX_FD_SUPPORTED) {
        return Some(Native::NoDescriptors);
    }
    let prop = Backed { device, abilities: rdma(device) }.prop();
    let mut granularity = 0;
    // It differs with the properties, and so is asked for with those that the memory will have.
    // SAFETY: `granularity` is writable, `prop` is whole.
    let asked = unsafe {
        real::cuMemGetAllocationGranularity(&raw mut granularity, &raw const prop, GranularityFlags::MINIMUM)
    };
    let granularity = asked.ok().and_then(|()| u64::try_from(granularity).ok()).unwrap_or(0);
    let fits = granularity != 0 && SLAB.is_multiple_of(granularity);
    (!fits).then_some(Native::Granularity(granularity))
}

fn has(device: Device, attribute: DeviceAttribute) -> bool {
    let mut value: c_int = 0;
    // SAFETY: `value` is writable.
    let asked = unsafe { real::cuDeviceGetAttribute(&raw mut value, attribute, device) };
    asked.is_ok() && value != 0
}

fn rdma(device: Device) -> u64 {
    if has(device, DeviceAttribute::GPU_DIRECT_RDMA_WITH_VMM_SUPPORTED) { RDMA } else { 0 }
}

fn find_out(device: Device) -> u64 {
    let mut abilities = rdma(device);
    if native(device).is_none() {
        abilities |= BACKED;
    }
    let mut count: c_int = 0;
    // SAFETY: `count` is writable.
    if unsafe { real::cuDeviceGetCount(&raw mut count) }.is_err() {
        count = 0;
    }
    for peer in (0..count.min(DEVICES)).filter(|peer| *peer != device.0) {
        let mut can: c_int = 0;
        // SAFETY: `can` is writable.
        if unsafe { real::cuDeviceCanAccessPeer(&raw mut can, Device(peer), device) }.is_ok() && can != 0 {
            abilities |= 1 << peer;
        }
    }
    abilities
}

impl Backed {
    /// Properties as native memory has them: exportable, and within reach of NICs where the device can.
    fn prop(self) -> AllocationProp {
        AllocationProp {
            kind: AllocationType::PINNED,
            requested_handle_types: HandleType::POSIX_FD,
            location: MemLocation { kind: LocationType::DEVICE, id: self.device.0 },
            alloc_flags: AllocFlags {
                gpu_direct_rdma_capable: u8::from(self.abilities & RDMA != 0),
                ..AllocFlags::default()
            },
            ..AllocationProp::default()
        }
    }

    /// Makes a span of `len` bytes, a multiple of the granularity, that its device and all that reach it may use:
    /// copies between devices work on native memory without peer access too (580.159.04).
    pub(crate) fn make(self, len: u64) -> CuResult<Span> {
        let size = usize::try_from(len).map_err(|_| CuError::OUT_OF_MEMORY)?;
        let (id, secret) = name()?;
        let prop = self.prop();
        let real = create(size, &prop)?;
        let what = Description { id, secret, size: len, prop, origin: Origin::Created, multicast: None };
        let handle = world().adopt(real, what);
        let span = place(handle, size, &grants(self.device, self.abilities));
        // The mapping keeps the memory from here on, or nothing does.
        if let Ok(shim_core::world::Release::Last(leaving)) = world().release(handle) {
            let_go(leaving);
        }
        span
    }
}

/// Access for a device and for those that reach it.
fn grants(device: Device, abilities: u64) -> Vec<AccessDesc> {
    (0..DEVICES)
        .filter(|other| *other == device.0 || abilities & (1 << other) != 0)
        .map(|other| AccessDesc {
            location: MemLocation { kind: LocationType::DEVICE, id: other },
            flags: AccessFlags::READ_WRITE,
        })
        .collect()
}

/// Access to memory of another process for the device of the opener, and for the devices that reach it.
pub(crate) fn grants_of_opener(device: Device) -> Vec<AccessDesc> {
    grants(device, backed(device).map_or(0, |backed| backed.abilities & 0xffff_ffff))
}

fn create(size: usize, prop: &AllocationProp) -> CuResult<MemHandle> {
    let mut real = MemHandle::NONE;
    loop {
        // SAFETY: `real` is writable, `prop` is whole.
        match unsafe { real::cuMemCreate(&raw mut real, size, prop, 0) } {
            Ok(()) => return Ok(real),
            Err(CuError::OUT_OF_MEMORY) if make_room() => {}
            Err(error) => return Err(error),
        }
    }
}

/// Gives back what only we keep. Whether there was anything.
fn make_room() -> bool {
    let spare = blocks().take_empty_slabs();
    let found = !spare.is_empty();
    spare.into_iter().for_each(give_back);
    world::sweep_all() || found
}

/// Maps memory at fresh addresses.
pub(crate) fn place(handle: MemHandle, size: usize, grants: &[AccessDesc]) -> CuResult<Span> {
    let found = world::real_handle(handle)?;
    let pin = found.pin().ok_or(CuError::INVALID_VALUE)?;
    let mut base = DevicePtr(0);
    // SAFETY: `base` is writable.
    unsafe { real::cuMemAddressReserve(&raw mut base, size, 0, DevicePtr(0), 0) }?;
    // SAFETY: addresses reserved above, a pinned handle.
    let mapped = unsafe { real::cuMemMap(base, size, 0, found.handle(), 0) };
    if let Err(error) = mapped {
        free_addresses(base, size);
        return Err(error);
    }
    let len = u64::try_from(size).unwrap_or(u64::MAX);
    world().map(pin, base.0, len, 0).into_iter().for_each(let_go);
    // SAFETY: mapped above; the slice is whole.
    if let Err(error) = unsafe { real::cuMemSetAccess(base, size, grants.as_ptr(), grants.len()) } {
        drop(found);
        give_back(Span { base: base.0, len });
        return Err(error);
    }
    world().grant(base.0, len, grants);
    Ok(Span { base: base.0, len })
}

/// Unmaps a span, frees its addresses, and lets go of the memory.
pub(crate) fn give_back(span: Span) {
    let size = usize::try_from(span.len).unwrap_or(usize::MAX);
    let taken = world().take(span.base, span.len);
    // SAFETY: a span of ours that nobody can find any more.
    if let Err(error) = unsafe { real::cuMemUnmap(DevicePtr(span.base), size) } {
        log!("cuMemUnmap of {:#x}, which is not used any more: {error}", span.base);
        world().put_back(taken);
        return;
    }
    world().end(taken).into_iter().for_each(let_go);
    free_addresses(DevicePtr(span.base), size);
}

fn free_addresses(base: DevicePtr, size: usize) {
    // SAFETY: a reservation of ours in which nothing is mapped.
    if let Err(error) = unsafe { real::cuMemAddressFree(base, size) } {
        log!("cuMemAddressFree of {:#x}: {error}", base.0);
    }
}

/// Gives back what belonged to a context: called once the driver has destroyed it, and so waited for its work.
pub(crate) fn context_destroyed(context: Context) {
    blocks().take_context(context).into_iter().for_each(give_back);
}
