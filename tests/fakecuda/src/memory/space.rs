//! Which addresses lead to which memory, and who may touch them.
//!
//! Whoever touches memory on behalf of work does so inside [`Space::walk`], under the read lock: an unmap waits for the lock,
//! so work never touches memory that is gone, and finds out at its next step that it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use cuda_sys::{CuError, CuResult};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};

use super::exhausted;
use super::host::Locked;
use super::multicast::team::Team;
use super::native::{Kind, Native};
use super::physical::Physical;
use super::vmm::Object;
use crate::context::Ctx;
use crate::ranges::Ranges;

/// Where device addresses begin, so that processes tend to use the same ones, as with the real driver. Nothing else lives there.
const START: usize = 0x0200_0000_0000;
const SIZE: usize = 1 << 42;
const LEAST: usize = 1 << 36;

/// The bit that stands for the host in [`Access`]; devices are bits 0 to 15, by ordinal.
pub(crate) const HOST: u32 = 1 << 31;

/// Who may read and write, as bit sets of devices and the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Access {
    pub(crate) read: u32,
    pub(crate) write: u32,
}

/// Why work could not touch memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Nothing is mapped there.
    Unmapped(usize),
    /// It is mapped, but not for this device.
    NoAccess(usize),
    /// It may only be read.
    ReadOnly(usize),
}

/// On whose behalf memory is touched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agent {
    /// The device that touches it.
    pub(crate) ordinal: usize,
    /// Devices whose native memory it reaches.
    pub(crate) reach: u32,
}

/// Memory at an address: where it is for us, how far it goes, and where else a write goes.
#[derive(Debug)]
struct Piece {
    place: *mut u8,
    length: usize,
    copies: Vec<*mut u8>,
}

impl Piece {
    fn alone(place: *mut u8, length: usize) -> Self {
        Self { place, length, copies: Vec::new() }
    }

    fn of_team(team: &Team, inside: usize, agent: Agent) -> Option<Self> {
        let device = crate::driver::driver().and_then(|driver| driver.physical(agent.ordinal)).ok()?;
        let (mut copies, length) = team.at(inside, device);
        if copies.is_empty() {
            return None;
        }
        let place = copies.remove(0);
        Some(Self { place, length, copies })
    }
}

/// A mapping of `cuMemMap`.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) size: usize,
    /// Another one for each mapping.
    pub(crate) id: u64,
    pub(crate) object: &'static Object,
    pub(crate) memory: Arc<Physical>,
    pub(crate) access: Access,
}

/// What an address belongs to.
#[derive(Debug)]
pub(crate) enum Area {
    /// A reservation with its mappings, by their addresses.
    Reserved { size: usize, maps: BTreeMap<usize, Mapping> },
    /// Memory that the driver placed.
    Native(Box<Native>),
    /// Page-locked memory of the host.
    Locked(Locked),
    /// Managed memory.
    Managed { size: usize, context: &'static Ctx, id: u64 },
}

impl Area {
    fn size(&self) -> usize {
        match self {
            Self::Reserved { size, .. } | Self::Managed { size, .. } => *size,
            Self::Native(native) => native.size,
            Self::Locked(locked) => locked.size,
        }
    }
}

/// The address space as work sees it.
#[derive(Debug)]
pub(crate) struct Space {
    free: Ranges,
    areas: BTreeMap<usize, Area>,
}

/// Makes the addresses unusable for the host, and keeps them for us.
fn reserve_host(at: usize, size: usize, flags: MapFlags) -> rustix::io::Result<usize> {
    let place = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: the caller owns the range, or asks for one that nothing else uses.
    let mapped = unsafe {
        mmap_anonymous(place, size, ProtFlags::empty(), flags | MapFlags::NORESERVE | MapFlags::PRIVATE)
    }?;
    Ok(mapped.expose_provenance())
}

impl Space {
    pub(crate) fn new() -> CuResult<Self> {
        let mut size = SIZE;
        let start = loop {
            let wanted = reserve_host(START, size, MapFlags::FIXED_NOREPLACE);
            match wanted.or_else(|_| reserve_host(0, size, MapFlags::empty())) {
                Ok(start) => break start,
                Err(_) if size > LEAST => size /= 2,
                Err(error) => return Err(exhausted(error)),
            }
        };
        Ok(Self { free: Ranges::new(start, size), areas: BTreeMap::new() })
    }

