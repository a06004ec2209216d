//! Multicast objects: an allocation without bytes of its own, and this process's part in it.
//!
//! ```text
//!   object    created or imported --> devices added --> memory bound --> mapped
//! ```
//!
//! A device is added for the life of the object, and an object lives as long as any process has it. So an object is
//! taken apart and made anew by all its holders or by none; and since binding and mapping wait until every device has been added,
//! each of the steps above is done by all before any goes on.
//!
//! A binding holds the memory as a mapping does. It is remembered by the memory it showed, also where the program gave an
//! address, whose mapping may be gone by the time it is bound again.

use cuda_sys::MemHandle;

use super::handles::{Leaving, NotHere, Pin};
use super::record::{Attachment, Backing, Key};
use super::{State, World};

/// What a multicast object was made with, besides its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Multicast {
    /// Devices that take part.
    pub devices: u32,
    /// The set of ways it may be exported.
    pub handle_types: u64,
    /// As the program gave them.
    pub flags: u64,
}

/// A device of this process that takes part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Joined {
    /// Its ordinal.
    pub device: i32,
    /// Whether the driver knows.
    pub live: bool,
}

/// Memory of this process that is bound to a range of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The device it is bound on.
    pub device: i32,
    /// Whether the program named the device, as the later form of the call demands.
    pub named: bool,
    /// The memory.
    pub memory: Key,
    /// First byte of the memory.
    pub from: u64,
    /// First byte of the object.
    pub at: u64,
    /// Bytes.
    pub len: u64,
    /// As the program gave them.
    pub flags: u64,
    /// Whether the driver has it.
    pub live: bool,
}

/// What this process has done with an object.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Part {
    /// Its devices that take part.
    pub joined: Vec<Joined>,
    /// What it has bound.
    pub bindings: Vec<Binding>,
}

impl<A: Attachment> World<A> {
    /// Records that the driver has added a device.
    pub fn joined(&self, pin: &Pin, device: i32) {
        if let Some(object) = self.lock().allocations.get_mut(&pin.key) {
            object.part.joined.push(Joined { device, live: true });
        }
    }

    /// Records memory that the driver has bound to an object.
    pub fn bound(&self, object: &Pin, memory: &Pin, binding: Binding) {
        let mut state = self.lock();
        let binding = Binding { memory: memory.key, live: true, ..binding };
        let Some(object) = state.allocations.get_mut(&object.key) else { return };
        object.part.bindings.push(binding);
        if let Some(memory) = state.allocations.get_mut(&binding.memory) {
            memory.bound += 1;
        }
    }

    /// Records that memory was bound which is not in the tables, so that nobody can bind it again.
    pub fn bound_for_good(&self, object: &Pin) {
        if let Some(object) = self.lock().allocations.get_mut(&object.key) {
            object.bound_for_good = true;
        }
    }

    /// Forgets what was bound to a range that the driver has unbound. Returns what lost its last reference.
    pub fn unbound(&self, object: &Pin, device: i32, at: u64, len: u64) -> Vec<Leaving> {
        let mut state = self.lock();
        let Some(object) = state.allocations.get_mut(&object.key) else { return Vec::new() };
        let is_it =
            |binding: &mut Binding| binding.device == device && binding.at == at && binding.len == len;
        let gone: Vec<Binding> = object.part.bindings.extract_if(.., is_it).collect();
        state.let_go_of(&gone)
    }

    /// Pins the memory that is mapped at an address, and says which byte of it that is.
    pub fn pin_at(&self, address: u64) -> Result<(Pin, u64), NotHere> {
        let mut state = self.lock();
        let (start, mapping) = state.mapping_at(address).ok_or(NotHere::NotOurs)?;
        let (key, from) = (mapping.key, mapping.offset + (address - start));
        Ok((state.pin(key, MemHandle::NONE, false)?, from))
    }

    /// What this process has done with an object.
    pub fn part(&self, key: Key) -> Part {
        self.lock().allocations.get(&key).map(|object| object.part.clone()).unwrap_or_default()
    }

    /// The real handle of an allocation that the driver has.
    pub fn real(&self, key: Key) -> Option<MemHandle> {
        match self.lock().allocations.get(&key)?.backing {
            Backing::Live(real) => Some(real),
            Backing::Dropped => None,
        }
    }

    /// Marks a device as known to the driver.
    pub fn rejoined(&self, key: Key, device: i32) {
        if let Some(object) = self.lock().allocations.get_mut(&key)
            && let Some(joined) = object.part.joined.iter_mut().find(|joined| joined.device == device)
        {
            joined.live = true;
        }
    }

    /// Marks a binding: whether the driver has it.
    pub fn rebound(&self, key: Key, binding: &Binding, live: bool) {
        let is_it = |other: &&mut Binding| other.device == binding.device && other.at == binding.at;
        if let Some(object) = self.lock().allocations.get_mut(&key)
            && let Some(found) = object.part.bindings.iter_mut().find(is_it)
        {
            found.live = live;
        }
    }
}

impl<A: Attachment> State<A> {
    /// Bindings are gone, and hold their memory no more.
    pub(super) fn let_go_of(&mut self, bindings: &[Binding]) -> Vec<Leaving> {
        let mut leaving = Vec::new();
        for binding in bindings {
            if let Some(memory) = self.allocations.get_mut(&binding.memory) {
                memory.bound = memory.bound.saturating_sub(1);
            }
            leaving.extend(self.settle(binding.memory));
        }
        leaving
    }
}
