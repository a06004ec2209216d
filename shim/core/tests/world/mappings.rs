//! Ranges: what spans several mappings, what is cut, what happens while the driver is being asked.

use cuda_sys::{AccessDesc, AccessFlags, MemLocation};
use shim_core::world::{NotHere, Release, World};

use crate::{BASE, Fds, GPU0, GPU1, SIZE, create, map, real};

fn may(world: &World<Fds>, location: MemLocation, address: u64) -> Option<u32> {
    world.access_at(location, address).map(|flags| flags.0)
}

fn grant(world: &World<Fds>, address: u64, len: u64, location: MemLocation, flags: AccessFlags) {
    world.grant(address, len, &[AccessDesc { location, flags }]);
}

#[test]
fn an_unmap_may_span_several_mappings_and_their_allocations_go() {
    let world = World::<Fds>::new();
    for number in 0..3 {
        let handle = create(&world, number);
        map(&world, handle, BASE + number * SIZE, SIZE, 0);
        assert!(matches!(world.release(handle), Ok(Release::Counted)));
    }
    let leaving = world.end(world.take(BASE, 3 * SIZE));
    let reals: Vec<_> = leaving.iter().filter_map(shim_core::world::Leaving::real).collect();
    assert_eq!(reals, [real(0), real(1), real(2)]);
    for leaving in leaving {
        assert!(world.finish(leaving).is_some());
    }
    assert!(world.objects().is_empty() && world.retain(BASE).is_none());
}

#[test]
fn a_refused_unmap_changes_nothing() {
    let world = World::<Fds>::new();
    let handle = create(&world, 0);
    map(&world, handle, BASE, SIZE, SIZE);
    grant(&world, BASE, SIZE, GPU0, AccessFlags::READ);
    let taken = world.take(BASE, SIZE);
    world.put_back(taken);
    assert_eq!(may(&world, GPU0, BASE + SIZE - 1), Some(1));
    assert_eq!(world.retain(BASE), Some(handle));
    assert_eq!(world.inventory()[0].mappings, 1);
}

#[test]
fn an_empty_unmap_takes_nothing_out() {
    let world = World::<Fds>::new();
    let handle = create(&world, 0);
    map(&world, handle, BASE, SIZE, 0);
    assert!(world.end(world.take(BASE + 1, 0)).is_empty());
    assert_eq!(world.views().into_values().next().map(|views| views.len()), Some(1));
}

#[test]
fn what_a_driver_leaves_of_a_mapping_stays() {
    let world = World::<Fds>::new();
    let handle = create(&world, 0);
    map(&world, handle, BASE, 3 * SIZE, SIZE);
    grant(&world, BASE, 3 * SIZE, GPU0, AccessFlags::READ_WRITE);
    assert!(world.end(world.take(BASE + SIZE, SIZE)).is_empty());
    let views = world.views().into_values().next().expect("two pieces are left");
    let told: Vec<_> = views.iter().map(|view| (view.address, view.len, view.offset)).collect();
    assert_eq!(told, [(BASE, SIZE, SIZE), (BASE + 2 * SIZE, SIZE, 3 * SIZE)]);
    assert_eq!(may(&world, GPU0, BASE + SIZE), None);
    assert_eq!(may(&world, GPU0, BASE + 2 * SIZE), Some(3));
    assert_eq!(world.inventory()[0].mappings, 2);
}

#[test]
fn a_range_that_was_freed_can_be_mapped_before_the_unmap_is_recorded() {
    let world = World::<Fds>::new();
    let (old, new) = (create(&world, 0), create(&world, 1));
    map(&world, old, BASE, SIZE, 0);
    // One thread has asked the driver to unmap; the driver has; another thread maps there at once.
    let taken = world.take(BASE, SIZE);
    map(&world, new, BASE, SIZE, 0);
    assert!(world.end(taken).is_empty());
    assert_eq!(world.retain(BASE), Some(new));
}

