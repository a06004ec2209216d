//! The tables against a model that counts on its fingers: who holds what, and when the real handle has to go.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use cuda_sys::MemHandle;
use proptest::prelude::*;
use protocol::{AllocationId, Secret};
use shim_core::world::{Leaving, NotHere, Release, World};

use crate::{Fds, SIZE, description};

/// Addresses that a mapping can take.
const SLOTS: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Create,
    Release(usize),
    Retain(usize),
    Map(usize, usize),
    Unmap(usize),
    Export(usize),
    Close(usize),
    Import(usize),
}

fn address(slot: usize) -> u64 {
    0x7000_0000_0000 + slot as u64 * SIZE
}

/// The tables, driven as the hooks drive them, beside a driver that counts its real handles.
#[derive(Default)]
struct Shim {
    world: World<Fds>,
    real: BTreeSet<u64>,
    next: u64,
    names: Vec<(AllocationId, Secret)>,
    fds: Vec<Arc<AtomicU32>>,
}

impl Shim {
    fn settle(&mut self, leaving: impl IntoIterator<Item = Leaving>) {
        for leaving in leaving {
            let real = leaving.real().expect("nothing was dropped");
            assert!(self.real.remove(&real.0), "{real:?} is released twice");
            self.world.finish(leaving).expect("a leaving allocation is in the table");
        }
    }

    fn create(&mut self) -> MemHandle {
        self.next += 1;
        let real = MemHandle(0x5500_0000_0000 + self.next * 16);
        self.real.insert(real.0);
        let what = description(self.next);
        self.names.push((what.id, what.secret));
        let handle = self.world.adopt(real, what);
        let pin = self.world.pin(handle).expect("just made");
        self.fds.push(self.world.attached(&pin, |fds| Arc::clone(&fds.0)).expect("just made"));
        let leaving = self.world.unpin(pin);
        self.settle(leaving);
        handle
    }

    fn release(&mut self, handle: MemHandle) -> bool {
        match self.world.release(handle) {
            Ok(Release::Last(leaving)) => self.settle([leaving]),
            Ok(Release::Counted) => {}
            Err(why) => {
                assert_eq!(why, NotHere::Unknown);
                return false;
            }
        }
        true
    }

    fn map(&mut self, handle: MemHandle, slot: usize) -> bool {
        let Ok(pin) = self.world.pin(handle) else { return false };
        assert!(self.real.contains(&pin.real().0), "a pinned handle is live");
        let stale = self.world.map(&pin, address(slot), SIZE, 0);
        assert!(stale.is_empty());
        let leaving = self.world.unpin(pin);
        self.settle(leaving);
        true
    }

    fn unmap(&mut self, slot: usize) {
        let taken = self.world.take(address(slot), SIZE);
        let leaving = self.world.end(taken);
        self.settle(leaving);
    }

    fn export(&mut self, handle: MemHandle) -> bool {
        let Ok(pin) = self.world.pin(handle) else { return false };
        let exportable = !pin.is_imported();
        if exportable {
            self.world.publish(&pin).expect("pinned");
            self.world.attached(&pin, |fds| fds.0.fetch_add(1, Relaxed));
        }
        let leaving = self.world.unpin(pin);
        self.settle(leaving);
        exportable
    }

    fn sweep(&mut self) {
        let leaving = self.world.sweep(usize::MAX);
        self.settle(leaving);
    }
}

/// The model: a list of handles, each with its allocation and counts.
#[derive(Default)]
struct Model {
    /// Allocation, references, mappings.
    handles: Vec<(usize, u32, u32)>,
    slots: [Option<usize>; SLOTS],
    /// Open descriptors and the allocation each names.
    fds: Vec<usize>,
    allocations: usize,
}

impl Model {
    fn alive(&self, allocation: usize) -> bool {
        self.fds.contains(&allocation)
            || self.handles.iter().any(|(of, count, mappings)| *of == allocation && count + mappings > 0)
    }

