//! `cuMemAlloc` and its family, backed by memory of our own and to the program native in every respect.
//!
//! Native legacy memory could be carried by the driver, slowly, but never shared again after a restore. So each block
//! lies in a span of ours ([`crate::blocks`]): alone if it is large, with others in a slab if it is small.

mod memory;
mod native;
mod pointers;
mod waiting;

pub(crate) use memory::{
    cuMemAlloc_v2, cuMemAllocPitch_v2, cuMemFree_v2, cuMemFreeAsync, cuMemFreeAsync_ptsz,
};
pub(crate) use native::{
    context_gone, cuMemAllocAsync, cuMemAllocAsync_ptsz, cuMemAllocFromPoolAsync,
    cuMemAllocFromPoolAsync_ptsz, cuMemAllocHost_v2, cuMemFreeHost, cuMemHostAlloc, forked, sums,
};
pub(crate) use pointers::{
    cuMemGetAddressRange_v2, cuPointerGetAttribute, cuPointerGetAttributes, cuPointerSetAttribute,
};