    /// Takes an address range, at `wanted` if that is free and aligned.
    pub(crate) fn take(&mut self, size: usize, align: usize, wanted: usize) -> Option<usize> {
        if wanted != 0 && wanted.is_multiple_of(align) && self.free.take_at(wanted, size) {
            return Some(wanted);
        }
        self.free.take(size, align)
    }

    /// Gives an address range back.
    pub(crate) fn give(&mut self, at: usize, size: usize) {
        self.free.give(at, size);
    }

    pub(crate) fn insert(&mut self, at: usize, area: Area) {
        self.areas.insert(at, area);
    }

    pub(crate) fn remove(&mut self, at: usize) -> Option<Area> {
        self.areas.remove(&at)
    }

    /// The area that starts here.
    pub(crate) fn at(&self, at: usize) -> Option<&Area> {
        self.areas.get(&at)
    }

    /// The area with this address in it, and where it starts.
    pub(crate) fn find(&self, address: usize) -> Option<(usize, &Area)> {
        let (&start, area) = self.areas.range(..=address).next_back()?;
        (address - start < area.size()).then_some((start, area))
    }

    pub(crate) fn find_mut(&mut self, address: usize) -> Option<(usize, &mut Area)> {
        let (&start, area) = self.areas.range_mut(..=address).next_back()?;
        (address - start < area.size()).then_some((start, area))
    }

    /// The mapping with this address in it, and where it starts.
    pub(crate) fn mapping(&self, address: usize) -> Option<(usize, &Mapping)> {
        let (_, Area::Reserved { maps, .. }) = self.find(address)? else { return None };
        let (&start, mapping) = maps.range(..=address).next_back()?;
        (address - start < mapping.size).then_some((start, mapping))
    }

    /// Removes the allocation that starts here, if `wanted` agrees.
    pub(crate) fn remove_native(
        &mut self,
        at: usize,
        wanted: impl Fn(&Native) -> bool,
    ) -> Option<Box<Native>> {
        if !matches!(self.areas.get(&at), Some(Area::Native(native)) if wanted(native)) {
            return None;
        }
        match self.areas.remove(&at) {
            Some(Area::Native(native)) => Some(native),
            _ => None,
        }
    }

    /// Removes whatever was allocated in a context.
    pub(crate) fn remove_all_of(&mut self, context: &'static Ctx) -> Vec<(usize, Box<Native>)> {
        let of_context = |native: &Native| std::ptr::eq(native.context, context);
        let starts: Vec<usize> =
            self.natives().filter(|(_, native)| of_context(native)).map(|(at, _)| at).collect();
        let mut removed = Vec::new();
        for at in starts {
            removed.extend(self.remove_native(at, |_| true).map(|native| (at, native)));
        }
        removed
    }

    /// Where the managed memory of a context begins.
    pub(crate) fn managed_of(&self, context: &'static Ctx) -> Vec<usize> {
        let of_context =
            |area: &Area| matches!(area, Area::Managed { context: of, .. } if std::ptr::eq(*of, context));
        self.areas.iter().filter(|(_, area)| of_context(area)).map(|(at, _)| *at).collect()
    }

    /// Every allocation that the driver placed.
    pub(crate) fn natives(&self) -> impl Iterator<Item = (usize, &Native)> {
        self.areas.iter().filter_map(|(&at, area)| match area {
            Area::Native(native) => Some((at, native.as_ref())),
            _ => None,
        })
    }

    /// Counts another open of an IPC handle, by the id of the memory's share and the place in its file, if it is open, and gives
    /// its address.
    pub(crate) fn open_again(&mut self, id: u64, offset: usize) -> Option<usize> {
        self.areas.iter_mut().find_map(|(&at, area)| match area {
            Area::Native(native) if native.memory.is_at(offset) => match &mut native.kind {
                Kind::Ipc { opened, id: other } if *other == id => {
                    *opened += 1;
                    Some(at)
                }
                _ => None,
            },
            _ => None,
        })
    }

    /// Says on which device an allocation is.
    pub(crate) fn set_ordinal(&mut self, at: usize, ordinal: usize) {
        if let Some(Area::Native(native)) = self.areas.get_mut(&at) {
            native.ordinal = ordinal;
        }
    }

    /// Every area.
    pub(crate) fn areas(&self) -> impl Iterator<Item = &Area> {
        self.areas.values()
    }

    /// Whether an area has addresses in this range.
    pub(crate) fn overlaps(&self, start: usize, end: usize) -> bool {
        self.areas.range(..end).next_back().is_some_and(|(&at, area)| at + area.size() > start)
    }

