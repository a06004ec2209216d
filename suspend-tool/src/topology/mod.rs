//! Who shares what with whom, found out by comparing inventories. Pure functions: no process is asked here.
//!
//! An allocation has one name in all processes. A process either made it (it is a *holder* in its own right) or
//! imported it. Before anything is released, every import needs a process that will hand the memory out again:
//!
//! * the one that made it, if it still has it;
//! * else an *heir*: one of the importers, which saves the contents in place of the one that is gone.

mod connected;
mod plan;
#[cfg(test)]
mod properties;
mod torn;

pub use connected::groups;
pub use plan::{Around, Obstacle, Plan, make_plan, sources_now};
pub use torn::{Torn, torn};

use protocol::{Allocation, Contents, Inventory, Location, Origin};

use crate::pid::Pid;

/// A process and what it says it has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// The process.
    pub pid: Pid,
    /// Its answer to `inspect`, with allocations.
    pub inventory: Inventory,
}

impl Member {
    /// Processes with what they answered, in order of their numbers.
    pub fn of(answers: impl IntoIterator<Item = (Pid, Inventory)>) -> Vec<Self> {
        let mut members: Vec<Self> =
            answers.into_iter().map(|(pid, inventory)| Self { pid, inventory }).collect();
        members.sort_by_key(|member| member.pid);
        members
    }

    /// Whether the process made this allocation itself.
    fn made(&self, allocation: &Allocation) -> bool {
        match allocation.origin {
            Origin::Created => true,
            // A ticket of one's own leads to the same allocation.
            Origin::Imported { exporter } => exporter == self.pid.number(),
        }
    }

    /// The UUID of one of its devices.
    pub fn device(&self, ordinal: i32) -> Option<[u8; 16]> {
        self.inventory.devices.iter().find(|device| device.ordinal == ordinal).map(|device| device.uuid)
    }
}

/// What a release will save.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Amount {
    /// How many allocations.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What a release of this process will save.
pub fn released(member: &Member, heir_of: &[protocol::AllocationId]) -> Amount {
    member
        .inventory
        .allocations
        .iter()
        .filter(|allocation| allocation.contents == Contents::Live && allocation.multicast.is_none())
        .filter(|allocation| member.made(allocation) || heir_of.contains(&allocation.id))
        .fold(Amount::default(), |sum, allocation| Amount {
            objects: sum.objects.saturating_add(1),
            bytes: sum.bytes.saturating_add(allocation.size),
        })
}

/// What the buffers take through which the bytes of a process go to host memory, at most: a ring, and some for threads.
const BUFFERS: u64 = 96 << 20;

/// Host memory that a suspend takes, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HostNeed {
    /// At least: what the driver saves takes as much room as it has bytes, and to look at the rest takes buffers.
    pub least: u64,
    /// At most: if nothing of the rest is zero.
    pub most: u64,
}

impl HostNeed {
    /// As much as this, whatever is in it.
    pub const fn exactly(bytes: u64) -> Self {
        Self { least: bytes, most: bytes }
    }
}

/// What a release takes of the host memory of a process, and what a driver checkpoint will add.
pub fn host_bytes(member: &Member, heir_of: &[protocol::AllocationId]) -> HostNeed {
    let driver = &member.inventory.driver_memory;
    let released = released(member, heir_of).bytes;
    let by_driver = driver.malloc_bytes.saturating_add(driver.async_bytes);
    let least = by_driver.saturating_add(released.min(BUFFERS));
    HostNeed { least, most: least.saturating_add(released) }
}

/// Bytes on each device, by UUID, that the process has there for itself and for those it is the heir for.
pub fn device_bytes(member: &Member, heir_of: &[protocol::AllocationId]) -> Vec<([u8; 16], u64)> {
    sum_by_device(member, |allocation| member.made(allocation) || heir_of.contains(&allocation.id))
}

/// Bytes on each device, by UUID, of what the process has saved and has no memory for.
pub fn saved_bytes(member: &Member) -> Vec<([u8; 16], u64)> {
    sum_by_device(member, |allocation| {
        let saved = matches!(allocation.contents, Contents::Zero | Contents::Host | Contents::Chunks);
        saved && !allocation.has_memory
    })
}

fn sum_by_device(member: &Member, counts: impl Fn(&Allocation) -> bool) -> Vec<([u8; 16], u64)> {
    let mut sums: Vec<([u8; 16], u64)> = Vec::new();
    for allocation in member.inventory.allocations.iter().filter(|allocation| counts(allocation)) {
        let Location::Device(ordinal) = allocation.location else { continue };
        let Some(uuid) = member.device(ordinal) else { continue };
        match sums.iter_mut().find(|(known, _)| *known == uuid) {
            Some((_, bytes)) => *bytes = bytes.saturating_add(allocation.size),
            None => sums.push((uuid, allocation.size)),
        }
    }
    sums
}

#[cfg(test)]
pub(crate) mod made_up {
    //! Inventories for tests.

    use super::*;
    use protocol::{AllocationId, DeviceInfo, Phase};

    pub(crate) fn pid(number: i32) -> Pid {
        Pid::new(number).unwrap()
    }

    pub(crate) fn id(number: u8) -> AllocationId {
        AllocationId([number; 16])
    }

    pub(crate) fn allocation(name: u8, origin: Origin) -> Allocation {
        Allocation {
            id: id(name),
            location: Location::Device(0),
            size: 1000,
            origin,
            exported: false,
            handles: 1,
            mappings: 1,
            contents: Contents::Live,
            has_memory: true,
            multicast: None,
        }
    }

    /// The same as a multicast object for `devices`, of which the process has added one and bound memory on it.
    pub(crate) fn as_object(allocation: Allocation, devices: u32) -> Allocation {
        Allocation { multicast: Some(protocol::Team { devices, joined: 1, bound: 1 }), ..allocation }
    }

    pub(crate) fn created(name: u8) -> Allocation {
        allocation(name, Origin::Created)
    }

    pub(crate) fn imported(name: u8, exporter: i32) -> Allocation {
        allocation(name, Origin::Imported { exporter })
    }

    pub(crate) fn member(number: i32, allocations: impl Into<Vec<Allocation>>) -> Member {
        Member {
            pid: pid(number),
            inventory: Inventory {
                shim_version: env!("CARGO_PKG_VERSION").into(),
                pid: number,
                phase: Phase::Running,
                devices: vec![DeviceInfo { ordinal: 0, uuid: [7; 16], native: None }],
                allocations: allocations.into(),
                ..Inventory::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::made_up::{created, id, imported, member};
    use super::*;

    #[test]
    fn an_import_costs_its_importer_nothing_unless_it_is_the_heir() {
        let importer = member(2, [imported(1, 1), created(2)]);
        assert_eq!(host_bytes(&importer, &[]), HostNeed { least: 1000, most: 2000 });
        assert_eq!(host_bytes(&importer, &[id(1)]), HostNeed { least: 2000, most: 4000 });
        assert_eq!(device_bytes(&importer, &[id(1)]), [([7; 16], 2000)]);
    }

    #[test]
    fn memory_of_the_driver_counts_as_host_memory_and_host_memory_not_as_device_memory() {
        let mut process = member(1, [created(1)]);
        process.inventory.driver_memory.malloc_bytes = 50;
        process.inventory.driver_memory.async_bytes = 5;
        process.inventory.allocations[0].location = Location::HostNuma(0);
        assert_eq!(host_bytes(&process, &[]), HostNeed { least: 1055, most: 2055 });
        assert_eq!(device_bytes(&process, &[]), []);
    }
}
