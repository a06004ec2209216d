//! Memory mapped into sparse arrays, piece by piece.
//!
//! A piece counts from the step that maps it to the one that unmaps exactly it, or to the end of its array.

use core::ffi::{c_uint, c_void};
use core::slice;

use cuda_sys::{
    Array, ArrayMapInfo, CuResult, MEM_HANDLE_TYPE_GENERIC, MEM_OPERATION_MAP, MEM_OPERATION_UNMAP,
    MipmappedArray, Stream,
};
use protocol::BlockerKind;
use shim_core::blockers::{Entry, Taken};
use shim_core::calls::CallId;
use shim_core::gate;

use super::{address, fingerprint, gone, settle, table};
use crate::captures;
use crate::driver::real;
use crate::world::{Real, real_handle};

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemMapArrayAsync(
    map_info_list: *mut c_void,
    count: c_uint,
    h_stream: Stream,
) -> CuResult {
    let call = CallId::cuMemMapArrayAsync;
    let _pass = gate::enter_on(call, || captures::capturing(call, h_stream));
    // SAFETY: the caller's arguments.
    let mut steps = unsafe { Steps::read(map_info_list, count) }?;
    // SAFETY: the caller's arguments, with handles that the driver knows.
    unsafe { real::cuMemMapArrayAsync(steps.list(map_info_list), count, h_stream) }?;
    steps.record();
    Ok(())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMemMapArrayAsync_ptsz(
    map_info_list: *mut c_void,
    count: c_uint,
    h_stream: Stream,
) -> CuResult {
    let call = CallId::cuMemMapArrayAsync_ptsz;
    let _pass = gate::enter_on(call, || captures::capturing(call, h_stream));
    // SAFETY: the caller's arguments.
    let mut steps = unsafe { Steps::read(map_info_list, count) }?;
    // SAFETY: the caller's arguments, with handles that the driver knows.
    unsafe { real::cuMemMapArrayAsync_ptsz(steps.list(map_info_list), count, h_stream) }?;
    steps.record();
    Ok(())
}

/// More steps than any list has: a count that is no count.
const MOST: usize = 1 << 16;

/// The program's steps, with the handles that the driver knows.
struct Steps {
    steps: Vec<ArrayMapInfo>,
    /// Keeps the memory until the driver has mapped it.
    _memory: Vec<Real>,
}

impl Steps {
    /// # Safety
    /// As the driver's function.
    unsafe fn read(list: *const c_void, count: c_uint) -> CuResult<Self> {
        let count = usize::try_from(count).unwrap_or(0);
        let given: &[ArrayMapInfo] = if list.is_null() || count > MOST {
            // The driver says what it is worth.
            &[]
        } else {
            // SAFETY: not null, and as many as the caller says.
            unsafe { slice::from_raw_parts(list.cast(), count) }
        };
        let (mut steps, mut memory) = (given.to_vec(), Vec::new());
        for step in &mut steps {
            if step.mem_operation_type == MEM_OPERATION_MAP && step.mem_handle_type == MEM_HANDLE_TYPE_GENERIC
            {
                let found = real_handle(step.mem_handle)?;
                step.mem_handle = found.handle();
                memory.push(found);
            }
        }
        Ok(Self { steps, _memory: memory })
    }

    /// What to hand to the driver; an empty list is the program's own.
    fn list(&mut self, given: *mut c_void) -> *mut c_void {
        if self.steps.is_empty() { given } else { self.steps.as_mut_ptr().cast() }
    }

    fn record(&self) {
        for step in &self.steps {
            let key = piece(step);
            match step.mem_operation_type {
                MEM_OPERATION_MAP => {
                    let name = format!("piece of sparse array {:#x}", step.resource);
                    let entry = Entry { count: 1, bytes: 0, owner: step.resource, name };
                    table().set(BlockerKind::SparseMapping, key, entry);
                }
                MEM_OPERATION_UNMAP => gone(table().take(BlockerKind::SparseMapping, key)),
                _ => {}
            }
        }
    }
}

/// Which piece of which array a step is about.
fn piece(step: &ArrayMapInfo) -> u64 {
    let [a, b, c, d] = step.subresource;
    let parts = [step.resource, step.subresource_type.into(), a, b, c, d, step.device_bit_mask.into()];
    fingerprint(&parts.map(u64::to_le_bytes).concat())
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuArrayDestroy(h_array: Array) -> CuResult {
    let _pass = gate::enter(CallId::cuArrayDestroy);
    let taken = pieces_of(address(h_array.0));
    // SAFETY: the caller's arguments, unchanged.
    settle(taken, unsafe { real::cuArrayDestroy(h_array) })
}

/// # Safety
/// As the driver's function of this name.
pub(crate) unsafe fn cuMipmappedArrayDestroy(h_mipmapped_array: MipmappedArray) -> CuResult {
    let _pass = gate::enter(CallId::cuMipmappedArrayDestroy);
    let taken = pieces_of(address(h_mipmapped_array.0));
    // SAFETY: the caller's arguments, unchanged.
    settle(taken, unsafe { real::cuMipmappedArrayDestroy(h_mipmapped_array) })
}

fn pieces_of(array: u64) -> Taken {
    table().take_all(|kind, _, entry| kind == BlockerKind::SparseMapping && entry.owner == array)
}
