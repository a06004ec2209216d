//! The tables of the shim, driven as hooks and verbs drive them.

#![allow(clippy::indexing_slicing, reason = "a test may panic")]

mod mappings;
mod marks;
mod model;
mod scale;
mod team;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use cuda_sys::{AllocationProp, LocationType, MemHandle, MemLocation};
use protocol::{AllocationId, Secret};
use shim_core::world::{Attachment, Description, Origin, World};

const SIZE: u64 = 0x20_0000;
const BASE: u64 = 0x7000_0000_0000;
const GPU0: MemLocation = MemLocation { kind: LocationType::DEVICE, id: 0 };
const GPU1: MemLocation = MemLocation { kind: LocationType::DEVICE, id: 1 };

/// Descriptors outside the shim.
#[derive(Default, Debug)]
struct Fds(Arc<AtomicU32>);

impl Attachment for Fds {
    fn held(&self) -> bool {
        self.0.load(Relaxed) > 0
    }
}

fn id(number: u64) -> AllocationId {
    AllocationId(u128::from(number).to_le_bytes())
}

fn description(number: u64) -> Description {
    Description {
        id: id(number),
        secret: Secret((!u128::from(number)).to_le_bytes()),
        size: 4 * SIZE,
        prop: AllocationProp { location: GPU0, ..AllocationProp::default() },
        origin: Origin::Created,
        multicast: None,
    }
}

/// What the driver of these tests calls allocation `number`.
fn real(number: u64) -> MemHandle {
    MemHandle(0x5500_0000_0000 + number * 16)
}

fn create(world: &World<Fds>, number: u64) -> MemHandle {
    world.adopt(real(number), description(number))
}

fn map(world: &World<Fds>, handle: MemHandle, address: u64, len: u64, offset: u64) {
    let pin = world.pin(handle).expect("a held handle");
    assert!(world.map(&pin, address, len, offset).is_empty(), "nothing was mapped there");
    assert!(world.unpin(pin).is_none(), "a mapping holds");
}
