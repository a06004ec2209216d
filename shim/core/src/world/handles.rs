//! Virtual handles and what they count.

use cuda_sys::MemHandle;
use protocol::{AllocationId, Secret};

use super::names::Name;
use super::record::{Allocation, Attachment, Backing, Contents, Description, Handle, Key, Origin};
use super::team::Part;
use super::{State, VIRTUAL, World, is_virtual};

/// Keeps the real handle of an allocation valid across a driver call. Goes back by [`World::unpin`].
#[derive(Debug)]
#[must_use = "an allocation stays pinned until `unpin`"]
pub struct Pin {
    pub(super) key: Key,
    /// The virtual handle it was pinned through, or `NONE`.
    pub(super) handle: MemHandle,
    pub(super) imported: bool,
    real: MemHandle,
}

impl Pin {
    /// What the driver knows the allocation by.
    pub const fn real(&self) -> MemHandle {
        self.real
    }

    /// Whether it was pinned through a handle that came by an import.
    pub const fn is_imported(&self) -> bool {
        self.imported
    }
}

/// An allocation without references: whoever holds this asks the driver to release it, then says how that went.
#[derive(Debug)]
#[must_use = "the real handle leaks unless the driver is asked to release it"]
pub struct Leaving {
    pub(super) key: Key,
    /// Whether the last reference was a handle that came by an import.
    imported: bool,
    real: Option<MemHandle>,
}

impl Leaving {
    /// The real handle, or `None` where the driver has it back already.
    pub const fn real(&self) -> Option<MemHandle> {
        self.real
    }
}

/// Why a handle, or a ticket, leads nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotHere {
    /// Not a virtual handle: the driver knows better.
    NotOurs,
    /// No such allocation, or not any more.
    Unknown,
    /// The secret is wrong.
    Secret,
    /// The allocation is dropped for the time being.
    Dropped,
}

/// What a release comes to.
#[derive(Debug)]
pub enum Release {
    /// One reference less; others are left.
    Counted,
    /// That was the last one: the driver's answer is the answer.
    Last(Leaving),
}

/// What is left of an allocation that is gone.
#[derive(Debug)]
pub struct Gone<A> {
    /// What was kept beside it.
    pub attached: A,
    /// Memory that was bound to it and lost its last reference.
    pub leaving: Vec<Leaving>,
}

/// An import that was recorded.
#[derive(Debug)]
pub struct Adopted {
    /// What the program gets.
    pub handle: MemHandle,
    /// A second real handle of one allocation, to be released: somebody else's import of it came first.
    pub surplus: Option<MemHandle>,
}

impl<A: Attachment> World<A> {
    /// Records new memory and returns a virtual handle that is held once.
    pub fn adopt(&self, real: MemHandle, what: Description) -> MemHandle {
        let mut state = self.lock();
        let key = state.adopt(real, what);
        state.new_handle(key, what.origin != Origin::Created)
    }

    /// Records an import by ticket, or another reference to it where the allocation is known by now.
    pub fn adopt_import(&self, real: MemHandle, what: Description) -> Adopted {
        let mut state = self.lock();
        let (key, surplus) = match state.find(what.id, what.secret) {
            Ok(key) => (key, Some(real)),
            Err(_) => {
                let key = state.adopt(real, what);
                state.publish(key);
                (key, None)
            }
        };
        Adopted { handle: state.new_handle(key, true), surplus }
    }

    /// Another virtual handle for an allocation that is here already, as an import of its ticket gives.
    pub fn join(&self, id: AllocationId, secret: Secret) -> Result<MemHandle, NotHere> {
        let mut state = self.lock();
        let key = state.find(id, secret)?;
        Ok(state.new_handle(key, true))
    }

    /// Pins the allocation behind a virtual handle. A handle that was released is still good while something is
    /// mapped through it, as with the driver (580.159.04).
    pub fn pin(&self, handle: MemHandle) -> Result<Pin, NotHere> {
        let mut state = self.lock();
        let found = *state.known(handle)?;
        state.pin(found.key, handle, found.imported)
    }