#[test]
fn a_mapping_the_driver_has_overwritten_is_gone() {
    let world = World::<Fds>::new();
    let (old, new) = (create(&world, 0), create(&world, 1));
    map(&world, old, BASE, SIZE, 0);
    assert!(matches!(world.release(old), Ok(Release::Counted)));
    let pin = world.pin(new).expect("held");
    let stale = world.map(&pin, BASE, SIZE, 0);
    assert_eq!(stale.iter().map(shim_core::world::Leaving::real).collect::<Vec<_>>(), [Some(real(0))]);
    assert!(world.unpin(pin).is_none());
}

#[test]
fn grants_reach_every_mapping_of_a_range_and_only_it() {
    let world = World::<Fds>::new();
    let handle = create(&world, 0);
    for at in 0..3 {
        map(&world, handle, BASE + at * SIZE, SIZE, 0);
    }
    grant(&world, BASE + SIZE / 2, 2 * SIZE, GPU0, AccessFlags::READ_WRITE);
    grant(&world, BASE, 3 * SIZE, GPU1, AccessFlags::READ);
    grant(&world, BASE + SIZE, SIZE, GPU1, AccessFlags::NONE);
    for (at, gpu0, gpu1) in [
        (0, 0, 1),
        (SIZE / 2 - 1, 0, 1),
        (SIZE / 2, 3, 1),
        (SIZE, 3, 0),
        (2 * SIZE, 3, 1),
        (2 * SIZE + SIZE / 2, 0, 1),
    ] {
        assert_eq!(may(&world, GPU0, BASE + at), Some(gpu0), "{at:x}");
        assert_eq!(may(&world, GPU1, BASE + at), Some(gpu1), "{at:x}");
    }
    assert_eq!(may(&world, GPU0, BASE + 3 * SIZE), None);
}

#[test]
fn a_handle_released_during_a_map_lives_on_in_the_mapping() {
    let world = World::<Fds>::new();
    let handle = create(&world, 0);
    let pin = world.pin(handle).expect("held");
    assert!(matches!(world.release(handle), Ok(Release::Counted)));
    assert!(world.pin(handle).is_err(), "nobody holds it any more, and nothing is mapped through it yet");
    assert!(world.map(&pin, BASE, SIZE, 0).is_empty());
    assert!(world.unpin(pin).is_none());
    assert_eq!(world.retain(BASE), Some(handle), "the value comes back");
}

#[test]
fn the_last_pin_lets_go() {
    let world = World::<Fds>::new();
    let handle = create(&world, 0);
    let (first, second) = (world.pin(handle).expect("held"), world.pin(handle).expect("held"));
    assert!(matches!(world.release(handle), Ok(Release::Counted)));
    assert!(world.unpin(first).is_none());
    let leaving = world.unpin(second).expect("nothing refers to it");
    assert_eq!(leaving.real(), Some(real(0)));
}

#[test]
fn a_release_the_driver_refuses_leaves_the_handle_held() {
    let world = World::<Fds>::new();
    let handle = create(&world, 0);
    let Ok(Release::Last(leaving)) = world.release(handle) else { panic!("the only reference") };
    assert!(world.release(handle).is_err(), "meanwhile nobody else finds it");
    world.unrelease(handle, leaving);
    assert!(matches!(world.release(handle), Ok(Release::Last(_))));
}

#[test]
fn an_unmap_whose_release_fails_is_tried_again_by_the_sweep() {
    let world = World::<Fds>::new();
    let handle = create(&world, 0);
    let Ok(Release::Last(leaving)) = world.release(handle) else { panic!("the only reference") };
    world.abort(leaving);
    assert!(world.waits());
    let leaving = world.sweep(1);
    assert_eq!(leaving.len(), 1);
    for leaving in leaving {
        world.finish(leaving);
    }
    assert!(!world.waits());
}

#[test]
fn a_released_handle_is_good_while_something_is_mapped_through_it() {
    let world = World::<Fds>::new();
    let handle = create(&world, 0);
    map(&world, handle, BASE, SIZE, 0);
    assert!(matches!(world.release(handle), Ok(Release::Counted)));
    map(&world, handle, BASE + SIZE, SIZE, 0);
    assert_eq!(world.release(handle).err(), Some(NotHere::Unknown), "nothing is left to release");
    assert_eq!(world.end(world.take(BASE, 2 * SIZE)).len(), 1);
    assert_eq!(world.pin(handle).err(), Some(NotHere::Unknown));
}
