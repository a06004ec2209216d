//! Virtual memory management: what the program creates, maps and shares by handle.
//!
//! Every handle the program sees is virtual. A call that takes one translates it and keeps the real one pinned while
//! the driver works; a call that gives one records what the driver gave, once it has succeeded.

mod mappings;
mod memory;
mod sharing;

pub(crate) use mappings::{
    cuMemAddressFree, cuMemAddressReserve, cuMemGetAccess, cuMemMap, cuMemSetAccess, cuMemUnmap,
};
pub(crate) use memory::name;
pub(crate) use memory::{
    cuMemCreate, cuMemGetAllocationPropertiesFromHandle, cuMemRelease, cuMemRetainAllocationHandle,
};
pub(crate) use sharing::by_ticket;
pub(crate) use sharing::{
    cuMemExportToShareableHandle, cuMemImportFromShareableHandle, export, import_descriptor, restock,
};