    /// Whether the allocation is one of this process's, for whoever knows its secret; pins nothing.
    pub fn has_ticket(&self, id: AllocationId, secret: Secret) -> Result<(), NotHere> {
        self.lock().find(id, secret).map(drop)
    }

    /// Pins an allocation for whoever knows its secret. Memory whose bytes are elsewhere, or not back yet, is as good
    /// as dropped.
    pub fn pin_ticket(&self, id: AllocationId, secret: Secret) -> Result<Pin, NotHere> {
        let mut state = self.lock();
        let key = state.find(id, secret)?;
        if state.allocations.get(&key).is_some_and(|allocation| allocation.contents != Contents::Live) {
            return Err(NotHere::Dropped);
        }
        state.pin(key, MemHandle::NONE, false)
    }

    /// Gives a pin back.
    pub fn unpin(&self, pin: Pin) -> Option<Leaving> {
        let mut state = self.lock();
        let allocation = state.allocations.get_mut(&pin.key)?;
        allocation.pins = allocation.pins.saturating_sub(1);
        if allocation.pins == 0 {
            self.unpinned.notify_all();
        }
        state.settle(pin.key)
    }

    /// Takes one reference of the program away from a virtual handle.
    pub fn release(&self, handle: MemHandle) -> Result<Release, NotHere> {
        let mut state = self.lock();
        let found = state.known(handle)?;
        found.count = found.count.checked_sub(1).ok_or(NotHere::Unknown)?;
        let Handle { key, imported, .. } = *found;
        state.prune(handle);
        Ok(match state.settle(key) {
            Some(leaving) => Release::Last(Leaving { imported, ..leaving }),
            None => Release::Counted,
        })
    }

    /// Undoes a release whose driver call failed: the program still holds `handle`.
    pub fn unrelease(&self, handle: MemHandle, leaving: Leaving) {
        let mut state = self.lock();
        let key = leaving.key;
        if let Some(allocation) = state.allocations.get_mut(&key) {
            allocation.leaving = false;
            state.hold(handle, key, leaving.imported).count += 1;
        }
    }

    /// Another reference to the handle through which the byte at `address` is mapped.
    pub fn retain(&self, address: u64) -> Option<MemHandle> {
        let mut state = self.lock();
        let handle = state.mapping_at(address)?.1.handle;
        state.known(handle).ok()?.count += 1;
        Some(handle)
    }

    /// Forgets an allocation whose real handle the driver has taken back. What was attached to it is the caller's, and so is
    /// what it held.
    pub fn finish(&self, leaving: Leaving) -> Option<Gone<A>> {
        let mut state = self.lock();
        let gone = state.allocations.remove(&leaving.key)?;
        state.allocation_names.give_back(leaving.key.name);
        state.waiting.remove(&leaving.key);
        if gone.published && state.published.get(&gone.what.id) == Some(&leaving.key) {
            state.published.remove(&gone.what.id);
        }
        let leaving = state.let_go_of(&gone.part.bindings);
        Some(Gone { attached: gone.attached, leaving })
    }

    /// Keeps an allocation whose release the driver refused, to be tried again by a sweep.
    pub fn abort(&self, leaving: Leaving) {
        let mut state = self.lock();
        if let Some(allocation) = state.allocations.get_mut(&leaving.key) {
            allocation.leaving = false;
            state.waiting.insert(leaving.key);
        }
    }
}

impl<A: Attachment> State<A> {
    fn adopt(&mut self, real: MemHandle, what: Description) -> Key {
        let key = Key { serial: self.count, name: self.allocation_names.take() };
        self.count += 1;
        self.allocations.insert(
            key,
            Box::new(Allocation {
                what,
                backing: Backing::Live(real),
                contents: Contents::Live,
                copy: None,
                handles: 0,
                mappings: 0,
                bound: 0,
                part: Part::default(),
                pins: 0,
                leaving: false,
                withheld: false,
                raw: false,
                bound_for_good: false,
                published: false,
                attached: A::default(),
            }),
        );
        key
    }

