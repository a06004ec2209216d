//! Multicast objects and what is bound to them.

use cuda_sys::MemHandle;
use shim_core::world::{Binding, Bytes, Joined, Key, Multicast, World};

use super::*;

fn object(world: &World<Fds>, number: u64) -> MemHandle {
    let multicast = Some(Multicast { devices: 2, handle_types: 1, flags: 0 });
    world.adopt(real(number), Description { multicast, ..description(number) })
}

fn bind(world: &World<Fds>, object: MemHandle, memory: MemHandle, at: u64) {
    let (object, memory) = (world.pin(object).expect("held"), world.pin(memory).expect("held"));
    let (device, named, from, len) = (1, false, 0, SIZE);
    let binding = Binding { device, named, memory: Key::default(), from, at, len, flags: 0, live: true };
    world.bound(&object, &memory, binding);
    assert!(world.unpin(object).is_none() && world.unpin(memory).is_none());
}

/// Releases a handle and says which real handles the driver gets back, in order.
fn release(world: &World<Fds>, handle: MemHandle) -> Vec<MemHandle> {
    let mut back = Vec::new();
    let mut leaving = match world.release(handle).expect("held") {
        shim_core::world::Release::Counted => Vec::new(),
        shim_core::world::Release::Last(leaving) => vec![leaving],
    };
    while let Some(next) = leaving.pop() {
        back.extend(next.real());
        leaving.extend(world.finish(next).expect("in the table").leaving);
    }
    back
}

#[test]
fn memory_lives_as_long_as_it_is_bound() {
    let world = World::new();
    let (team, memory) = (object(&world, 1), create(&world, 2));
    bind(&world, team, memory, 0);
    bind(&world, team, memory, SIZE);
    assert_eq!(release(&world, memory), [], "bound twice");
    let pin = world.pin(team).expect("held");
    assert!(world.unbound(&pin, 1, 0, SIZE).is_empty(), "bound once");
    assert!(world.unbound(&pin, 0, SIZE, SIZE).is_empty(), "another device");
    let gone = world.unbound(&pin, 1, SIZE, SIZE);
    assert_eq!(gone.iter().map(|leaving| leaving.real()).collect::<Vec<_>>(), [Some(real(2))]);
    gone.into_iter().for_each(|leaving| drop(world.finish(leaving)));
    assert!(world.unpin(pin).is_none());
}

#[test]
fn the_end_of_an_object_ends_what_is_bound_to_it() {
    let world = World::new();
    let (team, memory, kept) = (object(&world, 1), create(&world, 2), create(&world, 3));
    bind(&world, team, memory, 0);
    bind(&world, team, kept, SIZE);
    assert_eq!(release(&world, memory), []);
    assert_eq!(release(&world, team), [real(1), real(2)]);
    assert_eq!(release(&world, kept), [real(3)]);
}

#[test]
fn a_dropped_object_has_nothing_of_the_driver_and_a_kept_one_all() {
    let world = World::new();
    let (team, memory) = (object(&world, 1), create(&world, 2));
    bind(&world, team, memory, 0);
    let pin = world.pin(team).expect("held");
    world.joined(&pin, 1);
    assert!(world.unpin(pin).is_none());
    let found = world.objects().into_iter().find(|object| object.what.multicast.is_some());
    let key = found.expect("the object").key;
    world.lend(&[]);
    assert_eq!(
        world.objects().first().expect("it").bytes,
        Bytes::Saved,
        "nothing to save, and to be made anew"
    );
    world.keep_objects();
    assert_eq!(world.objects().first().expect("it").bytes, Bytes::Live, "nobody has dropped it");
    assert_eq!(world.part(key).joined, [Joined { device: 1, live: true }]);
    world.lend(&[]);
    world.dropped(key);
    let part = world.part(key);
    assert_eq!(part.joined, [Joined { device: 1, live: false }]);
    assert!(part.bindings.iter().all(|binding| !binding.live) && part.bindings.len() == 1);
    world.keep_objects();
    assert_eq!(world.objects().first().expect("it").bytes, Bytes::Saved, "it has to be made anew");
    world.created(key, real(9));
    world.rejoined(key, 1);
    world.rebound(key, &part.bindings[0], true);
    assert!(world.part(key).joined[0].live && world.part(key).bindings[0].live);
    assert_eq!(world.real(key), Some(real(9)));
}