    /// Whether the program may release it.
    fn held(&self, handle: usize) -> bool {
        self.handles.get(handle).is_some_and(|(_, count, _)| *count > 0)
    }

    /// Whether it still names its allocation.
    fn good(&self, handle: usize) -> bool {
        self.handles.get(handle).is_some_and(|(_, count, mappings)| count + mappings > 0)
    }
}

/// Both, and the handle values that the program was given, in the order of the model's list.
#[derive(Default)]
struct Twin {
    shim: Shim,
    model: Model,
    values: Vec<MemHandle>,
    imported: Vec<bool>,
}

impl Twin {
    fn step(&mut self, step: Step) {
        let value = |at: usize| self.values.get(at).copied();
        match step {
            Step::Create => {
                self.values.push(self.shim.create());
                self.imported.push(false);
                self.model.handles.push((self.model.allocations, 1, 0));
                self.model.allocations += 1;
            }
            Step::Release(at) => {
                let Some(handle) = value(at) else { return };
                assert_eq!(self.shim.release(handle), self.model.held(at), "release of handle {at}");
                let count = &mut self.model.handles[at].1;
                *count = count.saturating_sub(1);
            }
            Step::Retain(slot) => {
                let told = self.shim.world.retain(address(slot) + 17);
                let expected = self.model.slots[slot];
                assert_eq!(told, expected.map(|at| self.values[at]), "retain of slot {slot}");
                if let Some(at) = expected {
                    self.model.handles[at].1 += 1;
                }
            }
            Step::Map(at, slot) => {
                // A driver refuses a range that is mapped: the hook does not get as far as the tables.
                let (Some(handle), None) = (value(at), self.model.slots[slot]) else { return };
                let good = self.model.good(at);
                assert_eq!(self.shim.map(handle, slot), good, "map of handle {at}");
                if good {
                    self.model.slots[slot] = Some(at);
                    self.model.handles[at].2 += 1;
                }
            }
            Step::Unmap(slot) => {
                self.shim.unmap(slot);
                if let Some(at) = self.model.slots[slot].take() {
                    self.model.handles[at].2 -= 1;
                }
            }
            Step::Export(at) => {
                let Some(handle) = value(at) else { return };
                // An imported handle cannot be exported.
                let good = self.model.good(at) && !self.imported[at];
                assert_eq!(self.shim.export(handle), good, "export of handle {at}");
                if good {
                    self.model.fds.push(self.model.handles[at].0);
                }
            }
            Step::Close(at) => {
                if at >= self.model.fds.len() {
                    return;
                }
                let of = self.model.fds.remove(at);
                self.shim.fds[of].fetch_sub(1, Relaxed);
                self.shim.sweep();
            }
            Step::Import(at) => {
                let Some(of) = self.model.fds.get(at).copied() else { return };
                let (id, secret) = self.shim.names[of];
                assert_eq!(self.shim.world.join(id, Secret([7; 16])), Err(NotHere::Secret));
                self.values.push(self.shim.world.join(id, secret).expect("a held ticket is good"));
                self.imported.push(true);
                self.model.handles.push((of, 1, 0));
            }
        }
        self.check();
    }

    fn check(&self) {
        let alive = (0..self.model.allocations).filter(|of| self.model.alive(*of)).count();
        assert_eq!(self.shim.real.len(), alive, "real handles");
        let told = self.shim.world.inventory();
        assert_eq!(told.len(), alive, "allocations");
        let references = |of: usize| {
            self.model.handles.iter().filter(|handle| handle.0 == of).map(|handle| handle.1).sum::<u32>()
        };
        let mappings = |of: usize| {
            self.model.handles.iter().filter(|handle| handle.0 == of).map(|handle| handle.2).sum::<u32>()
        };
        for allocation in told {
            let of = self.shim.names.iter().position(|(id, _)| *id == allocation.id).expect("a name we gave");
            assert_eq!(allocation.handles, references(of));
            assert_eq!(allocation.mappings, mappings(of));
            assert_eq!(allocation.exported, self.model.fds.contains(&of));
        }
    }

