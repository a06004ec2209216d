//! How the bytes of an allocation are reached: where the program shows them, or else through the private window.
//!
//! A mapping of the program costs no driver call, and works on a card with no byte free. What it has not mapped, or
//! not as a whole, or not with the access that is needed, the window shows.

use cuda_sys::{AccessFlags, AllocationProp, Device, LocationType, MemHandle, MemLocation};
use shim_core::world::{Description, Standing, View};

use super::window::Window;
use super::{Memory, Shown, TransferError, lanes};

/// Memory whose bytes are to be moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    real: MemHandle,
    prop: AllocationProp,
    size: u64,
    seen: Option<Seen>,
}

/// Where the program shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    ByProcessor(u64),
    ByDevice(Device, u64),
}

impl Subject {
    /// An allocation with the mappings that the program has of it, to be read or to be written.
    pub(crate) fn new(what: &Description, real: MemHandle, views: &[View], access: AccessFlags) -> Self {
        let whole = views
            .iter()
            .filter(|view| view.standing == Standing::Live && view.offset == 0 && view.len == what.size);
        let seen = whole.filter_map(|view| seen(what.prop.location, view, access)).next();
        Self { real, prop: what.prop, size: what.size, seen }
    }

    /// The device that sees all of it, and where.
    pub(super) fn on_device(&self) -> Option<(Device, u64)> {
        match self.seen {
            Some(Seen::ByDevice(device, address)) => Some((device, address)),
            Some(Seen::ByProcessor(_)) | None => None,
        }
    }

    /// Whether the program shows it, so that the window is not needed.
    pub(super) fn is_seen(&self) -> bool {
        self.seen.is_some()
    }

    /// The group of the lane that moves it.
    pub(super) fn group(&self) -> usize {
        lanes::group(self.prop.location)
    }

    /// How many bytes it is.
    pub(super) fn size(&self) -> u64 {
        self.size
    }
}

/// Whether a mapping of the whole memory gives that access to who is nearest to it.
fn seen(home: MemLocation, view: &View, access: AccessFlags) -> Option<Seen> {
    let is_host = |kind| matches!(kind, LocationType::HOST | LocationType::HOST_NUMA);
    let allowed = view
        .grants
        .iter()
        .filter(|grant| (grant.from, grant.to) == (0, view.len) && grant.flags.0 & access.0 == access.0);
    allowed
        .filter_map(|grant| match (home.kind, grant.location) {
            (LocationType::DEVICE, to) if to == home => Some(Seen::ByDevice(Device(home.id), view.address)),
            (kind, to) if is_host(kind) && is_host(to.kind) => Some(Seen::ByProcessor(view.address)),
            _ => None,
        })
        .next()
}

/// The ways to objects of up to a certain size. One object at a time.
#[derive(Debug)]
pub(super) struct Reach {
    largest: u64,
    window: Option<Window>,
}

impl Reach {
    pub(super) const fn new(largest: u64) -> Self {
        Self { largest, window: None }
    }

    /// Makes an object reachable.
    pub(super) fn open(&mut self, subject: &Subject) -> Result<Shown, TransferError> {
        match subject.seen {
            Some(Seen::ByProcessor(address)) => Ok(Shown::Processor(Memory::at(address, subject.size)?)),
            Some(Seen::ByDevice(device, address)) => Ok(Shown::Device(device, address)),
            None => {
                let mut window = match self.window.take() {
                    Some(window) => window,
                    None => Window::open(self.largest)?,
                };
                let shown = window.show(subject.real, &subject.prop, subject.size);
                self.window = Some(window);
                shown
            }
        }
    }

    /// The object is done with. Also to be called after an error: a mapping left behind keeps the memory.
    pub(super) fn close(&mut self) -> Result<(), TransferError> {
        self.window.as_mut().map_or(Ok(()), Window::hide)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shim_core::world::Grant;

    const SIZE: u64 = 4096;
    const GPU1: MemLocation = MemLocation { kind: LocationType::DEVICE, id: 1 };
    const NODE: MemLocation = MemLocation { kind: LocationType::HOST_NUMA, id: 0 };

    fn view(location: MemLocation, flags: AccessFlags) -> View {
        let grants = vec![Grant { location, from: 0, to: SIZE, flags }];
        View { address: 77, len: SIZE, offset: 0, standing: Standing::Live, grants }
    }

    #[test]
    fn a_mapping_is_used_by_who_is_nearest_and_may() {
        let device = Some(Seen::ByDevice(Device(1), 77));
        let (read, write) = (AccessFlags::READ, AccessFlags::READ_WRITE);
        assert_eq!(seen(GPU1, &view(GPU1, write), read), device);
        assert_eq!(seen(GPU1, &view(GPU1, write), write), device);
        assert_eq!(seen(GPU1, &view(GPU1, read), read), device);
        assert_eq!(seen(GPU1, &view(GPU1, read), write), None);
        let other = MemLocation { id: 0, ..GPU1 };
        assert_eq!(seen(GPU1, &view(other, write), read), None);
        let host = MemLocation { kind: LocationType::HOST, id: 0 };
        assert_eq!(seen(NODE, &view(host, write), write), Some(Seen::ByProcessor(77)));
        assert_eq!(seen(NODE, &view(GPU1, write), write), None);
        assert_eq!(seen(GPU1, &view(NODE, write), write), None);
    }

    #[test]
    fn access_to_a_part_is_not_enough() {
        let mut part = view(GPU1, AccessFlags::READ_WRITE);
        part.grants[0].to = SIZE / 2;
        assert_eq!(seen(GPU1, &part, AccessFlags::READ), None);
    }
}