    /// A new virtual handle, held once.
    fn new_handle(&mut self, key: Key, imported: bool) -> MemHandle {
        let handle = MemHandle(VIRTUAL | self.handle_names.take().number());
        let new = self.hold(handle, key, imported);
        new.owns_name = true;
        new.count = 1;
        handle
    }

    /// The record of a handle; a new one where mappings and references had all gone meanwhile.
    pub(super) fn hold(&mut self, handle: MemHandle, key: Key, imported: bool) -> &mut Handle {
        let (allocations, waiting) = (&mut self.allocations, &mut self.waiting);
        self.handles.entry(Name::of(handle.0)).or_insert_with(|| {
            if let Some(allocation) = allocations.get_mut(&key) {
                allocation.handles += 1;
                waiting.remove(&key);
            }
            Handle { key, imported, count: 0, mappings: 0, owns_name: false }
        })
    }

    /// The record of a handle that the program, or a mapping, holds.
    fn known(&mut self, handle: MemHandle) -> Result<&mut Handle, NotHere> {
        if !is_virtual(handle) {
            return Err(NotHere::NotOurs);
        }
        self.handles.get_mut(&Name::of(handle.0)).ok_or(NotHere::Unknown)
    }

    /// Drops the record of a handle that nobody and nothing holds.
    pub(super) fn prune(&mut self, handle: MemHandle) {
        let name = Name::of(handle.0);
        let Some(found) = self.handles.get(&name).copied() else { return };
        if found.count == 0 && found.mappings == 0 {
            self.handles.remove(&name);
            if found.owns_name {
                self.handle_names.give_back(name);
            }
            if let Some(allocation) = self.allocations.get_mut(&found.key) {
                allocation.handles -= 1;
            }
        }
    }

    /// From here on the allocation is found by its id.
    pub(super) fn publish(&mut self, key: Key) -> Option<Description> {
        let allocation = self.allocations.get_mut(&key)?;
        if !allocation.published {
            allocation.published = true;
            self.published.insert(allocation.what.id, key);
        }
        Some(allocation.what)
    }

    /// The allocation of that id, for whoever knows the secret.
    fn find(&self, id: AllocationId, secret: Secret) -> Result<Key, NotHere> {
        let key = *self.published.get(&id).ok_or(NotHere::Unknown)?;
        match self.allocations.get(&key) {
            Some(found) if found.leaving => Err(NotHere::Unknown),
            Some(found) if found.what.secret != secret => Err(NotHere::Secret),
            Some(_) => Ok(key),
            None => Err(NotHere::Unknown),
        }
    }

    pub(super) fn pin(&mut self, key: Key, handle: MemHandle, imported: bool) -> Result<Pin, NotHere> {
        let allocation = self.allocations.get_mut(&key).ok_or(NotHere::Unknown)?;
        match allocation.backing {
            Backing::Live(real) if !allocation.withheld => {
                allocation.pins += 1;
                Ok(Pin { key, handle, imported, real })
            }
            _ => Err(NotHere::Dropped),
        }
    }

    /// Looks whether anything still refers to an allocation, and lets it go if not.
    pub(super) fn settle(&mut self, key: Key) -> Option<Leaving> {
        let allocation = self.allocations.get_mut(&key)?;
        let held = allocation.handles > 0 || allocation.bound > 0 || allocation.pins > 0;
        if held || allocation.leaving {
            return None;
        }
        if allocation.attached.held() {
            self.waiting.insert(key);
            return None;
        }
        allocation.leaving = true;
        self.waiting.remove(&key);
        let real = match allocation.backing {
            Backing::Live(real) => Some(real),
            Backing::Dropped => None,
        };
        Some(Leaving { key, imported: false, real })
    }
}