    fn end(mut self) {
        for slot in 0..SLOTS {
            self.step(Step::Unmap(slot));
        }
        while !self.model.fds.is_empty() {
            self.step(Step::Close(0));
        }
        for at in 0..self.values.len() {
            while self.model.held(at) {
                self.step(Step::Release(at));
            }
        }
        assert!(
            self.shim.real.is_empty() && self.shim.world.objects().is_empty() && !self.shim.world.waits()
        );
        let mut values = self.values.clone();
        values.sort_by_key(|value| value.0);
        values.dedup();
        assert_eq!(values.len(), self.values.len(), "a value was given twice");
    }
}

#[test]
fn all_orders_up_to_length_6_count_as_the_model_does() {
    let alphabet = [
        Step::Release(0),
        Step::Release(1),
        Step::Retain(0),
        Step::Map(0, 0),
        Step::Unmap(0),
        Step::Export(0),
        Step::Close(0),
        Step::Import(0),
    ];
    for number in 0..8_u32.pow(6) {
        let mut twin = Twin::default();
        twin.step(Step::Create);
        for at in 0..6 {
            twin.step(alphabet[(number >> (3 * at)) as usize & 7]);
        }
        twin.end();
    }
}

/// A handle whose record has gone and come again has given its place away meanwhile.
#[test]
fn handles_that_come_again_are_not_taken_for_those_that_got_their_places() {
    let mut shim = Shim::default();
    let mut values = Vec::new();
    for _ in 0..3 {
        let back = shim.create();
        let Ok(Release::Last(leaving)) = shim.world.release(back) else { panic!("held once") };
        let in_its_place = shim.create();
        // The driver has refused.
        shim.world.unrelease(back, leaving);
        let mapped = shim.create();
        let pin = shim.world.pin(mapped).expect("held");
        assert!(matches!(shim.world.release(mapped), Ok(Release::Counted)), "pinned");
        let another = shim.create();
        assert!(shim.world.map(&pin, address(0), SIZE, 0).is_empty());
        assert!(shim.world.unpin(pin).is_none(), "mapped");
        assert_eq!(shim.world.retain(address(0)), Some(mapped));
        values.extend([back, in_its_place, mapped, another]);
        for handle in [back, in_its_place, mapped, another] {
            assert!(shim.release(handle), "{handle:?} is held");
        }
        shim.unmap(0);
        values.extend([shim.create(), shim.create(), shim.create(), shim.create(), shim.create()]);
        let fresh = values.iter().rev().take(5).copied().collect::<Vec<_>>();
        assert!(fresh.into_iter().all(|handle| shim.release(handle)));
    }
    assert!(shim.real.is_empty() && shim.world.objects().is_empty());
    let distinct: BTreeSet<u64> = values.iter().map(|value| value.0).collect();
    assert_eq!(distinct.len(), values.len(), "a value was given twice: {values:?}");
}

fn step() -> impl Strategy<Value = Step> {
    let (handle, slot, fd) = (0_usize..6, 0..SLOTS, 0_usize..4);
    prop_oneof![
        Just(Step::Create),
        handle.clone().prop_map(Step::Release),
        slot.clone().prop_map(Step::Retain),
        (handle.clone(), slot.clone()).prop_map(|(handle, slot)| Step::Map(handle, slot)),
        slot.prop_map(Step::Unmap),
        handle.prop_map(Step::Export),
        fd.clone().prop_map(Step::Close),
        fd.prop_map(Step::Import),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn long_orders_over_several_allocations_count_as_the_model_does(
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let mut twin = Twin::default();
        for step in steps {
            twin.step(step);
        }
        twin.end();
    }
}