    /// The memory at an address: where it is for us, and how far it goes.
    fn piece(&self, address: usize, agent: Agent, write: bool) -> Result<Piece, Fault> {
        let (start, area) = self.find(address).ok_or(Fault::Unmapped(address))?;
        match area {
            Area::Reserved { .. } => {
                let (start, mapping) = self.mapping(address).ok_or(Fault::Unmapped(address))?;
                let inside = address - start;
                let bit = 1 << agent.ordinal;
                if mapping.access.read & bit == 0 {
                    return Err(Fault::NoAccess(address));
                }
                if write && mapping.access.write & bit == 0 {
                    return Err(Fault::ReadOnly(address));
                }
                match &mapping.memory.team {
                    Some(team) => Piece::of_team(team, inside, agent).ok_or(Fault::Unmapped(address)),
                    None => Ok(Piece::alone(mapping.memory.at(inside), mapping.size - inside)),
                }
            }
            Area::Native(native) => {
                // The header: opening enables access for the device of the opener, where that is another one.
                let opened = matches!(native.kind, Kind::Ipc { .. });
                let by_opener = opened && native.context.ordinal() == agent.ordinal;
                if agent.reach & 1 << native.ordinal == 0 && !by_opener {
                    return Err(Fault::NoAccess(address));
                }
                let inside = address - start;
                Ok(Piece::alone(native.memory.at(native.offset + inside), native.size - inside))
            }
            Area::Locked(locked) => {
                if write && locked.is_read_only() {
                    return Err(Fault::ReadOnly(address));
                }
                let place = std::ptr::with_exposed_provenance_mut(address);
                Ok(Piece::alone(place, start + locked.size - address))
            }
            Area::Managed { size, .. } => {
                let place = std::ptr::with_exposed_provenance_mut(address);
                Ok(Piece::alone(place, start + size - address))
            }
        }
    }

    /// Calls `touch` with each piece of memory in a range, in order, or says why the range cannot be touched; then some of it
    /// may have been.
    pub(crate) fn walk(
        &self,
        address: usize,
        size: usize,
        agent: Agent,
        write: bool,
        mut touch: impl FnMut(*mut u8, usize),
    ) -> Result<(), Fault> {
        let (mut address, mut left) = (address, size);
        while left > 0 {
            let Piece { place, length, .. } = self.piece(address, agent, write)?;
            let length = length.min(left);
            touch(place, length);

            address += length;
            left -= length;
        }
        Ok(())
    }
}

impl Space {
    /// The same for a range that is written to, and what was written goes to every memory that is behind the range: that is how
    /// multicast objects work.
    pub(crate) fn write(
        &self,
        address: usize,
        size: usize,
        agent: Agent,
        touch: impl FnMut(*mut u8, usize),
    ) -> Result<(), Fault> {
        self.walk(address, size, agent, true, touch)?;
        self.spread(address, size, agent)
    }

    /// Brings what has just been written to a range to every memory that is behind it.
    pub(crate) fn spread(&self, address: usize, size: usize, agent: Agent) -> Result<(), Fault> {
        let (mut address, mut left) = (address, size);
        while left > 0 {
            let Piece { place, length, copies } = self.piece(address, agent, true)?;
            let length = length.min(left);
            for copy in copies {
                // SAFETY: both are places of bound memory, at least this long, and not the same.
                unsafe { copy.copy_from_nonoverlapping(place, length) };
            }
            address += length;
            left -= length;
        }
        Ok(())
    }
}

/// Lets the host touch a range of device addresses: that memory of the host is mapped at.
pub(crate) fn show_to_host(at: usize, size: usize, memory: &Physical, write: bool) -> CuResult {
    let (pool, from) = memory.backing(0);
    let protection = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
    let place = std::ptr::with_exposed_provenance_mut(at);
    let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: the range lies in the space's own reservation, which nobody but the space maps anything into.
    unsafe { mmap(place, size, protection, flags, pool.file(), crate::args::wide(from)) }
        .map_err(exhausted)?;
    Ok(())
}

/// Takes a range of device addresses from the host again.
pub(crate) fn hide_from_host(at: usize, size: usize) -> CuResult {
    reserve_host(at, size, MapFlags::FIXED).map_err(exhausted)?;
    Ok(())
}

/// The driver's answer to a copy or fill that cannot touch its memory.
impl From<Fault> for CuError {
    fn from(_fault: Fault) -> Self {
        Self::INVALID_VALUE
    }
}
